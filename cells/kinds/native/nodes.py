"""The hosts of a native cell: compute services, their nodes, and the use of these.

fleetlight.manager.operations.hosts changes them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Row, Select, select

from fleetlight.cells.kinds.native.allocated import allocated_by_node
from fleetlight.cells.tables import SIZES, allocations, compute_nodes, services
from fleetlight.resources.amount import Amount

COMPUTE = "nova-compute"
"""The binary of a compute service in the compute API."""
# Columns for lists of hosts. Only lists of nodes read the configuration of nodes as well.
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

    used: by instances, also by those that move away or are resized. instance_count: the number of these instances, of
    which reservation_count are reservations.
    created_at: when it joined, in microseconds since the epoch.
    """

    id: int
    uuid: str
    hypervisor_hostname: str
    hypervisor_type: str
    hypervisor_version: int
    host_ip: str
    capacity: Amount
    used: Amount
    instance_count: int
    reservation_count: int
    created_at: int
    service: ComputeService

    @property
    def free(self) -> Amount:
        return self.capacity - self.used

    @property
    def is_available(self) -> bool:
        """Whether new instances may go there."""
        return self.service.is_up and not self.service.disabled


def read_nodes(connection: Connection, *conditions: ColumnElement[bool]) -> Sequence[ComputeNode]:
    """The nodes that fulfil the conditions on `compute_nodes` and `services`, by one statement."""
    statement = _select_nodes(conditions).order_by(compute_nodes.c.id)
    return [_node(row) for row in connection.execute(statement)]


def read_services(connection: Connection, *conditions: ColumnElement[bool]) -> Sequence[ComputeService]:
    """The services that fulfil the conditions, ordered by host."""
    statement = select(services).where(*conditions).order_by(services.c.host, services.c.id)
    return [to_service(row) for row in connection.execute(statement)]


def _select_nodes(conditions: Sequence[ColumnElement[bool]]) -> Select[tuple[object, ...]]:
    """Selects nodes with their services and sums of allocations, which are null for a node without any."""
    of_services = services.c.id == compute_nodes.c.service_id
    wanted = (
        [
            allocations.c.node_id.in_(
                select(compute_nodes.c.id).join_from(compute_nodes, services, of_services).where(*conditions)
            )
        ]
        if conditions
        else []
    )
    used = allocated_by_node(*wanted).subquery()
    used_columns = (
        used.c.instance_count,
        used.c.reservation_count,
        *(used.c[size].label(f"used_{size}") for size in SIZES),
    )
    service_columns = [column.label(f"of_service_{column.name}") for column in services.c]
    return (
        select(*(compute_nodes.c[name] for name in _OF_NODES), *service_columns, *used_columns)
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
        capacity=Amount.of_gib(values["vcpus"], values["memory_mib"], values["disk_gib"]),
        used=Amount.of_gib(*(values[f"used_{size}"] or 0 for size in SIZES)),
        instance_count=values["instance_count"] or 0,
        reservation_count=values["reservation_count"] or 0,
        created_at=values[compute_nodes.c.created_at],
        service=ComputeService(**{name: values[f"of_service_{name}"] for name in ComputeService.__dataclass_fields__}),
    )


def to_service(row: Row[tuple[object, ...]]) -> ComputeService:
    return ComputeService(**{name: row._mapping[name] for name in ComputeService.__dataclass_fields__})
