"""Work on the index that consoles see: how far it is, whether it is to stop, and what came of it.

Indexers record what they were ordered to do (fleetlight.cli.index.orders), commands what they do themselves, so that
what one begins is seen and stopped by the other (docs/decisions/0034).
"""

import getpass
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from threading import Event, Lock

from fleetlight.cells.database.leases import Leases
from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.cells.findings import Finding
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.fleet.index_work import WorkKind, WorkState
from fleetlight.cells.model import Cell
from fleetlight.cli.output import print_notice
from fleetlight.indexer.errors import StopRequestedError

_RECORD_INTERVAL_S = 1.0
_LEASE_INTERVAL_S = 0.05

Record = Callable[[int, int | None, str | None], bool]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of work: a sentence, and what it found. has_failed: not everything could be done."""

    result: str
    findings: Sequence[Finding] = ()
    has_failed: bool = False

    @property
    def state(self) -> WorkState:
        return WorkState.FAILED if self.has_failed else WorkState.DONE


class Progress:
    """How far work is, recorded each second at most. May be used by several threads.

    record: says so in the fleet database; False if the work is to stop. of_process: is set when the process is to end.
    stop: is set when the work is to end.
    """

    def __init__(self, record: Record, of_process: Event) -> None:
        self._record = record
        self._of_process = of_process
        self._guard = Lock()
        self._done: dict[str, int] = {}
        self._due_s = 0.0
        self.stop = Event()
        self.total: int | None = None
        self.phase: str | None = None

    def show(self, cell: str, done: int) -> None:
        """So much is done of a cell; otherwise as `step`."""
        self._done[cell] = done
        self.step()

    def step(self) -> None:
        """Between two batches. Raises StopRequestedError if there is to be no other one, and FleetUnreachableError."""
        with self._guard:
            if time.monotonic() >= self._due_s:
                self._due_s = time.monotonic() + _RECORD_INTERVAL_S
                if not self._record(self.done, self.total, self.phase):
                    self.stop.set()
        if self.stop.is_set() or self._of_process.is_set():
            self.stop.set()
            raise StopRequestedError

    def pause(self, seconds: float) -> None:
        """Wait; raises as `step` does."""
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            self._of_process.wait(min(left_s, _RECORD_INTERVAL_S))
            self.step()

    @property
    def done(self) -> int:
        return sum(list(self._done.values()))


class CommandWork(Progress):
    """Progress of what a command does itself. outcome: what came of it, which the command sets at its end."""

    outcome = Outcome("done")

    def __init__(self, record: Record, stop: Event, total: int | None) -> None:
        super().__init__(record, stop)
        self.stop = stop
        self.total = total


@contextmanager
def recorded(
    fleet: Fleet, kind: WorkKind, cells: Collection[str], total: int | None, stop: Event
) -> Iterator[CommandWork]:
    """Record what a command does meanwhile; a stop that is asked for elsewhere ends it as Ctrl-C does.

    cells: uuids, none of a rebuild. stop: of the command. Without a fleet database that takes it there is no record,
    and the command works nevertheless.
    """
    with closing(fleet.open_leases(f"fleetlight index {kind}")) as leases:
        work_id = _begun(fleet, leases, kind, cells)
        work = CommandWork(partial(_recorded, fleet, work_id), stop, total)
        try:
            yield work
        except (KeyboardInterrupt, StopRequestedError):
            _end(fleet, work_id, work, WorkState.STOPPED, Outcome("stopped"))
            raise KeyboardInterrupt from None
        except Exception as error:
            _end(fleet, work_id, work, WorkState.FAILED, Outcome(str(error)))
            raise
        _end(fleet, work_id, work, work.outcome.state, work.outcome)


def instances_of(fleet: Fleet, cells: Sequence[Cell]) -> int:
    """How many instances the cells have, about. Raises FleetUnreachableError."""
    return sum(fleet.count_mappings(cell.uuid) for cell in cells)


def end_work(fleet: Fleet, work_id: str, progress: Progress, state: WorkState, outcome: Outcome) -> None:
    """Record what came of it. Raises FleetUnreachableError."""
    fleet.index_work.record(work_id, progress.done, progress.total, outcome.result)
    fleet.index_work.end(work_id, state, outcome.result, outcome.findings, fleet.clock())


def end_abandoned(fleet: Fleet, leases: Leases, kind: WorkKind) -> None:
    """End the records of commands that were killed, once no command does work of the kind.

    Raises FleetUnreachableError.
    """
    if not leases.acquire(_lease(kind)):
        return
    try:
        for work in fleet.index_work.open():
            if work.kind is kind and work.is_of_command:
                result = "the command ended without saying how"
                fleet.index_work.end(work.id, WorkState.FAILED, result, (), fleet.clock())
    finally:
        leases.release(_lease(kind))


def _begun(fleet: Fleet, leases: Leases, kind: WorkKind, cells: Collection[str]) -> str | None:
    try:
        fleet.clock.look()
        end_abandoned(fleet, leases, kind)
        # Others have it alone for a moment, to see that no command does such work.
        while not leases.acquire(_lease(kind), shared=True):
            time.sleep(_LEASE_INTERVAL_S)
        return fleet.index_work.begin_command(kind, cells, f"{_account()}, by a command", fleet.clock())
    except FleetUnreachableError as error:
        print_notice(f"consoles do not see this work: {error}")
        return None


def _recorded(fleet: Fleet, work_id: str | None, done: int, total: int | None, phase: str | None) -> bool:
    with suppress(FleetUnreachableError):  # what else needs it says so
        return work_id is None or fleet.index_work.record(work_id, done, total, phase)
    return True


def _end(fleet: Fleet, work_id: str | None, work: Progress, state: WorkState, outcome: Outcome) -> None:
    with suppress(FleetUnreachableError):
        if work_id is not None:
            end_work(fleet, work_id, work, state, outcome)


def _account() -> str:
    """Of the operating system."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container need not have a name for it
        return "an operator"


def _lease(kind: WorkKind) -> str:
    """Shared by the commands that do work of a kind."""
    return f"index-work-commands-{kind}"
