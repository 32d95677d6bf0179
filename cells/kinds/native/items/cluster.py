"""A native cell as a Ganeti cluster: one record with its configuration."""

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import Connection, select

from fleetlight.cells.kinds.native.items.json_columns import as_text, decoded_or
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import cluster_parameters
from fleetlight.resources.fields import Record
from fleetlight.resources.query_fields.cluster_parameters import Parameters, filled_cluster

_PARAMETERS = select(as_text(cluster_parameters.c.parameters))


def read_cluster(
    connection: Connection, _cell: Cell, _fields: Collection[str], _keys: Collection[Any] | None
) -> Sequence[Record]:
    """The one record: parameters with defaults filled in, tags, serial number and times."""
    columns = cluster_parameters.c
    row = connection.execute(
        select(
            columns.serial_no,
            columns.created_at,
            columns.updated_at,
            as_text(columns.parameters),
            as_text(columns.tags),
        )
    ).one()
    return [
        {
            **filled_cluster(decoded_or(row.parameters, {})),
            "tags": decoded_or(row.tags, []),
            "serial_no": row.serial_no,
            "ctime": row.created_at,
            "mtime": row.updated_at,
        }
    ]


def read_parameters(connection: Connection) -> Parameters:
    """The parameters of the cell, with defaults filled in (fleetlight.resources.query_fields)."""
    return filled_cluster(decoded_or(connection.scalar(_PARAMETERS), {}))
