"""Final deletion of soft-deleted instances after some time (contracts/nova-rest, 2.2)."""

from uuid import uuid4

import structlog
from sqlalchemy import Engine, select

from fleetlight.cells.database.engines import cell_failures
from fleetlight.cells.errors import InstanceNotFoundError, StateConflictError
from fleetlight.cells.model import Cell, RequestContext
from fleetlight.cells.tables import instances
from fleetlight.manager.operations.actions.accepting import Acceptance, Order
from fleetlight.manager.operations.jobs.failures import ends_alone
from fleetlight.manager.operations.jobs.maintenance import AT_ONCE
from fleetlight.resources.clock import Clock, system_clock
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

_log = structlog.get_logger(__name__)


class Reclaimer:
    """Deletes soft-deleted instances for good. interval_s: `fleet.reclaim_instance_interval_s`."""

    def __init__(
        self, acceptance: Acceptance, engine: Engine, cell: Cell, interval_s: float, clock: Clock = system_clock
    ) -> None:
        self._acceptance = acceptance
        self._engine = engine
        self._cell = cell
        self._interval_s = interval_s
        self._clock = clock

    def reclaim(self) -> int:
        """Order the deletion of due instances, at most AT_ONCE; returns their number.

        Raises CellUnreachableError.
        """
        due = self._due()
        for uuid in due:
            try:
                # As administrator, so that locks do not count: the owner has deleted the instance.
                self._acceptance.accept(uuid, Order("delete", request=RequestContext(f"req-{uuid4()}"), is_admin=True))
            except (InstanceNotFoundError, StateConflictError) as error:
                _log.info("reclaim.not_now", cell=self._cell.name, instance=uuid, reason=str(error))
            except Exception as error:
                if not ends_alone(error):
                    raise
                _log.error(
                    "reclaim.failed", cell=self._cell.name, instance=uuid, reason=f"{type(error).__name__}: {error}"
                )
        return len(due)

    def _due(self) -> list[str]:
        columns = instances.c
        last = self._clock() - round(self._interval_s * MICROSECONDS_PER_SECOND)
        statement = (
            select(columns.uuid)
            .where(columns.vm_state == "soft-delete", columns.deleted.is_(False), columns.task_state.is_(None))
            .where(columns.deleted_at <= last)
            .order_by(columns.deleted_at)
            .limit(AT_ONCE)
        )
        with cell_failures(self._cell.name), self._engine.connect() as connection:
            return list(connection.execute(statement).scalars())
