"""The hosts of a native cell: compute services, their nodes, and how much of them is taken up.

fleetlight.operations.hosts changes them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    func,
    select,
)

from fleetlight.cells.tables import SIZES, allocations, compute_nodes, services

COMPUTE = "nova-compute"
"""The binary of a compute service, as clients know it."""
# What lists of hosts show. What is configured of them beside that is read for lists of nodes alone.
_OF_NODES = (
    "id",
    "uuid",
    "hypervisor_hostname",
    "hypervisor_type",
    "hypervisor_version",
    "host_ip",
    *SIZES,
    "created_at",
)


@dataclass(frozen=True, slots=True)
class Capacity:
    """An amount of what a node has and an instance takes up; memory in MiB, disk in GiB."""

    vcpus: int
    memory_mib: int
    disk_gib: int

    def fits_into(self, free: "Capacity") -> bool:
        return self.vcpus <= free.vcpus and self.memory_mib <= free.memory_mib and self.disk_gib <= free.disk_gib

    def minus(self, other: "Capacity") -> "Capacity":
        return Capacity(self.vcpus - other.vcpus, self.memory_mib - other.memory_mib, self.disk_gib - other.disk_gib)


@dataclass(frozen=True, slots=True)
class ComputeService:
    """A compute service; times in microseconds since the epoch."""

    id: int
    uuid: str
    host: str
    binary: str
    availability_zone: str
    disabled: bool
    disabled_reason: str | None
    forced_down: bool
    updated_at: int

    @property
    def is_up(self) -> bool:
        return not self.forced_down


@dataclass(frozen=True, slots=True)
class ComputeNode:
    """A node with its service.

    capacity: all that it has. used: what instances take up of it, also while they move away or are resized.
    instance_count: instances that do so. created_at: when it joined, in microseconds since the epoch.
    """

    id: int
    uuid: str
    hypervisor_hostname: str
    hypervisor_type: str
    hypervisor_version: int
    host_ip: str
    capacity: Capacity
    used: Capacity
    instance_count: int
    created_at: int
    service: ComputeService

    @property
    def free(self) -> Capacity:
        return self.capacity.minus(self.used)

    @property
    def is_available(self) -> bool:
        """Whether new instances may go there."""
        return self.service.is_up and not self.service.disabled


def read_nodes(connection: Connection, *conditions: ColumnElement[bool]) -> Sequence[ComputeNode]:
    """Every node of the cell that fulfils the conditions (on `compute_nodes` and `services`), with one statement."""
    statement = _select_nodes(conditions).order_by(compute_nodes.c.id)
    return [_node(row) for row in connection.execute(statement)]


def _select_nodes(conditions: Sequence[ColumnElement[bool]]) -> Select[tuple[object, ...]]:
    """Nodes with their services and what is used of them; null: nothing."""
    of_services = services.c.id == compute_nodes.c.service_id
    # Only what is asked for is summed up; databases do not find that out by themselves.
    wanted = (
        [
            allocations.c.node_id.in_(
                select(compute_nodes.c.id).join_from(compute_nodes, services, of_services).where(*conditions)
            )
        ]
        if conditions
        else []
    )
    used = (
        select(
            allocations.c.node_id,
            func.count().label("instance_count"),
            func.sum(allocations.c.vcpus).label("used_vcpus"),
            func.sum(allocations.c.memory_mib).label("used_memory_mib"),
            func.sum(allocations.c.disk_gib).label("used_disk_gib"),
        )
        .where(*wanted)
        .group_by(allocations.c.node_id)
        .subquery()
    )
    service_columns = [column.label(f"of_service_{column.name}") for column in services.c]
    return (
        select(*(compute_nodes.c[name] for name in _OF_NODES), *service_columns, used)
        .join_from(compute_nodes, services, of_services)
        .where(*conditions)
        .outerjoin(used, used.c.node_id == compute_nodes.c.id)
    )


def _node(row: Row[tuple[object, ...]]) -> ComputeNode:
    values = row._mapping
    return ComputeNode(
        id=values[compute_nodes.c.id],
        uuid=values[compute_nodes.c.uuid],
        hypervisor_hostname=values["hypervisor_hostname"],
        hypervisor_type=values["hypervisor_type"],
        hypervisor_version=values["hypervisor_version"],
        host_ip=values["host_ip"],
        capacity=Capacity(values["vcpus"], values["memory_mib"], values["disk_gib"]),
        used=Capacity(*(int(values[name] or 0) for name in ("used_vcpus", "used_memory_mib", "used_disk_gib"))),
        instance_count=values["instance_count"] or 0,
        created_at=values[compute_nodes.c.created_at],
        service=ComputeService(**{name: values[f"of_service_{name}"] for name in ComputeService.__dataclass_fields__}),
    )


def to_service(row: Row[tuple[object, ...]]) -> ComputeService:
    return ComputeService(**{name: row._mapping[name] for name in ComputeService.__dataclass_fields__})
