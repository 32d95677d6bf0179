"""The item types of a native cell, each with the function that reads its records."""

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from sqlalchemy import Column, Connection, Row, select

from fleetlight.cells.job_numbers import job_number
from fleetlight.cells.kinds.native.items.agents import AGENT, read_agent_records
from fleetlight.cells.kinds.native.items.cluster import read_cluster
from fleetlight.cells.kinds.native.items.groups import read_groups
from fleetlight.cells.kinds.native.items.jobs import read_jobs
from fleetlight.cells.kinds.native.items.json_columns import as_text, decoded, is_number
from fleetlight.cells.kinds.native.items.networks import read_networks
from fleetlight.cells.kinds.native.items.nodes import read_node_records
from fleetlight.cells.kinds.native.items.operating_systems import read_operating_systems
from fleetlight.cells.kinds.native.items.stored_nodes import read_node_rows
from fleetlight.cells.model import Cell, ItemRow
from fleetlight.cells.tables import job_filters, job_locks
from fleetlight.resources.fields import Record
from fleetlight.resources.query_fields.cluster_parameters import CLUSTER
from fleetlight.resources.query_fields.node import NODE

_ORDER = ("level", "name", "priority", "job_id")


def read_locks(
    connection: Connection, cell: Cell, _fields: Collection[str], _keys: Collection[Any] | None
) -> Sequence[Record]:
    """Every lock that a job holds or waits for, with the jobs in order."""
    order: list[Column[Any]] = [job_locks.c[name] for name in _ORDER]
    rows = connection.execute(select(job_locks).order_by(*order))
    return [
        _record(cell, f"{level}/{name}", list(wants))
        for (level, name), wants in groupby(rows, attrgetter("level", "name"))
    ]


def _record(cell: Cell, name: str, wants: Sequence[Row[Any]]) -> Record:
    held = [row for row in wants if row.held_at is not None]
    return {
        "name": name,
        "mode": _mode(held[0]) if held else None,
        "owner": [_owner(cell, row) for row in held] or None,
        "pending": [[_mode(row), [_owner(cell, row)]] for row in wants if row.held_at is None],
    }


def _mode(row: Row[Any]) -> str:
    return "shared" if row.is_shared else "exclusive"


def _owner(cell: Cell, row: Row[Any]) -> str:
    return f"job {job_number(cell, row.job_id)}"


def read_job_filters(
    connection: Connection, cell: Cell, _fields: Collection[str], _keys: Collection[Any] | None
) -> Sequence[Record]:
    """Every filter of jobs."""
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


Read = Callable[[Connection, Cell, Collection[str], Collection[Any] | None], Sequence[Record]]
"""Reads the records of items of a cell; fields and keys as for fleetlight.cells.model.ItemsAdapter."""

READERS: Mapping[str, Read] = {
    "node": read_node_records,
    "group": read_groups,
    "network": read_networks,
    "os": read_operating_systems,
    "job": read_jobs,
    "lock": read_locks,
    "filter": read_job_filters,
    CLUSTER: read_cluster,
    AGENT: read_agent_records,
}
"""By item type; a native cell has no exports."""

ROW_READERS: Mapping[str, Callable[[Connection], Sequence[ItemRow]]] = {NODE.name: read_node_rows}
"""The readers of indexed items (fleetlight.resources.indexed_items), by item type."""
