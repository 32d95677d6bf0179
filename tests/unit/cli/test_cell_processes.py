"""Child processes that work on cells: what they say, what the parent says to them, and how they end."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import Pipe, get_context
from multiprocessing.connection import Connection
from threading import Barrier, Event
from typing import Any

import pytest

from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.settings import FleetSettings
from fleetlight.cli.index.cell_processes import CellProcesses, cell_processes
from fleetlight.cli.settings import Settings
from fleetlight.indexer.errors import LeaseLostError, ProcessEndedError, StopRequestedError

Job = Callable[[Callable[[int], None], float | None, Event], Any]


@contextmanager
def work(_settings: Settings, rate: float | None, stop: Event) -> Iterator[Callable[[Job, Callable[[int], None]], Any]]:
    yield lambda job, on_progress: job(on_progress, rate, stop)


@pytest.fixture(autouse=True)
def forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a command, which has no threads yet: a test has, and to start a child anew takes seconds."""
    monkeypatch.setattr(threading, "active_count", lambda: 1)


@pytest.fixture
def settings() -> Settings:
    return Settings(fleet=FleetSettings.model_validate({"database_url": "sqlite://"}))


@pytest.fixture
def children(settings: Settings) -> Iterator[CellProcesses[Job, Any]]:
    with cell_processes(settings, 2, 2, 10, work) as children:
        assert children is not None
        yield children


def ignore(_rows: int) -> None: ...


def say_rows(on_progress: Callable[[int], None], rate: float | None, _stop: Event) -> tuple[int, float | None]:
    on_progress(7)
    return os.getpid(), rate


def unreachable(*_: object) -> None:
    raise CellUnreachableError("east", "it is away")


def reset(*_: object) -> None:
    raise ConnectionResetError("by a server")


def die(*_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def make_what_cannot_be_sent(*_: object) -> Event:
    return Event()


def is_stopped(_on_progress: Callable[[int], None], _rate: float | None, stop: Event) -> bool:
    return stop.is_set()


def test_children_work_at_once_and_share_the_rate(children: CellProcesses[Job, Any]) -> None:
    both = Barrier(2, timeout=60)
    said: list[int] = []

    def on_progress(rows: int) -> None:
        said.append(rows)
        both.wait()

    with ThreadPoolExecutor(2) as threads:
        done = list(threads.map(lambda cell: children.do(cell, say_rows, on_progress), ("east", "west")))
    assert said == [7, 7]
    assert len({process for process, _ in done} - {os.getpid()}) == 2
    assert [rate for _, rate in done] == [5, 5]


def test_error_of_a_child_is_raised_as_it_was(children: CellProcesses[Job, Any]) -> None:
    with pytest.raises(CellUnreachableError, match="cell 'east' cannot be reached: it is away") as raised:
        children.do("east", unreachable, ignore)
    assert (raised.value.cell, raised.value.reason) == ("east", "it is away")
    assert "in unreachable" in raised.value.__notes__[0]  # where it was raised


def test_connection_that_a_child_has_lost_is_not_taken_for_the_one_to_the_child(
    children: CellProcesses[Job, Any],
) -> None:
    with pytest.raises(ConnectionResetError, match="by a server"):
        children.do("east", reset, ignore)


@pytest.mark.parametrize(("error", "stops"), [(LeaseLostError("east"), False), (StopRequestedError(), True)])
def test_what_progress_raises_ends_the_job_and_only_a_stop_all_work_of_the_child(
    settings: Settings, error: Exception, stops: bool
) -> None:
    def refuse(_rows: int) -> None:
        raise error

    with cell_processes(settings, 2, 1, None, work) as children:
        assert children is not None
        for _ in range(2):  # one after the other
            with pytest.raises(type(error)) as raised:
                children.do("east", say_rows, refuse)
            assert raised.value is error
        assert children.do("east", is_stopped, ignore) is stops


def test_killed_child_is_named_by_what_it_worked_on(children: CellProcesses[Job, Any]) -> None:
    with pytest.raises(ProcessEndedError, match="worked on cell 'east' ended with SIGKILL; start again") as raised:
        children.do("east", die, ignore)
    assert (raised.value.cell, raised.value.reason) == ("east", "SIGKILL")


def test_child_that_cannot_say_what_came_of_its_work_ends(children: CellProcesses[Job, Any]) -> None:
    with pytest.raises(ProcessEndedError, match="worked on cell 'east' ended with exit code 1"):
        children.do("east", make_what_cannot_be_sent, ignore)


def test_children_end_with_a_parent_that_is_killed(settings: Settings) -> None:
    ours, theirs = Pipe()
    parent = get_context("fork").Process(target=_begin_and_die, args=(settings, theirs))
    parent.start()
    theirs.close()
    assert ours.recv() == 7
    # The children have the other end as well, so it is closed when they have ended too.
    with pytest.raises(EOFError):
        ours.recv()
    parent.join()
    assert parent.exitcode == -signal.SIGKILL


def _begin_and_die(settings: Settings, connection: Connection) -> None:
    def die_then(rows: int) -> None:
        connection.send(rows)
        os.kill(os.getpid(), signal.SIGKILL)

    with cell_processes(settings, 2, 2, None, work) as children:
        assert children is not None
        children.do("east", say_rows, die_then)
