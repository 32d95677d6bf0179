"""The nodes of a cell of Nova: compute nodes, the services of their hosts, and their instances.

Records lack fields that Nova does not have, such as groups, master candidates, or parameters.
"""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, Select, and_, false, func, select

from fleetlight.cells.kinds.node_records import node_record
from fleetlight.cells.kinds.nova_capacity import NovaInventory, nova_node_capacity
from fleetlight.cells.kinds.nova_db.databases import NovaDialect
from fleetlight.cells.kinds.nova_db.tables import as_text, compute_nodes, instances, services
from fleetlight.cells.node_capacity import NodeCapacity
from fleetlight.query.sort import nice_key
from fleetlight.resources.fields import Record

_COMPUTE = "nova-compute"
# Nova's service_down_time, unless it is configured.
_DOWN_AFTER_US = 60_000_000
_OF_HOST = and_(services.c.host == compute_nodes.c.host, services.c.binary == _COMPUTE, services.c.deleted == 0)
# Nova does not list a copy of an instance that moves to another cell.
_IS_THERE = (
    instances.c.deleted == 0,
    instances.c.node.is_not(None),
    func.coalesce(instances.c.hidden, false()) == false(),
)


def read_nodes(connection: Connection, dialect: NovaDialect, fields: Collection[str]) -> Sequence[Record]:
    """Every node; names and numbers of instances are read only if `fields` has them."""
    columns = compute_nodes.c
    statement: Select[Any] = select(
        columns.uuid,
        columns.hypervisor_hostname,
        as_text(columns.host_ip, dialect).label("host_ip"),
        *(columns[name] for name in ("created_at", "updated_at", "vcpus")),
        *(columns[name] for name in ("memory_mb", "memory_mb_used", "local_gb", "local_gb_used")),
        services.c.disabled,
        services.c.forced_down,
    ).select_from(compute_nodes.outerjoin(services, _OF_HOST))
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
        inventories=(
            NovaInventory(row.vcpus),
            NovaInventory(row.memory_mb, row.memory_mb_used),
            NovaInventory(row.local_gb, row.local_gb_used),
        ),
        instances=names,
        instance_count=count,
    )
    return {**known, "uuid": row.uuid, "ctime": row.created_at, "mtime": row.updated_at or row.created_at}


def read_capacity(connection: Connection) -> Sequence[NodeCapacity]:
    """The capacity of every node."""
    columns = compute_nodes.c
    names = ("vcpus", "vcpus_used", "memory_mb", "memory_mb_used", "local_gb", "local_gb_used")
    statement: Select[Any] = select(
        columns.hypervisor_hostname,
        *(columns[name] for name in names),
        *(columns[f"{name}_allocation_ratio"] for name in ("cpu", "ram", "disk")),
        services.c.disabled,
        services.c.forced_down,
    ).select_from(compute_nodes.outerjoin(services, _OF_HOST))
    return [
        nova_node_capacity(
            row.hypervisor_hostname,
            (
                NovaInventory(row.vcpus, row.vcpus_used, row.cpu_allocation_ratio),
                NovaInventory(row.memory_mb, row.memory_mb_used, row.ram_allocation_ratio),
                NovaInventory(row.local_gb, row.local_gb_used, row.disk_allocation_ratio),
            ),
            is_available=not row.disabled and not row.forced_down,
        )
        for row in connection.execute(statement.where(columns.deleted == 0))
    ]


def _counts(connection: Connection) -> Mapping[str, int]:
    """The number of instances by name of the node."""
    statement = select(instances.c.node, func.count()).where(*_IS_THERE).group_by(instances.c.node)
    return {row[0]: row[1] for row in connection.execute(statement)}


def _names(connection: Connection) -> Mapping[str, Sequence[str]]:
    """The names of instances by name of the node; leaves out instances without a name."""
    is_named = instances.c.display_name.is_not(None)
    found = defaultdict[str, list[str]](list)
    for node, name in connection.execute(
        select(instances.c.node, instances.c.display_name).where(*_IS_THERE, is_named)
    ):
        found[node].append(name)
    return {node: sorted(names, key=nice_key) for node, names in found.items()}


def host_statuses(connection: Connection, now: int) -> Mapping[str, str]:
    """The status that servers show as `host_status`, by host. now: microseconds since the epoch."""
    of = services.c
    columns = (of.host, of.disabled, of.forced_down, of.last_seen_up, of.created_at)
    rows = connection.execute(select(*columns).where(of.deleted == 0, of.binary == _COMPUTE)).all()
    return {
        host: _host_status(
            is_disabled=bool(disabled), is_forced_down=bool(forced_down), heard_of_at=seen_at or created_at, now=now
        )
        for host, disabled, forced_down, seen_at, created_at in rows
    }


def _host_status(*, is_disabled: bool, is_forced_down: bool, heard_of_at: int | None, now: int) -> str:
    """The status of a host; UNKNOWN if its service has been silent for too long."""
    if is_forced_down:
        return "DOWN"
    if is_disabled:
        return "MAINTENANCE"
    is_fresh = heard_of_at is not None and abs(now - heard_of_at) <= _DOWN_AFTER_US
    return "UP" if is_fresh else "UNKNOWN"
