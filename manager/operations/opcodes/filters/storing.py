"""Changes of the job filters of a native cell; each change applies all filters to the jobs that have not begun."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sqlalchemy import Engine, delete, func, insert, select, update

from fleetlight.cells.database.engines import cell_failures, writing
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import job_filters, jobs
from fleetlight.manager.operations.opcodes.filters.applying import apply_filters
from fleetlight.resources.clock import Clock, system_clock


@dataclass(frozen=True, slots=True)
class NewFilter:
    """The values of a new filter; see fleetlight.resources.query_fields.configuration."""

    priority: int
    predicates: Sequence[Any]
    action: Any
    reason_trail: Sequence[Any]


class JobFilters:
    """The filters of a native cell. Calls raise CellUnreachableError if its database does not answer."""

    def __init__(self, engine: Engine, cell: Cell, clock: Clock = system_clock) -> None:
        self._engine = engine
        self._cell = cell
        self._clock = clock

    def add(self, new: NewFilter, uuid: str | None = None) -> str:
        """Add a filter, or replace the one with this uuid; returns the uuid. Raises CellUnreachableError."""
        with cell_failures(self._cell.name), writing(self._engine) as connection:
            values = {
                "priority": new.priority,
                "predicates": new.predicates,
                "action": new.action,
                "reason_trail": new.reason_trail,
                "watermark": connection.scalar(select(func.max(jobs.c.id))) or 0,
            }
            of = job_filters.c
            made = uuid or str(uuid4())
            if not connection.execute(update(job_filters).where(of.uuid == made).values(**values)).rowcount:
                connection.execute(insert(job_filters).values(uuid=made, **values))
            apply_filters(connection, self._cell, self._clock())
            return made

    def remove(self, uuid: str) -> bool:
        """Remove a filter; returns whether there was one. Raises CellUnreachableError."""
        with cell_failures(self._cell.name), writing(self._engine) as connection:
            found = connection.execute(delete(job_filters).where(job_filters.c.uuid == uuid)).rowcount > 0
            if found:
                apply_filters(connection, self._cell, self._clock())
            return found
