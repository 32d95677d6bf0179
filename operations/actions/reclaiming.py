"""Deleting for good what was deleted some time ago and can still be restored (contracts/nova-rest, 2.2)."""

import time
from uuid import uuid4

import structlog
from sqlalchemy import Engine, select

from cells.database.engines import cell_failures
from cells.errors import InstanceNotFoundError, StateConflictError
from cells.model import Cell, Request
from cells.tables import instances
from operations.actions.accepting import Acceptance, Order
from operations.jobs.failures import ends_alone
from resources.clock import Clock, system_clock

_log = structlog.get_logger(__name__)
_LOOK_AGAIN_AFTER_S = 60.0
_AT_ONCE = 100


class Reclaimer:
    """interval_s: how long a deleted instance can be restored (`fleet.reclaim_instance_interval_s`)."""

    def __init__(
        self, acceptance: Acceptance, engine: Engine, cell: Cell, interval_s: float, clock: Clock = system_clock
    ) -> None:
        self._acceptance = acceptance
        self._engine = engine
        self._cell = cell
        self._interval_s = interval_s
        self._clock = clock
        self._look_at = 0.0

    def reclaim_if_due(self) -> None:
        """Look about once a minute, oftener where instances are kept for less. Raises CellUnreachableError."""
        now = time.monotonic()
        if now >= self._look_at:
            is_all = self.reclaim() < _AT_ONCE
            self._look_at = now + (min(self._interval_s, _LOOK_AGAIN_AFTER_S) if is_all else 0)

    def reclaim(self) -> int:
        """Order the deletion of the instances whose time is over, at most some; returns how many there were.

        Raises CellUnreachableError.
        """
        due = self._due()
        for uuid in due:
            try:
                # Locks do not count: the owner has deleted it.
                self._acceptance.accept(uuid, Order("delete", request=Request(f"req-{uuid4()}"), is_admin=True))
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
        last = self._clock() - round(self._interval_s * 1_000_000)
        statement = (
            select(columns.uuid)
            .where(columns.vm_state == "soft-delete", columns.deleted.is_(False), columns.task_state.is_(None))
            .where(columns.deleted_at <= last)
            .order_by(columns.deleted_at)
            .limit(_AT_ONCE)
        )
        with cell_failures(self._cell.name), self._engine.connect() as connection:
            return list(connection.execute(statement).scalars())
