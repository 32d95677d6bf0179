"""The item types that a native cell tells of, each with what reads its records."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from cells.kinds.native.items.groups import read_groups
from cells.kinds.native.items.jobs import read_jobs
from cells.kinds.native.items.locks import read_locks
from cells.kinds.native.items.nodes import read_node_records
from cells.model import Cell
from resources.fields import Record

Read = Callable[[Connection, Cell, Collection[str], Collection[Any] | None], Sequence[Record]]
"""Reads the records of items of a cell; fields and keys as of cells.model.ItemsAdapter."""

READERS: Mapping[str, Read] = {
    "node": read_node_records,
    "group": read_groups,
    "job": read_jobs,
    "lock": read_locks,
}
"""By item type; a native cell has no items of the others."""
