"""Upkeep of a native cell's mappings: a worker compares them with the cell's rows (fleetlight.cells.fleet.adoption)."""

import structlog

from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.cells.fleet.adoption import COMPARISON_INTERVAL_S, MappingComparison
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.model import CellAdapter
from fleetlight.manager.operations.jobs.maintenance import AT_ONCE
from fleetlight.manager.operations.jobs.metrics import WorkerMetrics
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

_log = structlog.get_logger(__name__)


class MappingUpkeep:
    """Compares the mappings of one cell with its rows, at the start and every `interval_s`.

    Of several workers of a cell only one compares. If the fleet database lacks the last comparison, it went back to an
    older copy, and the next comparison begins at once.
    """

    def __init__(
        self, adapter: CellAdapter, fleet: Fleet, metrics: WorkerMetrics, *, interval_s: float = COMPARISON_INTERVAL_S
    ) -> None:
        self._cell = adapter.cell
        self._fleet = fleet
        self._metrics = metrics
        self._interval_s = interval_s
        self._comparison = MappingComparison(adapter, fleet, repair=True, clock=fleet.clock)
        self._is_comparing = False
        self._recorded_at: int | None = None

    def step(self) -> int:
        """Compare a page if due; returns AT_ONCE while there are more pages (operations.jobs.maintenance).

        Raises CellUnreachableError. Does nothing while the fleet database is away, without which jobs go on.
        """
        try:
            return self._compare()
        except FleetUnreachableError as error:
            _log.debug("mappings.not_compared", cell=self._cell.name, reason=error.reason)
            return 0

    def _compare(self) -> int:
        if not self._is_comparing and not self._is_due():
            return 0
        self._is_comparing = True
        found = self._comparison.step()
        if found is None:
            return AT_ONCE
        self._is_comparing = False
        elsewhere = len(found.elsewhere)
        if found.repairable:
            _log.warning(
                "mappings.repaired",
                cell=self._cell.name,
                missing=len(found.missing),
                changed=len(found.changed),
                gone=len(found.gone),
            )
        if elsewhere:
            instance, other = min(found.elsewhere.items())
            _log.error("mappings.elsewhere", cell=self._cell.name, count=elsewhere, instance=instance, other_cell=other)
        self._metrics.mappings_compared(self._cell.uuid, repaired=found.repairable, elsewhere=elsewhere)
        self._recorded_at = self._fleet.clock()
        self._fleet.compared_mappings.record(
            self._cell.uuid, compared_at=self._recorded_at, repaired=found.repairable, elsewhere=elsewhere
        )
        return 0

    def _is_due(self) -> bool:
        known = self._fleet.compared_mappings.of(self._cell.uuid)
        if known is None or self._recorded_at is None or known.compared_at < self._recorded_at:
            return True
        # The last comparison may be another worker's.
        self._recorded_at = known.compared_at
        return self._fleet.clock() - known.compared_at >= self._interval_s * MICROSECONDS_PER_SECOND
