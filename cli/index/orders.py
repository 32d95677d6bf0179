"""Work on the index that was ordered over HTTP, carried out by an indexer: what the commands do, by the same functions.

An order is held by a lease of its kind, so one of each kind runs in the fleet at a time. When its indexer is killed the
lease is free, and another one goes on: a sync or a rebuild where it was, the others from the beginning.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Event, Lock
from typing import assert_never

import structlog

from fleetlight.cells.database.leases import Leases
from fleetlight.cells.errors import CellError, FleetUnreachableError
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.fleet.index_work import Finding, WorkKind, WorkOrder, WorkState
from fleetlight.cells.model import Cell
from fleetlight.cli.index.failures import retried
from fleetlight.cli.index.purge import purge_cells
from fleetlight.cli.index.rebuild import rebuild_parts
from fleetlight.cli.index.sync import Synced, SyncWork, sync_cells
from fleetlight.cli.index.verification import Verified, verify_cell
from fleetlight.cli.opened_index import opened_index
from fleetlight.cli.options import CELLS_AT_ONCE
from fleetlight.cli.output import counted
from fleetlight.cli.settings import Settings
from fleetlight.indexer.backends.base import IndexWriter
from fleetlight.indexer.errors import IndexerError, IndexVersionError, StopRequestedError
from fleetlight.indexer.reconcile.rebuild import RebuildPhase, rebuild_index
from fleetlight.indexer.writing.leases import CellLeases
from fleetlight.indexer.writing.throttle import Throttle
from fleetlight.resources.indexed_items import RESOURCE_TYPES

_log = structlog.get_logger(__name__)

_LOOK_INTERVAL_S = 1.0
_RECORD_INTERVAL_S = 1.0
_MOST_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of work: a sentence, and what it found. has_failed: not everything could be done."""

    result: str
    findings: Sequence[Finding] = ()
    has_failed: bool = False


class Progress:
    """How far one order is, recorded each second at most. May be used by several threads.

    record: says so in the fleet database; False if the work is to stop. stop: of the indexer.
    """

    def __init__(self, record: Callable[[int, int | None, str | None], bool], stop: Event) -> None:
        self._record = record
        self._of_indexer = stop
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
        if self.stop.is_set() or self._of_indexer.is_set():
            self.stop.set()
            raise StopRequestedError

    def pause(self, seconds: float) -> None:
        """Wait; raises as `step` does."""
        until_s = time.monotonic() + seconds
        while (left_s := until_s - time.monotonic()) > 0:
            self._of_indexer.wait(min(left_s, _RECORD_INTERVAL_S))
            self.step()

    @property
    def done(self) -> int:
        return sum(list(self._done.values()))


@dataclass
class OrderedWork:
    """Carries out orders as long as an indexer runs; `run` in a thread."""

    settings: Settings
    fleet: Fleet
    _running: dict[WorkKind, Future[None]] = field(default_factory=dict)

    def run(self, stop: Event) -> None:
        """Look for orders each second until `stop` is set; what runs then is left to another indexer."""
        with (
            closing(self.fleet.open_leases("fleetlight indexer")) as leases,
            ThreadPoolExecutor(len(WorkKind), thread_name_prefix="index-work") as threads,
        ):
            while not stop.wait(_LOOK_INTERVAL_S):
                with suppress(FleetUnreachableError):  # what else needs it says so
                    self._look(leases, threads, stop)

    def _look(self, leases: Leases, threads: ThreadPoolExecutor, stop: Event) -> None:
        for order in self.fleet.index_work.open():
            running = self._running.get(order.kind)
            if running is not None and running.done():
                running.result()
                del self._running[order.kind]
            if order.kind not in self._running and leases.acquire(_lease(order.kind)):
                self._running[order.kind] = threads.submit(self._carry_out, order, leases, stop)

    def _carry_out(self, order: WorkOrder, leases: Leases, stop: Event) -> None:
        try:
            # FleetUnreachableError: it is not known what became of it, and it is begun again.
            with suppress(FleetUnreachableError):
                self._attempt(order, stop)
        finally:
            leases.release(_lease(order.kind))

    def _attempt(self, order: WorkOrder, stop: Event) -> None:
        store, clock = self.fleet.index_work, self.fleet.clock
        found = store.find(order.id)
        if found is None or not found.is_open:
            return  # another indexer has ended it since it was looked for
        if found.attempts >= _MOST_ATTEMPTS:
            result = f"given up: {_MOST_ATTEMPTS} indexers ended while they were at it"
            store.end(order.id, WorkState.FAILED, result, (), clock())
            return
        store.begin(found, clock())
        _log.info("index_work.begun", id=order.id, kind=order.kind.value, by=order.ordered_by)
        progress = Progress(partial(store.record, order.id), stop)
        try:
            outcome = self._do(order, progress)
        except StopRequestedError:
            if stop.is_set():
                store.put_back(order.id)
                return
            self._end(order, WorkState.STOPPED, Outcome("stopped"), progress)
        except FleetUnreachableError:
            raise
        except (IndexerError, CellError) as error:
            self._end(order, WorkState.FAILED, Outcome(str(error)), progress)
        except Exception as error:  # noqa: BLE001  # a mistake of ours: the indexer goes on, and the order says what it was
            _log.exception("index_work.broken", id=order.id)
            self._end(order, WorkState.FAILED, Outcome(f"{type(error).__name__}: {error}"), progress)
        else:
            self._end(order, WorkState.FAILED if outcome.has_failed else WorkState.DONE, outcome, progress)

    def _end(self, order: WorkOrder, state: WorkState, outcome: Outcome, progress: Progress) -> None:
        store = self.fleet.index_work
        store.record(order.id, progress.done, progress.total, outcome.result)
        store.end(order.id, state, outcome.result, outcome.findings, self.fleet.clock())
        _log.info("index_work.ended", id=order.id, kind=order.kind.value, state=state.value, result=outcome.result)

    def _do(self, order: WorkOrder, progress: Progress) -> Outcome:
        if order.kind is WorkKind.RETRY:
            return self._retry(order, progress)
        if order.kind is WorkKind.REBUILD:
            return self._rebuild(progress)
        cells = [cell for cell in self.fleet.cells() if cell.uuid in order.subjects]
        progress.total = sum(self.fleet.count_mappings(cell.uuid) for cell in cells)
        with self._opened(f"fleetlight index {order.kind}") as (writer, leases):
            match order.kind:
                case WorkKind.SYNC:
                    return self._sync(cells, writer, leases, progress)
                case WorkKind.VERIFY | WorkKind.REPAIR:
                    return self._verify(cells, writer, leases, progress, repair=order.kind is WorkKind.REPAIR)
                case WorkKind.PURGE:
                    return self._purge(cells, writer, leases, progress)
                case _:
                    assert_never(order.kind)

    @contextmanager
    def _opened(self, purpose: str) -> Iterator[tuple[IndexWriter, CellLeases]]:
        with (
            opened_index(self.settings.index) as writer,
            closing(CellLeases(self.fleet.open_leases(purpose))) as leases,
        ):
            writer.prepare()
            yield writer, leases

    def _sync(self, cells: Sequence[Cell], writer: IndexWriter, leases: CellLeases, progress: Progress) -> Outcome:
        pace = Throttle(None, progress.stop)
        work = SyncWork(self.settings, self.fleet, writer, leases, pace, progress.stop, None, RESOURCE_TYPES)
        shows = [partial(progress.show, cell.uuid) for cell in cells]
        outcomes = sync_cells(work, cells, shows, CELLS_AT_ONCE)
        found = [finding for cell, synced in zip(cells, outcomes, strict=True) for finding in _of_sync(cell, synced)]
        rows = sum(each.instances.rows for each in outcomes if isinstance(each, Synced) and each.instances)
        return Outcome(f"{counted(rows, 'instance')} of {counted(len(cells), 'cell')} synced", found, bool(found))

    def _verify(
        self, cells: Sequence[Cell], writer: IndexWriter, leases: CellLeases, progress: Progress, *, repair: bool
    ) -> Outcome:
        verified = [
            verify_cell(
                cell,
                writer,
                leases,
                self.fleet,
                lambda compared, _found, uuid=cell.uuid: progress.show(uuid, compared),  # type: ignore[misc]
                repair=repair,
                fast=False,
            )
            for cell in cells
        ]
        found = [finding for each in verified for finding in _of_verification(each)]
        agreeing = sum(each.agrees for each in verified)
        has_failed = any(each.verification is None for each in verified)
        return Outcome(f"{agreeing} of {counted(len(cells), 'cell')} agree with the index", found, has_failed)

    def _purge(self, cells: Sequence[Cell], writer: IndexWriter, leases: CellLeases, progress: Progress) -> Outcome:
        progress.total = None
        found, rows = [], 0
        for cell, outcome in purge_cells(
            self.settings, self.fleet, writer, leases, cells, pause=progress.pause, on_batch=progress.show
        ):
            if isinstance(outcome, int):
                rows += outcome
            else:
                found.append(Finding(cell.name, None, str(outcome)))
        return Outcome(f"{counted(rows, 'deleted instance')} removed from the index", found, bool(found))

    def _retry(self, order: WorkOrder, progress: Progress) -> Outcome:
        progress.total, solved = len(order.subjects), 0
        names = {cell.uuid: cell.name for cell in self.fleet.cells()}
        of = {each.id: names.get(each.summary.cell_uuid, "") for each in self.fleet.failures.find(order.subjects)}
        found = []
        for results in retried(self.settings, self.fleet, iter(order.subjects)):
            solved += sum(each.is_solved for each in results)
            found += [
                Finding(of.get(each.failure_id, ""), each.failure_id, each.what)
                for each in results
                if not each.is_solved
            ]
            progress.show("", solved + len(found))
        return Outcome(f"{solved} solved, {len(found)} not solved", found, bool(found))

    def _rebuild(self, progress: Progress) -> Outcome:
        progress.total = sum(self.fleet.count_mappings(cell.uuid) for cell in self.fleet.cells())
        with rebuild_parts(self.settings, None, CELLS_AT_ONCE, progress.stop) as (_, parts):
            with suppress(IndexVersionError):  # it makes one of this program's version
                parts.current.prepare()
            rebuild_index(parts, _RecordedRebuild(progress), back=False)
        return Outcome("the new index is the current one; the old one is kept")


class _RecordedRebuild:
    """fleetlight.indexer.reconcile.rebuild.RebuildObserver for an order."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress

    def on_step(self) -> None:
        self._progress.step()

    def on_phase(self, phase: RebuildPhase) -> None:
        self._progress.phase = phase.value

    def on_rows(self, cell: Cell, rows: int) -> None:
        self._progress.show(cell.uuid, rows)

    def on_notice(self, text: str) -> None:
        _log.info("index_work.notice", text=text)


def _lease(kind: WorkKind) -> str:
    return f"index-work-{kind}"


def _of_sync(cell: Cell, synced: Synced | Exception) -> Iterator[Finding]:
    if isinstance(synced, Exception):
        yield Finding(cell.name, None, str(synced))
        return
    rejected = {} if synced.instances is None else synced.instances.rejected
    for uuid, reason in rejected.items():
        yield Finding(cell.name, uuid, f"rejected: {reason}")
    for stored, verification in synced.items:
        for difference in verification.remaining:
            yield Finding(cell.name, difference.uuid, f"{stored.noun} rejected: {difference.problem}")


def _of_verification(verified: Verified) -> Iterator[Finding]:
    name = verified.cell.name
    if verified.verification is None:
        yield Finding(name, None, verified.problem or "not compared")
        return
    both = (("instance", verified.verification), *((stored.noun, found) for stored, found in verified.items))
    for noun, found in both:
        for each in found.differences:
            ending = "repaired" if each.is_repaired else each.problem or "not repaired"
            yield Finding(name, each.uuid, f"{noun} {each.kind}; {ending}")
