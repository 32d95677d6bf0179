"""The sealer: it checks the seal of the index all the time, and mends what another program has written.

One indexer does it for the whole index, under a lease. A breach (fleetlight.indexer.backends.seal) puts all cells in
doubt at once. Each is then compared by the one procedure (fleetlight.indexer.reconcile.reconcile): what was written by
its content, everything else by digests, which show what was deleted. A cell that cannot be compared now stays in doubt
alone, and is compared when it can be; the index is sealed anew for the others.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from threading import Event

import structlog

from fleetlight.cells.errors import CellUnreachableError, FleetUnreachableError
from fleetlight.cells.model import Cell, CellAdapter, ChangelogAdapter
from fleetlight.indexer.backends.base import REPAIRS, IndexWriter
from fleetlight.indexer.backends.seal import Breach, Seal
from fleetlight.indexer.errors import IndexerError, StopRequestedError
from fleetlight.indexer.metrics import IndexerMetrics
from fleetlight.indexer.reconcile.announced import altered_announced, reconcile_announced, remove_altered
from fleetlight.indexer.reconcile.external_cell import ExternalComparison
from fleetlight.indexer.reconcile.native_cell import NativeComparison
from fleetlight.indexer.reconcile.other_items import OtherItemComparison, reconcile_other_items
from fleetlight.indexer.reconcile.reconcile import WarnedLists, verify
from fleetlight.indexer.reconcile.retention import load_horizons
from fleetlight.indexer.writing.journaling import CellJournal, JournalStore
from fleetlight.indexer.writing.leases import CellLeases
from fleetlight.indexer.writing.ownership import KnowsOwners, OwnWriter
from fleetlight.indexer.writing.rereading import rows_of
from fleetlight.resources.clock import Clock
from fleetlight.resources.indexed_items import INDEXED_ITEMS

_log = structlog.get_logger(__name__)

_INTERVAL_S = 0.5
_CELLS_AT_ONCE = 4
_ROWS_AT_ONCE = 200
_CATCH_UP_S = 5.0
# Of writes whose writer was killed, while lists still rely on the index.
_CATCH_UP_OF_KILLED_S = 1.0
# A sync of the cell may have begun before the breach.
_LEASE_WAIT_S = 5.0
_RETRY_S = 5.0
# How late a writer at work may be. On a machine that is busy all are late, and the sealer is too.
_TOLERANCE_S = 1.0
_TOLERANCE_OF_LATENESS = 8
_MOST_TOLERANCE_S = 5.0
_AWAY = (CellUnreachableError, FleetUnreachableError, IndexerError)


@dataclass(frozen=True, slots=True)
class SealedCells:
    """The cells whose index is sealed, and what they are compared with. cells: raises FleetUnreachableError.

    open_adapter, for cells that number their changes, and open_external, for all others, raise CellUnreachableError.
    """

    cells: Callable[[], Sequence[Cell]]
    open_adapter: Callable[[Cell], ChangelogAdapter]
    open_external: Callable[[Cell], CellAdapter]
    owners: KnowsOwners
    journals: JournalStore
    clock: Clock


class Sealer:
    """`run` in a thread. writer: of this process, whose seal it is. leases: one process checks it, and a cell is
    repaired under the lease for bulk work.
    """

    def __init__(
        self, sealed: SealedCells, *, writer: IndexWriter, leases: CellLeases, metrics: IndexerMetrics
    ) -> None:
        self._sealed = sealed
        self._writer = writer
        self._leases = leases
        self._metrics = metrics
        self._seal: Seal | None = None
        self._problem: str | None = None
        self._late_s = 0.0
        # What was written of cells that could not be compared, by their uuids; None for anything.
        self._in_doubt: dict[str, frozenset[str] | None] = {}
        self._retry_due_s = 0.0

    def run(self, stop: Event) -> None:
        """Check the seal until `stop` is set."""
        due_s = time.monotonic()
        while not stop.is_set():
            due_s = max(due_s + _INTERVAL_S, time.monotonic())
            stop.wait(due_s - time.monotonic())
            try:
                if self._is_ours() and not stop.is_set():
                    self._step(self._seal_of_index(), stop)
            except StopRequestedError:
                return
            except _AWAY as error:
                self._report(str(error))
            else:
                self._report(None)
            # A late check shows how late others may be.
            self._late_s = max(self._late_s * 0.8, time.monotonic() - due_s)

    def _is_ours(self) -> bool:
        try:
            is_ours = self._leases.seal()
        except FleetUnreachableError:
            # Two that check it do no harm; none would have lists ask the cells.
            return self._seal is not None
        if not is_ours:
            self._seal = None
        return is_ours

    def _seal_of_index(self) -> Seal:
        if self._seal is None:
            self._seal = self._writer.open_seal(self._sealed.clock)
            self._in_doubt = dict.fromkeys(self._writer.load_state(REPAIRS))
        return self._seal

    def _step(self, seal: Seal, stop: Event) -> None:
        tolerance_s = min(_TOLERANCE_S + _TOLERANCE_OF_LATENESS * self._late_s, _MOST_TOLERANCE_S)
        breach = seal.check(self._are_right, tolerance_s)
        if breach is not None:
            instances = "any" if breach.uuids is None else len(breach.uuids)
            _log.warning("indexer.seal_broken", reason=breach.reason, instances=instances)
            self._metrics.seal_broken()
            self._compare_all(breach, stop)
            seal.mend(breach)
            return
        self._metrics.seal_held(seal.held_at)
        if self._in_doubt and time.monotonic() >= self._retry_due_s:
            self._retry(stop)

    def _compare_all(self, breach: Breach, stop: Event) -> None:
        cells = self._sealed.cells()
        with ThreadPoolExecutor(_CELLS_AT_ONCE, thread_name_prefix="seal-repair") as threads:
            for cell, repaired in zip(
                cells, threads.map(lambda cell: self._compare(cell, breach.uuids, stop), cells), strict=True
            ):
                if repaired is None:
                    WarnedLists(self._writer, cell.uuid, stop.wait).suspect()
                    self._in_doubt[cell.uuid] = breach.uuids
        _log.info("indexer.seal_mended", cells=len(cells), in_doubt=len(self._in_doubt))

    def _retry(self, stop: Event) -> None:
        """Compare the cells that could not be compared when the seal was broken."""
        for cell in self._sealed.cells():
            if cell.uuid in self._in_doubt and self._compare(cell, self._in_doubt[cell.uuid], stop) is not None:
                WarnedLists(self._writer, cell.uuid, stop.wait).end()
                del self._in_doubt[cell.uuid]
        self._retry_due_s = time.monotonic() + _RETRY_S

    def _compare(self, cell: Cell, uuids: frozenset[str] | None, stop: Event) -> int | None:
        """Make the index equal to a cell; how much differed, or None where it cannot be done now.

        uuids: instances that were written and whose content may be another; None for any.
        """
        try:
            with self._leases.bulk(cell, deadline_s=_LEASE_WAIT_S) as confirm:

                def on_step(*_progress: int) -> None:
                    if stop.is_set():
                        raise StopRequestedError
                    confirm()

                repaired = (self._repair_numbered if cell.can.numbers_changes else self._repair_other)(
                    cell, uuids, on_step
                )
        except _AWAY as error:
            _log.warning("indexer.seal_repair_postponed", cell=cell.name, reason=str(error))
            return None
        if repaired:
            _log.warning("indexer.seal_repaired", cell=cell.name, differences=repaired)
        return repaired

    def _repair_numbered(self, cell: Cell, uuids: frozenset[str] | None, on_step: Callable[..., None]) -> int:
        writer = self._writer
        with closing(self._sealed.open_adapter(cell)) as adapter:

            def pause(seconds: float) -> None:
                until_s = time.monotonic() + seconds
                while time.monotonic() < until_s:
                    time.sleep(_INTERVAL_S)
                    on_step()

            comparison = NativeComparison(
                adapter,
                writer,
                catch_up_timeout_s=_CATCH_UP_S,
                owners=self._sealed.owners,
                contents_at_once=_ROWS_AT_ONCE if uuids is None else None,
                first=uuids or (),
                pause=pause,
            )
            repaired = len(verify(comparison, repair=True, on_progress=on_step).differences)
            for item_type in INDEXED_ITEMS:
                repaired += len(reconcile_other_items(adapter, writer, item_type, on_step).differences)
            store = self._sealed.journals.announced
            remove_altered(cell.uuid, writer, store, uuids)
            return repaired + reconcile_announced(
                cell.uuid,
                writer,
                OwnWriter(writer, cell.uuid, self._sealed.owners),
                store,
                partial(rows_of, adapter),
                horizon=load_horizons(writer).get(cell.uuid, 0),
                on_step=on_step,
            )

    def _repair_other(self, cell: Cell, _uuids: frozenset[str] | None, on_step: Callable[..., None]) -> int:
        journal = CellJournal(cell.uuid, self._sealed.journals, self._writer, clock=self._sealed.clock)
        with closing(self._sealed.open_external(cell)) as adapter:
            comparison = ExternalComparison(
                adapter, self._writer, batch_size=_ROWS_AT_ONCE, owners=self._sealed.owners, journal=journal
            )
            return len(verify(comparison, repair=True, on_progress=on_step).differences)

    def _are_right(self, documents: Mapping[str, Collection[str]]) -> bool:
        """Whether documents of cells say what these say (fleetlight.indexer.backends.seal.AreRight)."""
        cells = {cell.uuid: cell for cell in self._sealed.cells()}
        try:
            return all(
                uuid in cells and self._is_right(cells[uuid], frozenset(written)) for uuid, written in documents.items()
            )
        except CellUnreachableError:
            return False

    def _is_right(self, cell: Cell, ids: frozenset[str]) -> bool:
        items = frozenset(each for each in ids if ":" in each)
        uuids = ids - items
        if not cell.can.numbers_changes:
            with closing(self._sealed.open_external(cell)) as external:
                external_comparison = ExternalComparison(external, self._writer, batch_size=_ROWS_AT_ONCE)
                return not items and not external_comparison.differing_among(uuids)
        if altered_announced(cell.uuid, self._writer, self._sealed.journals.announced, uuids):
            return False
        with closing(self._sealed.open_adapter(cell)) as adapter:
            comparison = NativeComparison(adapter, self._writer, catch_up_timeout_s=_CATCH_UP_OF_KILLED_S)
            return not comparison.differing_among(uuids) and not (
                items and any(OtherItemComparison(adapter, self._writer, each).differing() for each in INDEXED_ITEMS)
            )

    def _report(self, problem: str | None) -> None:
        if problem is not None and self._problem is None:
            _log.warning("indexer.seal_unknown", reason=problem)
        elif problem is None and self._problem is not None:
            _log.info("indexer.seal_known_again")
        self._problem = problem
