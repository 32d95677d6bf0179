"""Part of `scripts/bench console`: how soon a change is on the screen, and what many open consoles cost.

A fleet of two cells runs as `fleetlight up`, and an API beside it serves what is measured, so that the processor time
of that process is of its readers alone. A console that shows a list holds one stream of changes, and asks for nothing
else: so two hundred consoles are two hundred streams here, and no browsers.
"""

import asyncio
import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import urllib3
from playwright.sync_api import Browser

from bench.listing_http import api_process
from bench.measure import Figure, at_most, figure
from bench.process_tree import processor_s
from tests.support.fleets.console_fleet import ConsoleFleet, console_fleet
from tests.support.waiting import wait_until

_CHANGES = "/fleetlight/changes?what=instance&fields=uuid,name,admin_state&all_projects=1"
_WATCH = "/v2.1/servers/detail?all_tenants=1"
_STREAM = {"Accept": "text/event-stream"}
_READERS = 200
_MANY = str(10 * _READERS)
_PAUSE_S = 0.1
_ON_SCREEN_S, _COST = at_most(0.3), at_most(1.2)
# Notes when the row of a name is drawn otherwise than it was.
_NOTE_ROWS = """() => {
    window.noted = {};
    const before = {};
    const look = () => {
        for (const row of document.querySelectorAll("tbody tr")) {
            const name = row.querySelector("a")?.textContent;
            if (!name) continue;
            before[name] ??= row.textContent;
            if (before[name] !== row.textContent) window.noted[name] ??= Date.now() / 1000;
        }
    };
    look();
    new MutationObserver(look).observe(document.querySelector("tbody"), {
        subtree: true, childList: true, characterData: true,
    });
}"""


def run(directory: Path, browser: Browser, quick: bool) -> Iterator[Figure]:
    """quick: 10 changes instead of 40, and windows of 5 s instead of 20."""
    count, window_s = (10, 5.0) if quick else (40, 20.0)
    directory.mkdir()
    with console_fleet(directory, "--auth", "none") as fleet, _api(fleet) as (url, pid):
        waits_s = _on_screen_s(fleet, browser, url, count)
        what = f"from when a client of the stream has a change until it is on the screen, median of {count}"
        yield figure("console.change", statistics.median(waits_s), "s", what, runs=count, goal=_ON_SCREEN_S)
        pairs = [
            (_processors(fleet, url, pid, _CHANGES, window_s), _processors(fleet, url, pid, _WATCH, window_s))
            for _ in range(3)
        ]
    consoles, watches = (statistics.median(each) for each in zip(*pairs, strict=True))
    what = f"processors that the API takes for {_READERS} consoles ({consoles:.2f}), to those for as many watches"
    yield figure("console.many", consoles / watches, "ratio", what, runs=len(pairs), goal=_COST)


@contextmanager
def _api(fleet: ConsoleFleet) -> Iterator[tuple[str, int]]:
    data = fleet.api.data_dir
    settings = {
        "INDEX_BACKEND": "sqlite",
        "INDEX_PATH": str(data / "index.db"),
        "API_AUTH": "none",
        "API_PROCESSES": "1",
        **dict.fromkeys(("API_MAX_WATCHES", "API_MAX_WATCHES_PER_USER", "API_MAX_WATCHES_PER_PROJECT"), _MANY),
    }
    with api_process(data, settings) as served:
        yield served


@dataclass(frozen=True, slots=True)
class _Made:
    uuid: str
    name: str


def _made(fleet: ConsoleFleet, count: int) -> Sequence[_Made]:
    names = [f"a-live-{number:03}" for number in range(count)]
    return [_Made(fleet.create("cell1", display_name=name), name) for name in names]


def _on_screen_s(fleet: ConsoleFleet, browser: Browser, url: str, count: int) -> list[float]:
    made = _made(fleet, count)
    with browser.new_context(viewport={"width": 1280, "height": 2400}) as context, _Heard(url) as heard:
        page = context.new_page()
        page.goto(f"{url}/console/instances?filter=name=*%22a-live-*%22&columns=name,admin_state,status")
        page.get_by_text("Live", exact=True).wait_for()
        page.get_by_role("link", name=made[-1].name, exact=True).wait_for()
        page.evaluate(_NOTE_ROWS)
        heard.at.clear()  # what was heard of their creation
        for each in made:
            fleet.stop("cell1", each.uuid)
            time.sleep(_PAUSE_S)
        wait_until(lambda: len(page.evaluate("window.noted")) == count and len(heard.at) >= count)
        seen = page.evaluate("window.noted")
    return [seen[each.name] - heard.at[each.uuid] for each in made]


class _Heard:
    """When a client of the stream had the first change of each instance, in seconds since 1970."""

    def __init__(self, url: str) -> None:
        self.at: dict[str, float] = {}
        self._answer = urllib3.request("GET", url + _CHANGES, headers=_STREAM, preload_content=False, timeout=None)
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> "_Heard":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._answer.close()

    def _listen(self) -> None:
        with suppress(urllib3.exceptions.HTTPError, ValueError, OSError, AttributeError):  # it was closed
            for line in _lines(self._answer.stream(1)):
                if line.startswith(b"data: ") and b'"id"' in line:
                    self.at.setdefault(msgspec.json.decode(line[6:])["id"], time.time())


def _lines(pieces: Iterator[bytes]) -> Iterator[bytes]:
    line = b""
    for piece in pieces:
        line += piece
        if line.endswith(b"\n"):
            yield line
            line = b""


def _processors(fleet: ConsoleFleet, url: str, pid: int, path: str, window_s: float) -> float:
    """What the API takes of a processor while many read the stream at `path` and instances change."""
    # The thread of the browser's client has a loop of its own.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, _processors_read(fleet, url, pid, path, window_s)).result()


async def _processors_read(fleet: ConsoleFleet, url: str, pid: int, path: str, window_s: float) -> float:
    host, port = url.removeprefix("http://").split(":")
    request = f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nAccept: text/event-stream\r\n\r\n".encode()
    opened = [await _opened(host, int(port), request) for _ in range(_READERS)]
    readers = [asyncio.create_task(_drain(reader)) for reader, _ in opened]
    before, begun = processor_s(pid), time.monotonic()
    await asyncio.to_thread(_change, fleet, window_s)
    spent = (processor_s(pid) - before) / (time.monotonic() - begun)
    for task, (_, writer) in zip(readers, opened, strict=True):
        task.cancel()
        writer.close()
    return spent


async def _opened(host: str, port: int, request: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    assert b" 200 " in head.partition(b"\r\n")[0], head
    return reader, writer


async def _drain(reader: asyncio.StreamReader) -> None:
    while await reader.read(65536):
        pass


def _change(fleet: ConsoleFleet, for_s: float) -> None:
    """Make some ten instances a second, for a while."""
    end = time.monotonic() + for_s
    while time.monotonic() < end:
        fleet.create("cell2", display_name="b-made")
        time.sleep(_PAUSE_S)
