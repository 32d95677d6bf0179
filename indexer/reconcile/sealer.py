"""The sealer: it checks the seal of the index permanently, and repairs what another program has written.

One indexer does it for the whole index, under a lease. A breach (fleetlight.indexer.backends.seal) makes lists ask all
cells at once, until each cell is repaired. If a cell cannot be repaired now, only that one stays suspected, and the
index is sealed anew for the others.
"""

import time
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import structlog

from fleetlight.cells.errors import CellUnreachableError, FleetUnreachableError
from fleetlight.indexer.backends.base import REPAIRS
from fleetlight.indexer.backends.seal import Breach, Seal
from fleetlight.indexer.errors import StopRequestedError
from fleetlight.indexer.metrics import IndexerMetrics
from fleetlight.indexer.reconcile.cell_repair import AWAY, CellRepair
from fleetlight.indexer.reconcile.reconcile import WarnedLists
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

_log = structlog.get_logger(__name__)

_INTERVAL_S = 0.5
_CELLS_AT_ONCE = 4
_RETRY_S = 5.0
# How late a writer may be. On a busy machine all threads are late, the sealer as well.
_TOLERANCE_S = 1.0
_TOLERANCE_OF_LATENESS = 8
_MOST_TOLERANCE_S = 5.0
_LATENESS_KEPT = 0.8


class Sealer:
    """Checks the seal; `run` needs a thread.

    cells: repairs the cells of the fleet, with the writer of this process. is_mending: a breach is not mended yet.
    """

    def __init__(self, cells: CellRepair, metrics: IndexerMetrics) -> None:
        self._cells = cells
        self._metrics = metrics
        self.is_mending = False
        self._seal: Seal | None = None
        self._problem: str | None = None
        self._late_s = 0.0
        # By uuid of a cell that could not be repaired: the instances that were written; None for any.
        self._suspected: dict[str, frozenset[str] | None] = {}
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
                self._report(None)
            except StopRequestedError:
                return
            except AWAY as error:
                self._report(str(error))
            # The lateness of this check tells how late writers may be.
            self._late_s = max(self._late_s * _LATENESS_KEPT, time.monotonic() - due_s)

    def _is_ours(self) -> bool:
        try:
            is_ours = self._cells.leases.seal()
        except FleetUnreachableError:
            # Two sealers do no harm; without one, lists would ask the cells.
            return self._seal is not None
        if not is_ours:
            self._seal = None
        return is_ours

    def _seal_of_index(self) -> Seal:
        if self._seal is None:
            self._seal = self._cells.writer.open_seal(self._cells.clock)
            self._suspected = dict.fromkeys(self._cells.writer.load_state(REPAIRS))
        return self._seal

    def _step(self, seal: Seal, stop: Event) -> None:
        tolerance_s = min(_TOLERANCE_S + _TOLERANCE_OF_LATENESS * self._late_s, _MOST_TOLERANCE_S)
        breach = seal.check(self._are_right, tolerance_s)
        self.is_mending = breach is not None
        if breach is None:
            self._metrics.seal_held.set(seal.held_at / MICROSECONDS_PER_SECOND)
            if self._suspected and time.monotonic() >= self._retry_due_s:
                self._retry(stop)
            return
        instances = "any" if breach.uuids is None else len(breach.uuids)
        _log.warning("indexer.seal_broken", reason=breach.reason, instances=instances)
        self._metrics.seal_breaches.inc()
        self._repair_all(breach, stop)
        seal.mend(breach)

    def _repair_all(self, breach: Breach, stop: Event) -> None:
        cells = self._cells.cells()
        differed = 0
        with ThreadPoolExecutor(_CELLS_AT_ONCE, thread_name_prefix="seal-repair") as threads:
            results = threads.map(lambda cell: self._cells.repair(cell, breach.uuids, stop), cells)
            for cell, result in zip(cells, results, strict=True):
                if result is None:
                    WarnedLists(self._cells.writer, cell.uuid, stop.wait).suspect()
                    self._suspected[cell.uuid] = breach.uuids
                else:
                    differed += result.repaired
        _log.warning("indexer.seal_mended", differed=differed, cells_suspected=len(self._suspected))

    def _retry(self, stop: Event) -> None:
        """Repair the cells for which the repair after a breach failed, here or in another process."""
        for cell in self._cells.cells():
            if cell.uuid not in self._suspected:
                continue
            result = self._cells.repair(cell, self._suspected[cell.uuid], stop)
            if result is not None and not result.wrong:
                WarnedLists(self._cells.writer, cell.uuid, stop.wait).end()
                del self._suspected[cell.uuid]
        self._retry_due_s = time.monotonic() + _RETRY_S

    def _are_right(self, documents: Mapping[str, Collection[str]]) -> bool:
        """Whether documents, by cell uuid, agree with their cells (fleetlight.indexer.backends.seal.AreRight)."""
        cells = {cell.uuid: cell for cell in self._cells.cells()}
        try:
            return all(
                uuid in cells and self._cells.is_right(cells[uuid], frozenset(written))
                for uuid, written in documents.items()
            )
        except CellUnreachableError:
            return False

    def _report(self, problem: str | None) -> None:
        if problem is not None and self._problem is None:
            _log.warning("indexer.seal_unknown", reason=problem)
        elif problem is None and self._problem is not None:
            _log.info("indexer.seal_known_again")
        self._problem = problem
