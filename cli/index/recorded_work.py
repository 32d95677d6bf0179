"""Records work on the index, so that consoles see its progress, can stop it, and see its result.

Indexers record the orders they carry out (fleetlight.cli.index.orders), commands record their own work, so that each
can see and stop what the other began (docs/decisions/0034).
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
    """The result of work: a sentence, and findings. has_failed: some of the work could not be done."""

    result: str
    findings: Sequence[Finding] = ()
    has_failed: bool = False

    @property
    def state(self) -> WorkState:
        return WorkState.FAILED if self.has_failed else WorkState.DONE


class Progress:
    """The progress of work, recorded once a second at most. Several threads may use it.

    record: stores progress in the fleet database; returns False if the work is to stop. of_process: set when the
    process is to end. stop: set when the work is to end.
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
        """Set how much is done for a cell, and `step`."""
        self._done[cell] = done
        self.step()

    def step(self) -> None:
        """Call it between two batches. Raises StopRequestedError if the work is to stop, and FleetUnreachableError."""
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
    """Progress of a command's own work. outcome: the result, which the command sets at its end."""

    outcome = Outcome("done")

    def __init__(self, record: Record, stop: Event, total: int | None) -> None:
        super().__init__(record, stop)
        self.stop = stop
        self.total = total


@contextmanager
def recorded(
    fleet: Fleet, kind: WorkKind, cells: Collection[str], total: int | None, stop: Event
) -> Iterator[CommandWork]:
    """Record a command's own work during the block; a stop requested elsewhere ends it as Ctrl-C does.

    cells: uuids, empty for a rebuild. stop: the command's event. If the fleet database cannot store the record, the
    command works without one.
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
    """The approximate number of instances in the cells. Raises FleetUnreachableError."""
    return sum(fleet.count_mappings(cell.uuid) for cell in cells)


def end_work(fleet: Fleet, work_id: str, progress: Progress, state: WorkState, outcome: Outcome) -> None:
    """Record the result of work. Raises FleetUnreachableError."""
    fleet.index_work.record(work_id, progress.done, progress.total, outcome.result)
    fleet.index_work.end(work_id, state, outcome.result, outcome.findings, fleet.clock())


def end_abandoned(fleet: Fleet, leases: Leases, kind: WorkKind) -> None:
    """End the records of killed commands, if no command is doing this kind of work. Raises FleetUnreachableError."""
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
        # While another process checks for abandoned records, it holds the lease exclusively for a moment.
        while not leases.acquire(_lease(kind), shared=True):
            time.sleep(_LEASE_INTERVAL_S)
        return fleet.index_work.begin_command(kind, cells, f"{_account()}, by a command", fleet.clock())
    except FleetUnreachableError as error:
        print_notice(f"consoles do not see this work: {error}")
        return None


def _recorded(fleet: Fleet, work_id: str | None, done: int, total: int | None, phase: str | None) -> bool:
    with suppress(FleetUnreachableError):  # other users of the fleet database report it
        return work_id is None or fleet.index_work.record(work_id, done, total, phase)
    return True


def _end(fleet: Fleet, work_id: str | None, work: Progress, state: WorkState, outcome: Outcome) -> None:
    with suppress(FleetUnreachableError):
        if work_id is not None:
            end_work(fleet, work_id, work, state, outcome)


def _account() -> str:
    """The account of the operating system."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # a container may have no name for the account
        return "an operator"


def _lease(kind: WorkKind) -> str:
    """The name of the lease that commands share while they do this kind of work."""
    return f"index-work-commands-{kind}"
