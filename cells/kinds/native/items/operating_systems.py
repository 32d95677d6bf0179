"""The operating systems that the hosts of a native cell can install, as records.

All simulated hosts can install the same. The cell configures which are hidden or blacklisted, and their parameters.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select

from fleetlight.cells.kinds.native.items.cluster import read_parameters
from fleetlight.cells.kinds.native.items.json_columns import as_text, decoded_list
from fleetlight.cells.kinds.native.nodes import ComputeNode, read_nodes
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import compute_nodes, operating_systems
from fleetlight.query.sort import nice_key
from fleetlight.resources.fields import Record
from fleetlight.resources.query_fields.cluster_parameters import Parameters


def read_operating_systems(
    connection: Connection, _cell: Cell, fields: Collection[str], _keys: Collection[Any] | None
) -> Sequence[Record]:
    """Every operating system, including hidden ones; nodes are read only if `fields` needs them.

    Records also have `image_ref`: the corresponding image of the compute API.
    """
    cluster = read_parameters(connection)
    nodes = _nodes(connection) if "node_status" in fields else []
    columns = operating_systems.c
    lists = (columns.variants, columns.api_versions, columns.parameters)
    found = connection.execute(select(columns.name, columns.image_ref, columns.trusted, *map(as_text, lists)))
    return [_record(row._mapping, cluster, nodes) for row in found]


def _nodes(connection: Connection) -> Sequence[ComputeNode]:
    """The nodes that are online, and may run instances."""
    able = read_nodes(connection, compute_nodes.c.vm_capable)
    return [node for node in able if node.service.is_up]


def _record(row: Mapping[Any, Any], cluster: Parameters, nodes: Sequence[ComputeNode]) -> Record:
    name = row["name"]
    variants = sorted(decoded_list(row["variants"], str), key=nice_key)
    versions = sorted(decoded_list(row["api_versions"], int))
    parameters = sorted(decoded_list(row["parameters"], list), key=str)
    # A simulated host has no scripts, so the folder is empty.
    status = ["", True, "", variants, parameters, versions, row["trusted"]]
    return {
        "name": name,
        "valid": True,
        "hidden": name in cluster["hidden_os"],
        "blacklisted": name in cluster["blacklisted_os"],
        "trusted": row["trusted"],
        "variants": variants,
        "api_versions": versions,
        "parameters": parameters,
        "node_status": {node.uuid: [status] for node in nodes},
        "os_hvp": _of_system(name, cluster["os_hvp"]),
        "osparams": _of_system(name, cluster["osparams"]),
        "image_ref": row["image_ref"],
    }


def _of_system(name: str, by_system: Parameters) -> Parameters:
    """The configuration of an operating system and its variants, by `name` and `name+variant`."""
    return {system: value for system, value in by_system.items() if system.partition("+")[0] == name}
