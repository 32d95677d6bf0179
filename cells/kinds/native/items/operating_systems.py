"""The operating systems of a native cell as records: what its hosts can install.

Simulated hosts can all install the same. Which are hidden or must not be installed, and the parameters that they come
with, is configured of the cell as a whole.
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
    """Every operating system, also one that is hidden; nodes are read only if `fields` has what they have of it.

    image_ref, beside the fields: the image of the compute API that it is.
    """
    cluster = read_parameters(connection)
    nodes = _nodes(connection) if "node_status" in fields else []
    columns = operating_systems.c
    lists = (columns.variants, columns.api_versions, columns.parameters)
    found = connection.execute(select(columns.name, columns.image_ref, columns.trusted, *map(as_text, lists)))
    return [_record(row._mapping, cluster, nodes) for row in found]


def _nodes(connection: Connection) -> Sequence[ComputeNode]:
    """Those that are asked what they have: that are online, and may run instances."""
    able = read_nodes(connection, compute_nodes.c.vm_capable)
    return [node for node in able if node.service.is_up]


def _record(row: Mapping[Any, Any], cluster: Parameters, nodes: Sequence[ComputeNode]) -> Record:
    name = row["name"]
    variants = sorted(decoded_list(row["variants"], str), key=nice_key)
    versions = sorted(decoded_list(row["api_versions"], int))
    parameters = sorted(decoded_list(row["parameters"], list), key=str)
    # A simulated host has the scripts of none, so there is no folder to name.
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
    """What is configured for the operating system and its variants, by `name` and `name+variant`."""
    return {system: value for system, value in by_system.items() if system.partition("+")[0] == name}
