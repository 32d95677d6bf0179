"""The item types that a native cell tells of, each with what reads its records."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from cells.kinds.native.items.agents import AGENT, read_agent_records
from cells.kinds.native.items.cluster import read_cluster
from cells.kinds.native.items.groups import read_groups
from cells.kinds.native.items.job_filters import read_job_filters
from cells.kinds.native.items.jobs import read_jobs
from cells.kinds.native.items.locks import read_locks
from cells.kinds.native.items.networks import read_networks
from cells.kinds.native.items.nodes import read_node_records
from cells.kinds.native.items.operating_systems import read_operating_systems
from cells.kinds.native.stored_nodes import read_node_rows
from cells.model import Cell, ItemRow
from resources.cluster_parameters import CLUSTER
from resources.fields import Record
from resources.query_fields.node import NODE

Read = Callable[[Connection, Cell, Collection[str], Collection[Any] | None], Sequence[Record]]
"""Reads the records of items of a cell; fields and keys as of cells.model.ItemsAdapter."""

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
"""By item type, what reads the items that an index has (resources.indexed_items)."""
