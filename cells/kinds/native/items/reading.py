"""The item types that a native cell has, each with the function that reads its records."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from fleetlight.cells.kinds.native.items.agents import AGENT, read_agent_records
from fleetlight.cells.kinds.native.items.cluster import read_cluster
from fleetlight.cells.kinds.native.items.groups import read_groups
from fleetlight.cells.kinds.native.items.job_filters import read_job_filters
from fleetlight.cells.kinds.native.items.jobs import read_jobs
from fleetlight.cells.kinds.native.items.locks import read_locks
from fleetlight.cells.kinds.native.items.networks import read_networks
from fleetlight.cells.kinds.native.items.nodes import read_node_records
from fleetlight.cells.kinds.native.items.operating_systems import read_operating_systems
from fleetlight.cells.kinds.native.items.stored_nodes import read_node_rows
from fleetlight.cells.model import Cell, ItemRow
from fleetlight.resources.fields import Record
from fleetlight.resources.query_fields.cluster_parameters import CLUSTER
from fleetlight.resources.query_fields.node import NODE

Read = Callable[[Connection, Cell, Collection[str], Collection[Any] | None], Sequence[Record]]
"""Reads the records of items of a cell; fields and keys as of fleetlight.cells.model.ItemsAdapter."""

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
"""By item type, what reads the items that an index has (fleetlight.resources.indexed_items)."""
