"""The feed of changes by two API processes that answer one reader in turn, as behind a balancer."""

import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tests.integration.test_up import Up, free_port, up
from tests.support.commands import Command
from tests.support.waiting import wait_until

__all__ = ["up"]

pytestmark = [pytest.mark.timeout(240), pytest.mark.night]

_CHANGES = "/fleetlight/changes"
_QUERY: dict[str, str | int] = {"fields": "name", "all_projects": 1}
_STREAM = {"Accept": "text/event-stream"}
_ENOUGH = 400
_AT_ONE_PROCESS = 10


@pytest.fixture
def processes(up: Up, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    """Two APIs of one fleet in which something happens all the time."""
    monkeypatch.setenv("FLEETLIGHT_API_WATCH_KEY", "a secret of sixteen letters")
    up.start("--simulate", "--instances", "60", "--rate", "40")
    port = free_port()
    arguments = ["api", "--data-dir", str(up.data_dir), "--port", str(port), "--auth", "none"]
    environment = os.environ | {"FLEETLIGHT_MONITORING_PORT": str(free_port())}
    second = Command(*arguments, log=tmp_path / "api.log", environment=environment)
    try:
        wait_until(lambda: "api.ready" in (tmp_path / "api.log").read_text(), 60)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:
            yield up.http, client
    finally:
        second.terminate()
        second.wait(30)


class Told:
    """What a reader was told: of each instance its revisions, in order."""

    def __init__(self) -> None:
        self.revisions: defaultdict[str, list[int]] = defaultdict(list)
        self.count = 0

    def add(self, change: dict[str, Any]) -> None:
        self.revisions[change["id"]].append(change["revision"])
        self.count += 1

    def has_each_once(self) -> bool:
        return all(found == list(range(found[0], found[0] + len(found))) for found in self.revisions.values())


def test_polls_at_two_processes_in_turn_give_each_change_once(processes: tuple[httpx.Client, httpx.Client]) -> None:
    told = Told()
    with ExitStack() as opened:
        for process in processes:
            # So that the feed of each runs, at its own pace, between two polls.
            opened.enter_context(process.stream("GET", _CHANGES, params=_QUERY, headers=_STREAM))
        cursor, turn = "", 0
        while told.count < _ENOUGH:
            answer = processes[turn % 2].get(_CHANGES, params={**_QUERY, "after": cursor})
            assert answer.status_code == 200, answer.text
            *changes, end = map(msgspec.json.decode, answer.content.splitlines())
            for change in changes:
                told.add(change)
            cursor, turn = end["cursor"], turn + 1
    assert turn > 20
    assert told.has_each_once(), told.revisions


def test_stream_that_reconnects_to_the_other_process_gives_each_change_once(
    processes: tuple[httpx.Client, httpx.Client],
) -> None:
    told = Told()
    cursor, turn = processes[0].get(_CHANGES, params=_QUERY).json()["cursor"], 0
    with ExitStack() as opened:
        for process in processes:
            opened.enter_context(process.stream("GET", _CHANGES, params=_QUERY, headers=_STREAM))
        while told.count < _ENOUGH:
            process, turn = processes[turn % 2], turn + 1
            headers = {**_STREAM, "Last-Event-ID": cursor}
            with process.stream("GET", _CHANGES, params=_QUERY, headers=headers) as stream:
                cursor = _take(stream, told, cursor)
    assert turn > 10
    assert told.has_each_once(), told.revisions


def _take(stream: httpx.Response, told: Told, cursor: str) -> str:
    """Take a few events; what comes behind the last cursor is not kept. Returns that cursor."""
    waiting: list[dict[str, Any]] = []
    kept, new_cursor = 0, None
    for line in stream.iter_lines():
        name, _, value = line.partition(": ")
        if name == "event":
            assert value in {"ready", "enter", "change", "leave"}
        elif name == "data" and "revision" in (said := msgspec.json.decode(value)):
            waiting.append(said)
        elif name == "id":
            new_cursor = value
        elif not line and new_cursor is not None:
            for change in waiting:
                told.add(change)
            cursor, new_cursor, kept = new_cursor, None, kept + len(waiting)
            waiting.clear()
            if kept >= _AT_ONE_PROCESS:
                break
    return cursor
