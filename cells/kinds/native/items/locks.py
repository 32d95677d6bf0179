"""The locks of a native cell as records: those that a job holds or waits for, since a lock that is free is no row."""

from collections.abc import Collection, Sequence
from itertools import groupby
from typing import Any

from sqlalchemy import Column, Connection, Row, select

from fleetlight.cells.job_numbers import job_number
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import job_locks
from fleetlight.resources.fields import Record

_ORDER = ("level", "name", "priority", "job_id")


def read_locks(
    connection: Connection, cell: Cell, _fields: Collection[str], _keys: Collection[Any] | None
) -> Sequence[Record]:
    """Every lock that a job holds or waits for, with these jobs in their order."""
    order: list[Column[Any]] = [job_locks.c[name] for name in _ORDER]
    rows = connection.execute(select(job_locks).order_by(*order))
    return [_record(cell, f"{level}/{name}", list(wants)) for (level, name), wants in groupby(rows, _name)]


def _name(row: Row[Any]) -> tuple[str, str]:
    return row.level, row.name


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
