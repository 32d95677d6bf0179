from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import cast

import pytest
from structlog.testing import capture_logs

from fleetlight.cells.errors import FleetUnreachableError, FleetUnusableError
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.model import Cell
from fleetlight.cli.processes.cell_heartbeats import CellHeartbeats
from fleetlight.cli.processes.starting import ProbesOfStart, looking_for, when_reachable
from tests.support.commands import Command
from tests.unit.cli.conftest import Run

COMMANDS = ("api", "indexer", "relay", "worker")


class Stop(Event):
    """Nobody waits, and the pauses are noted; it is set at the pause number `ends_at`."""

    def __init__(self, ends_at: int) -> None:
        super().__init__()
        self.pauses: list[float] = []
        self._ends_at = ends_at

    def wait(self, timeout: float | None = None) -> bool:
        assert timeout is not None
        self.pauses.append(timeout)
        if len(self.pauses) == self._ends_at:
            self.set()
        return self.is_set()


def away() -> str:
    raise FleetUnreachableError("it is away")


def test_pauses_between_two_looks_grow_to_a_limit_and_are_logged() -> None:
    stop = Stop(ends_at=9)
    with capture_logs() as logs:
        assert when_reachable(away, stop) is None
    assert stop.pauses[0] <= 1
    assert stop.pauses[1] < stop.pauses[3] < stop.pauses[5]
    assert 10 <= stop.pauses[-1] <= 10.5
    assert {(entry["event"], entry["reason"]) for entry in logs} == {("fleet.unreachable", "it is away")}
    assert [entry["again_in_s"] for entry in logs] == [round(pause, 1) for pause in stop.pauses]


def test_what_could_be_begun_is_returned() -> None:
    tries: list[str] = []

    def begin() -> str:
        tries.append("again")
        return away() if len(tries) < 3 else "begun"

    assert when_reachable(begin, Stop(ends_at=9)) == "begun"


def test_database_that_cannot_be_used_is_not_waited_for() -> None:
    def wrong() -> str:
        raise FleetUnusableError("no such table: cells")

    stop = Stop(ends_at=9)
    with pytest.raises(FleetUnusableError):
        when_reachable(wrong, stop)
    assert stop.pauses == []


@pytest.fixture
def silence() -> Iterator[Event]:
    """Nobody says anything before it is set."""
    silence = Event()
    yield silence
    silence.set()


def test_database_that_says_nothing_keeps_no_process_from_ending(silence: Event) -> None:
    asked, stop = Event(), Event()

    def begin() -> None:
        asked.set()
        silence.wait(120)

    with ThreadPoolExecutor(1) as threads:
        starting = threads.submit(when_reachable, begin, stop)
        assert asked.wait(60)
        stop.set()
        try:
            assert starting.result(30) is None
        finally:
            silence.set()


def test_process_that_serves_does_not_wait_for_a_database_that_says_nothing(
    silence: Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    class SilentFleet:
        def cells(self) -> Sequence[Cell]:
            silence.wait(120)
            return ()

    monkeypatch.setattr("fleetlight.cli.processes.starting._TIMEOUT_S", 0.01)
    with looking_for(cast("Fleet", SilentFleet())) as look_on:
        look_on(lambda: None)
    assert not silence.is_set()


def test_process_is_alive_and_not_ready_until_it_has_begun() -> None:
    probes = ProbesOfStart(CellHeartbeats())
    assert probes.healthz().is_well
    assert not probes.readyz().is_well
    probes.has_started = True
    assert probes.readyz().is_well


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("sqlite:///{place}/empty.db", (1, "`fleetlight database upgrade` brings its tables to this version")),
        ("sqlite:///{place}/none.db", (1, "`fleetlight database upgrade` makes a new one")),
        ("mysql://host/fleet", (2, "'mysql' is not supported, only sqlite and postgresql")),
    ],
)
def test_process_whose_fleet_database_cannot_be_used_ends_at_once(
    run: Run, empty_place: Path, command: str, url: str, problem: tuple[int, str]
) -> None:
    (empty_place / "empty.db").touch()
    config, log = empty_place / "fleetlight.toml", empty_place / "log"
    config.write_text(f'[fleet]\ndatabase_url = "{url.format(place=empty_place)}"\n')
    exit_code, text = problem
    if command == "api":  # it forks children, so it gets a process of its own
        apart = Command(command, "--port", "0", "--config", str(config), log=log)
        assert (apart.wait(60), text in log.read_text()) == (exit_code, True)
    else:
        result = run(command)
        assert (result.exit_code, text in result.stderr) == (exit_code, True)
