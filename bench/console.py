"""`scripts/bench console`: how soon a list is seen in a browser, and what a tab and the page weigh.

The API is a process of its own over an index in SQLite, of 2,000 instances and of 200,000; the browser is Chromium. The
larger list is scrolled from end to end, and the heap of its tab is measured after its garbage was collected. Changes on
the screen, and many consoles at once, are measured over a fleet that runs (bench.console_live).
"""

import gzip
import os
import statistics
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

from bench import console_live
from bench.listing_http import api_process, fill
from bench.measure import Figure, at_most, figure
from fleetlight.indexer.backends.settings import IndexSettings

_CHROMIUM = os.environ.get("FLEETLIGHT_TEST_CHROMIUM", "/usr/bin/chromium")
_STATIC = Path(__file__).resolve().parents[1] / "api" / "console" / "static"
_CELLS = 8
_FEW = 2_000
_FIRST_S, _MOST_TIMES, _MOST_ROWS, _FLAT, _MOST_KB = map(at_most, (1, 1.5, 100, 1.1, 120))
# From one end to the other; each place is looked at for as long as its rows take to come.
_STEPS = 40
_QUIET_MS = 3000


def run(directory: Path, quick: bool) -> Iterator[Figure]:
    """quick: 20,000 instances instead of 200,000, and the tab is scrolled for a quarter of the time."""
    many, runs, scroll_s = (20_000, 5, 30) if quick else (200_000, 15, 120)
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"]
        with closing(playwright.chromium.launch(executable_path=_CHROMIUM, args=arguments)) as browser:
            with _served(directory / "few", _FEW) as url:
                few_s = _first_row_s(browser, url, runs)
            with _served(directory / "many", many) as url:
                many_s = _first_row_s(browser, url, runs)
                rows, heap = _scrolled(browser, url, scroll_s)
            yield from console_live.run(directory / "live", browser, quick)
    what = "from the request for the page, with nothing cached, until the first row is seen; {} instances"
    yield figure("console.first.few", few_s, "s", what.format(_FEW), runs=runs)
    yield figure("console.first", many_s, "s", what.format(many), runs=runs, goal=_FIRST_S)
    yield figure("console.first.ratio", many_s / few_s, "ratio", f"{many} to {_FEW}", runs=runs, goal=_MOST_TIMES)
    yield figure("console.rows", rows, "rows", "at most in the document while it scrolls", runs=1, goal=_MOST_ROWS)
    kept = f"the tab's heap after {scroll_s} s of scrolling from end to end, to that after half of it"
    yield figure("console.heap", heap, "ratio", kept, runs=1, goal=_FLAT)
    yield figure("console.assets", _assets_kb(), "kB", "all assets, compressed by gzip", runs=1, goal=_MOST_KB)


@contextmanager
def _served(directory: Path, count: int) -> Iterator[str]:
    directory.mkdir()
    index = directory / "index.db"
    fill(directory, IndexSettings(backend="sqlite", path=index), count, _CELLS)
    settings = {
        "INDEX_BACKEND": "sqlite",
        "INDEX_PATH": str(index),
        "API_AUTH": "none",
        "SEARCH_INDEX_DEADLINE_S": "60",
    }
    with api_process(directory, settings) as (url, _):
        yield f"{url}/console/instances"


def _first_row_s(browser: Browser, url: str, runs: int) -> float:
    """The median of `runs` browsers that have never been there."""
    return statistics.median(_visit_s(browser, url) for _ in range(runs))


def _visit_s(browser: Browser, url: str) -> float:
    with browser.new_context() as context:
        page = context.new_page()
        begin = time.perf_counter()
        _see(page, url)
        took_s = time.perf_counter() - begin
        _settle(page)
        return took_s


def _settle(page: Page) -> None:
    """Wait until the page asks for nothing more: its counts by value would be made while the next visit waits."""
    seen = -1
    while (asked := page.evaluate("performance.getEntriesByType('resource').length")) != seen:
        seen = asked
        page.wait_for_timeout(_QUIET_MS)


def _see(page: Page, url: str) -> None:
    page.goto(url, wait_until="commit")
    page.locator("tbody tr a").first.wait_for()


def _scrolled(browser: Browser, url: str, scroll_s: float) -> tuple[int, float]:
    """The most rows that were in the document, and how the heap grew in the second half of the time."""
    with browser.new_context() as context:
        page = context.new_page()
        _see(page, url)
        first, half = _scroll(page, scroll_s / 2), _heap_bytes(page)
        second, end = _scroll(page, scroll_s / 2), _heap_bytes(page)
        return max(first, second), end / half


def _scroll(page: Page, for_s: float) -> int:
    """Scroll from end to end, over and over; returns the most rows that were in the document."""
    most, end = 0, time.monotonic() + for_s
    while time.monotonic() < end:
        for step in range(_STEPS + 1):
            page.evaluate(
                """share => {
                    const scroller = document.querySelector(".scroller");
                    scroller.scrollTop = share * (scroller.scrollHeight - scroller.clientHeight);
                }""",
                step / _STEPS,
            )
            page.locator("tbody .loading").first.wait_for(state="detached")
            most = max(most, page.locator("tbody tr").count())
    return most


def _heap_bytes(page: Page) -> int:
    """What the scripts of the tab hold."""
    devtools = page.context.new_cdp_session(page)
    devtools.send("HeapProfiler.collectGarbage")
    used = int(devtools.send("Runtime.getHeapUsage")["usedSize"])
    devtools.detach()
    return used


def _assets_kb() -> float:
    """Compressed as a server without Brotli would; what is built to be served as it is, is not counted twice."""
    assets = [path for path in _STATIC.iterdir() if path.suffix not in {".gz", ".br"}]
    return sum(len(gzip.compress(path.read_bytes(), mtime=0)) for path in assets) / 1000
