"""Carries out work on the index that was ordered over HTTP, in an indexer, by the functions that the commands use.

A lease for each kind of work makes sure that one order of each kind runs at a time. If the indexer is killed, the lease
becomes free and another indexer continues: a sync or a rebuild from where it was, other work from the beginning.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from threading import Event
from typing import assert_never

import structlog

from fleetlight.cells.database.leases import Leases
from fleetlight.cells.errors import CellError, FleetUnreachableError
from fleetlight.cells.findings import wrong
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.fleet.index_work import WorkKind, WorkOrder, WorkState
from fleetlight.cells.model import Cell
from fleetlight.cli.index.cell_processes import cell_processes, number_of_processes
from fleetlight.cli.index.failures import retried
from fleetlight.cli.index.purge import purge_cells, purge_outcome
from fleetlight.cli.index.rebuild import DROPPED, NONE_TO_DROP, REBUILT, WENT_BACK, RecordedRebuild, rebuild_parts
from fleetlight.cli.index.recorded_work import Outcome, Progress, end_abandoned, end_work, instances_of
from fleetlight.cli.index.sync import SyncWork, sync_cells, sync_outcome, syncing_cells
from fleetlight.cli.index.verification import verification_outcome, verify_cells
from fleetlight.cli.opened_index import opened_index
from fleetlight.cli.options import CELLS_AT_ONCE
from fleetlight.cli.settings import Settings
from fleetlight.indexer.backends.base import IndexWriter
from fleetlight.indexer.errors import IndexerError, IndexVersionError, StopRequestedError
from fleetlight.indexer.reconcile.rebuild import drop_previous, rebuild_index
from fleetlight.indexer.writing.leases import CellLeases
from fleetlight.indexer.writing.throttle import Throttle
from fleetlight.resources.indexed_items import RESOURCE_TYPES

_log = structlog.get_logger(__name__)

_LOOK_INTERVAL_S = 1.0
_MOST_ATTEMPTS = 3


@dataclass
class OrderedWork:
    """Carries out orders while an indexer runs; `run` needs a thread of its own."""

    settings: Settings
    fleet: Fleet
    _running: dict[WorkKind, Future[None]] = field(default_factory=dict)

    def run(self, stop: Event) -> None:
        """Look for orders each second until `stop` is set; another indexer then continues the current ones."""
        with (
            closing(self.fleet.open_leases("fleetlight indexer")) as leases,
            ThreadPoolExecutor(len(WorkKind), thread_name_prefix="index-work") as threads,
        ):
            while not stop.wait(_LOOK_INTERVAL_S):
                with suppress(FleetUnreachableError):  # other users of the fleet database report it
                    self._look(leases, threads, stop)

    def _look(self, leases: Leases, threads: ThreadPoolExecutor, stop: Event) -> None:
        for order in self.fleet.index_work.open():
            if order.is_of_command:
                end_abandoned(self.fleet, leases, order.kind)
                continue
            running = self._running.get(order.kind)
            if running is not None and running.done():
                running.result()
                del self._running[order.kind]
            if order.kind not in self._running and leases.acquire(_lease(order.kind)):
                self._running[order.kind] = threads.submit(self._carry_out, order, leases, stop)

    def _carry_out(self, order: WorkOrder, leases: Leases, stop: Event) -> None:
        try:
            # FleetUnreachableError: the result is unknown, so the order is begun again.
            with suppress(FleetUnreachableError):
                self._attempt(order, stop)
        finally:
            leases.release(_lease(order.kind))

    def _attempt(self, order: WorkOrder, stop: Event) -> None:
        store, clock = self.fleet.index_work, self.fleet.clock
        found = store.find(order.id)
        if found is None or not found.is_open:
            return  # another indexer has ended it since we listed it
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
        except Exception as error:  # noqa: BLE001  # a mistake of ours: the order records it, and the indexer goes on
            _log.exception("index_work.broken", id=order.id)
            self._end(order, WorkState.FAILED, Outcome(f"{type(error).__name__}: {error}"), progress)
        else:
            self._end(order, outcome.state, outcome, progress)

    def _end(self, order: WorkOrder, state: WorkState, outcome: Outcome, progress: Progress) -> None:
        end_work(self.fleet, order.id, progress, state, outcome)
        _log.info("index_work.ended", id=order.id, kind=order.kind.value, state=state.value, result=outcome.result)

    def _do(self, order: WorkOrder, progress: Progress) -> Outcome:
        if order.kind is WorkKind.RETRY:
            return self._retry(order, progress)
        if order.kind is WorkKind.REBUILD or order.kind is WorkKind.BACK:
            return self._rebuild(progress, back=order.kind is WorkKind.BACK)
        if order.kind is WorkKind.DROP_OLD:
            with rebuild_parts(self.settings, None, 1, progress.stop) as (_, parts):
                return DROPPED if drop_previous(parts) else NONE_TO_DROP
        cells = [cell for cell in self.fleet.cells() if cell.uuid in order.subjects]
        progress.total = instances_of(self.fleet, cells)
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
        shows = [partial(progress.show, cell.uuid) for cell in cells]
        number = number_of_processes(self.settings, None)
        with cell_processes(self.settings, number, CELLS_AT_ONCE, None, syncing_cells) as children:
            work = SyncWork(
                self.settings, self.fleet, writer, leases, pace, progress.stop, None, RESOURCE_TYPES, children
            )
            return sync_outcome(cells, sync_cells(work, cells, shows, max(CELLS_AT_ONCE, number)))

    def _verify(
        self, cells: Sequence[Cell], writer: IndexWriter, leases: CellLeases, progress: Progress, *, repair: bool
    ) -> Outcome:
        return verification_outcome(
            verify_cells(cells, writer, leases, self.fleet, progress, repair=repair, fast=False)
        )

    def _purge(self, cells: Sequence[Cell], writer: IndexWriter, leases: CellLeases, progress: Progress) -> Outcome:
        progress.total = None
        return purge_outcome(purge_cells(self.settings, self.fleet, writer, leases, cells, progress=progress))

    def _retry(self, order: WorkOrder, progress: Progress) -> Outcome:
        progress.total, solved = len(order.subjects), 0
        names = {cell.uuid: cell.name for cell in self.fleet.cells()}
        of = {each.id: names.get(each.summary.cell_uuid, "") for each in self.fleet.failures.find(order.subjects)}
        found = []
        for results in retried(self.settings, self.fleet, iter(order.subjects)):
            solved += sum(each.is_solved for each in results)
            unsolved = [each for each in results if not each.is_solved]
            found += [wrong(each.failure_id, each.what, cell=of.get(each.failure_id, "")) for each in unsolved]
            progress.show("", solved + len(found))
        return Outcome(f"{solved} solved, {len(found)} not solved", found, bool(found))

    def _rebuild(self, progress: Progress, *, back: bool) -> Outcome:
        progress.total = instances_of(self.fleet, self.fleet.cells())
        number = number_of_processes(self.settings, None)
        with rebuild_parts(self.settings, None, CELLS_AT_ONCE, progress.stop, processes=number) as (_, parts):
            with suppress(IndexVersionError):  # the rebuild creates one of this program's version
                parts.current.prepare()
            rebuild_index(parts, RecordedRebuild(progress, _log_notice), back=back)
        return WENT_BACK if back else REBUILT


def _log_notice(text: str) -> None:
    _log.info("index_work.notice", text=text)


def _lease(kind: WorkKind) -> str:
    return f"index-work-{kind}"
