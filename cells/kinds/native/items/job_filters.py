"""The filters of jobs of a native cell as records."""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, select

from fleetlight.cells.job_numbers import job_number
from fleetlight.cells.kinds.native.items.json_columns import as_text, decoded, is_number
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import job_filters
from fleetlight.resources.fields import Record


def read_job_filters(
    connection: Connection, cell: Cell, _fields: Collection[str], _keys: Collection[Any] | None
) -> Sequence[Record]:
    """Every filter."""
    columns = job_filters.c
    texts = (columns.predicates, columns.action, columns.reason_trail)
    found = connection.execute(select(columns.uuid, columns.priority, columns.watermark, *map(as_text, texts)))
    return [
        {
            "uuid": row.uuid,
            "priority": row.priority,
            "watermark": job_number(cell, row.watermark)
            if is_number(row.watermark) and row.watermark
            else row.watermark,
            "predicates": decoded(row.predicates),
            "action": decoded(row.action),
            "reason_trail": decoded(row.reason_trail),
        }
        for row in found
    ]
