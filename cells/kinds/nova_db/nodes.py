"""The nodes of a cell of Nova: its compute nodes, each with the service of its host, and the instances on it.

What Nova has no word for, such as groups, candidates for a master, or parameters, a record lacks.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, and_, false, func, select

from cells.kinds.node_records import NodeSize, node_record
from cells.kinds.nova_db.databases import NovaDialect
from cells.kinds.nova_db.tables import as_text, compute_nodes, instances, services
from query.sort import nice_key
from resources.fields import Record

_COMPUTE = "nova-compute"
# Nova lists no instance that is only a copy of one on its way to another cell.
_IS_THERE = (
    instances.c.deleted == 0,
    instances.c.node.is_not(None),
    func.coalesce(instances.c.hidden, false()) == false(),
)


def read_nodes(connection: Connection, dialect: NovaDialect, fields: Collection[str]) -> Sequence[Record]:
    """Every node; the names of instances are read only if `fields` has them, and so are their numbers."""
    columns = compute_nodes.c
    of_host = and_(services.c.host == columns.host, services.c.binary == _COMPUTE, services.c.deleted == 0)
    statement: Select[Any] = select(
        columns.uuid,
        columns.hypervisor_hostname,
        as_text(columns.host_ip, dialect).label("host_ip"),
        *(columns[name] for name in ("created_at", "updated_at", "vcpus")),
        *(columns[name] for name in ("memory_mb", "memory_mb_used", "local_gb", "local_gb_used")),
        services.c.disabled,
        services.c.forced_down,
    ).select_from(compute_nodes.outerjoin(services, of_host))
    counts = _counts(connection) if "pinst_cnt" in fields else {}
    names = _names(connection) if "pinst_list" in fields else {}
    return [
        _record(row, counts.get(row.hypervisor_hostname, 0), names.get(row.hypervisor_hostname, ()))
        for row in connection.execute(statement.where(columns.deleted == 0))
    ]


def _record(row: Row[Any], count: int, names: Sequence[str]) -> Record:
    known = node_record(
        name=row.hypervisor_hostname,
        address=row.host_ip,
        is_offline=bool(row.forced_down),
        is_drained=bool(row.disabled),
        size=NodeSize(row.vcpus, row.memory_mb, row.memory_mb_used, row.local_gb, row.local_gb_used),
        instances=names,
        instance_count=count,
    )
    return {**known, "uuid": row.uuid, "ctime": row.created_at, "mtime": row.updated_at or row.created_at}


def _counts(connection: Connection) -> Mapping[str, int]:
    """How many instances are on each node, by its name."""
    statement = select(instances.c.node, func.count()).where(*_IS_THERE).group_by(instances.c.node)
    return {row[0]: row[1] for row in connection.execute(statement)}


def _names(connection: Connection) -> Mapping[str, Sequence[str]]:
    """The names of the instances on each node, by its name; without those that have none."""
    is_named = instances.c.display_name.is_not(None)
    found = defaultdict[str, list[str]](list)
    for node, name in connection.execute(
        select(instances.c.node, instances.c.display_name).where(*_IS_THERE, is_named)
    ):
        found[node].append(name)
    return {node: sorted(names, key=nice_key) for node, names in found.items()}
