"""The node groups of a native cell as records."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import Any

from sqlalchemy import Connection, select

from fleetlight.cells.kinds.native.items.cluster import read_parameters
from fleetlight.cells.kinds.native.items.json_columns import as_text, decoded_or
from fleetlight.cells.kinds.native.items.nodes import instance_counts, instance_names
from fleetlight.cells.kinds.native.items.stored_nodes import node_parameters
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import compute_nodes, node_groups
from fleetlight.query.sort import nice_key
from fleetlight.resources.fields import Record
from fleetlight.resources.query_fields.cluster_parameters import Parameters, filled
from fleetlight.resources.query_fields.parameters import node_parameter_values


def read_groups(
    connection: Connection, _cell: Cell, fields: Collection[str], _keys: Collection[Any] | None
) -> Sequence[Record]:
    """Every group; the names of instances are read only if `fields` has them."""
    columns = node_groups.c
    policies = (columns.ipolicy, columns.ndparams, columns.diskparams, columns.tags)
    plain = (
        columns.uuid,
        columns.name,
        columns.alloc_policy,
        columns.serial_no,
        columns.created_at,
        columns.updated_at,
    )
    cluster = read_parameters(connection)
    nodes = _nodes(connection)
    counts = instance_counts(connection) if "pinst_cnt" in fields else {}
    names = instance_names(connection) if "pinst_list" in fields else {}
    found = connection.execute(select(*plain, *(as_text(column) for column in policies)))
    return [_record(row._mapping, cluster, nodes.get(row.uuid, []), counts, names) for row in found]


def _nodes(connection: Connection) -> Mapping[str, Sequence[str]]:
    """The names of the nodes of each group, by its uuid."""
    found = defaultdict[str, list[str]](list)
    for group, name in connection.execute(select(compute_nodes.c.group_uuid, compute_nodes.c.hypervisor_hostname)):
        found[group].append(name)
    return {group: sorted(names, key=nice_key) for group, names in found.items()}


def _record(
    row: Mapping[Any, Any],
    cluster: Parameters,
    nodes: Sequence[str],
    counts: Mapping[str, int],
    names: Mapping[str, Sequence[str]],
) -> Record:
    own = decoded_or(row["ndparams"], {})
    of_nodes = node_parameters(cluster, own, {})
    policy, of_disks = decoded_or(row["ipolicy"], {}), decoded_or(row["diskparams"], {})
    return {
        "name": row["name"],
        "uuid": row["uuid"],
        "serial_no": row["serial_no"],
        "tags": decoded_or(row["tags"], []),
        "ctime": row["created_at"],
        "mtime": row["updated_at"],
        "alloc_policy": row["alloc_policy"],
        "node_cnt": len(nodes),
        "node_list": nodes,
        "pinst_cnt": sum(counts.get(node, 0) for node in nodes),
        "pinst_list": sorted(chain.from_iterable(names.get(node, ()) for node in nodes), key=nice_key),
        "ipolicy": filled(cluster["ipolicy"], policy),
        "custom_ipolicy": policy,
        "diskparams": filled(cluster["diskparams"], of_disks, 2),
        "custom_diskparams": of_disks,
        "ndparams": of_nodes,
        "custom_ndparams": own,
        **node_parameter_values(of_nodes),
    }
