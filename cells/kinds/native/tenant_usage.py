"""Which instances of a cell ran in a span of time, and how large they were."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, Row, and_, or_, select

from cells.database.engines import cell_failures
from cells.errors import CellUnreachableError
from cells.kinds.native.instance_rows import UNDECODABLE
from cells.model import Cell
from cells.tables import instances


@dataclass(frozen=True, slots=True)
class RanInstance:
    """Times in microseconds since the epoch; flavor: as the instance remembers it, empty when it has none."""

    uuid: str
    project_id: str
    display_name: str | None
    vm_state: str | None
    launched_at: int
    terminated_at: int | None
    flavor: dict[str, Any]

    @property
    def position(self) -> tuple[str, str]:
        """What a list of all cells is ordered by."""
        return self.project_id, self.uuid


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """The instances that ran between `start` and `stop`, of one project or of all, after a position."""

    start: int
    stop: int
    limit: int
    project_id: str | None = None
    after: tuple[str, str] | None = None


def instances_that_ran(engine: Engine, cell: Cell, query: UsageQuery) -> Sequence[RanInstance]:
    """At most `query.limit`, in the order of their positions. Raises CellUnreachableError, also for a damaged row."""
    columns = instances.c
    names = ("uuid", "project_id", "display_name", "vm_state", "launched_at", "terminated_at", "flavor")
    statement = (
        select(*(columns[name] for name in names))
        .where(columns.project_id.is_not(None), columns.launched_at < query.stop)
        .where(or_(columns.terminated_at.is_(None), columns.terminated_at > query.start))
        .order_by(columns.project_id, columns.uuid)
        .limit(query.limit)
    )
    if query.project_id is not None:
        statement = statement.where(columns.project_id == query.project_id)
    if query.after is not None:
        project_id, uuid = query.after
        behind = and_(columns.project_id == project_id, columns.uuid > uuid)
        statement = statement.where(or_(columns.project_id > project_id, behind))
    with cell_failures(cell.name), engine.connect() as connection:
        try:
            return [_ran(row) for row in connection.execute(statement)]
        except UNDECODABLE as error:
            raise CellUnreachableError(cell.name, f"one of its rows is damaged: {error}") from error


def _ran(row: Row[Any]) -> RanInstance:
    values = dict(row._mapping)
    return RanInstance(**values | {"flavor": values["flavor"] or {}})
