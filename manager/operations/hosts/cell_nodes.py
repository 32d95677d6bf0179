"""The hosts of a native cell, and changes of them by operators.

A service is up unless an operator forced it down, since simulated hosts have no heartbeat.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sqlalchemy import Column, ColumnElement, Connection, Engine, Row, delete, func, insert, select, update

from fleetlight.cells.database.engines import cell_failures, writing
from fleetlight.cells.errors import HostInUseError, HostNotFoundError
from fleetlight.cells.kinds.native.allocated import ALLOCATED
from fleetlight.cells.kinds.native.nodes import (
    COMPUTE,
    ComputeNode,
    ComputeService,
    read_nodes,
    read_services,
    to_service,
)
from fleetlight.cells.kinds.native.outbox import append_event
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import allocations, compute_nodes, instances, node_groups, node_traits, services
from fleetlight.manager.operations.hosts.node_announcements import (
    announce_changed_nodes,
    announce_new_nodes,
    announce_removed_nodes,
)
from fleetlight.notifications.payloads.resources import ServiceStatusPayload
from fleetlight.resources.amount import Amount
from fleetlight.resources.clock import Clock, system_clock
from fleetlight.resources.fields import from_microseconds
from fleetlight.resources.instance import DEFAULT_ZONE
from fleetlight.resources.uuids import beginning_of

_HYPERVISOR_TYPE = "simulated"
_HYPERVISOR_VERSION = 1_000_000
_SERVICE_VERSION = 1


@dataclass(frozen=True, slots=True)
class NewHost:
    """A host that joins a cell. node: its hypervisor's name; by default that of the host."""

    host: str
    capacity: Amount
    availability_zone: str = DEFAULT_ZONE
    node: str | None = None
    host_ip: str = "127.0.0.1"


class CellNodes:
    """The hosts of one native cell. Every call raises CellUnreachableError when its database does not answer."""

    def __init__(self, engine: Engine, cell: Cell, clock: Clock = system_clock) -> None:
        self._engine = engine
        self._cell = cell
        self._clock = clock

    def services(self, *, host: str | None = None, binary: str | None = None) -> Sequence[ComputeService]:
        """Read all services, or those of a host or with a binary, ordered by host."""
        given = ((services.c.host, host), (services.c.binary, binary))
        wanted = [column == value for column, value in given if value is not None]
        return self._services(*wanted)

    def service(self, service_id: str | int) -> ComputeService | None:
        """Find the service with this uuid or number."""
        found = self._services(_has_id(services.c.uuid, service_id))
        return found[0] if found else None

    def nodes(self) -> Sequence[ComputeNode]:
        """Read all nodes with their usage, in the order in which they joined."""
        return self._nodes()

    def nodes_named_like(self, part: str) -> Sequence[ComputeNode]:
        """Find the nodes whose hypervisors have `part` in their names, ignoring case."""
        return self._nodes(func.lower(compute_nodes.c.hypervisor_hostname).contains(part.lower(), autoescape=True))

    def nodes_of(self, hosts: Collection[str]) -> Sequence[ComputeNode]:
        """Read the nodes of some hosts."""
        return self._nodes(services.c.host.in_(hosts))

    def node(self, node_id: str | int) -> ComputeNode | None:
        """Find the node with this uuid or number."""
        found = self._nodes(_has_id(compute_nodes.c.uuid, node_id))
        return found[0] if found else None

    def servers_on(self, hosts: Collection[str]) -> Mapping[str, Sequence[tuple[str, str]]]:
        """Read uuids and names of servers by host, without deleted ones, and without hosts that have none."""
        columns = (instances.c.host, instances.c.uuid, instances.c.display_name)
        statement = (
            select(*columns)
            .where(instances.c.host.in_(hosts), instances.c.deleted.is_(False), instances.c.forthcoming.is_not(True))
            .order_by(instances.c.uuid)
        )
        found: dict[str, list[tuple[str, str]]] = {}
        with cell_failures(self._cell.name), self._engine.connect() as connection:
            for row in connection.execute(statement):
                found.setdefault(row.host, []).append((row.uuid, row.display_name or ""))
        return found

    def used_by_projects(self, host: str) -> Mapping[str, Amount]:
        """Sum up the usage of a host by project."""
        project = func.coalesce(instances.c.project_id, "").label("project")
        statement = (
            select(project, *ALLOCATED)
            .join_from(allocations, compute_nodes, compute_nodes.c.id == allocations.c.node_id)
            .join(services, services.c.id == compute_nodes.c.service_id)
            .join(instances, instances.c.uuid == allocations.c.instance_uuid)
            .where(services.c.host == host)
            .group_by(project)
            .order_by(project)
        )
        with cell_failures(self._cell.name), self._engine.connect() as connection:
            return {project: Amount.of_gib(*sums) for project, *sums in connection.execute(statement)}

    def add_hosts(self, hosts: Sequence[NewHost]) -> None:
        """Add hosts with one node each, in the oldest group, and announce each as `hypervisor.create`.

        Existing hosts (by name) stay unchanged.
        """
        now, added = self._clock(), []
        with cell_failures(self._cell.name), writing(self._engine) as connection:
            known = set(connection.scalars(select(services.c.host)))
            group = connection.scalar(select(node_groups.c.uuid).order_by(node_groups.c.id).limit(1))
            for new in hosts:
                if new.host in known:
                    continue
                service_id = connection.execute(
                    insert(services)
                    .values(
                        uuid=str(uuid4()),
                        host=new.host,
                        binary=COMPUTE,
                        availability_zone=new.availability_zone,
                        disabled=False,
                        forced_down=False,
                        created_at=now,
                        updated_at=now,
                    )
                    .returning(services.c.id)
                ).scalar_one()
                node_id = connection.execute(
                    insert(compute_nodes)
                    .values(
                        uuid=str(uuid4()),
                        service_id=service_id,
                        hypervisor_hostname=new.node or new.host,
                        hypervisor_type=_HYPERVISOR_TYPE,
                        hypervisor_version=_HYPERVISOR_VERSION,
                        host_ip=new.host_ip,
                        vcpus=new.capacity.vcpus,
                        memory_mib=new.capacity.memory_mib,
                        disk_gib=new.capacity.disk_gib,
                        created_at=now,
                        group_uuid=group,
                    )
                    .returning(compute_nodes.c.id)
                ).scalar_one()
                added.append(node_id)
            announce_new_nodes(connection, added, now)

    def update_service(
        self,
        uuid: str,
        *,
        disabled: bool | None = None,
        disabled_reason: str | None = None,
        forced_down: bool | None = None,
    ) -> ComputeService:
        """Update a service, and announce it as `service.update` if that changes anything.

        disabled, forced_down: None keeps the value; the reason belongs to `disabled`.
        Raises HostNotFoundError for an unknown service.
        """
        now = self._clock()
        with cell_failures(self._cell.name), writing(self._engine) as connection:
            row = _locked_service(connection, uuid)
            values: dict[str, bool | str | None] = {}
            if disabled is not None:
                values |= {"disabled": disabled, "disabled_reason": disabled_reason}
            if forced_down is not None:
                values["forced_down"] = forced_down
            if all(row._mapping[name] == value for name, value in values.items()):
                return to_service(row)
            return change_service(connection, uuid, values, now)

    def set_zone(self, uuid: str, zone: str) -> None:
        """Move the host of a service into another zone, and announce `service.update` if that changes anything.

        Raises HostNotFoundError, and HostInUseError while instances use a node, since they are in the host's zone.
        """
        now = self._clock()
        with cell_failures(self._cell.name), writing(self._engine) as connection:
            row = _locked_service(connection, uuid)
            if row.availability_zone != zone:
                _require_unused(connection, row)
                change_service(connection, uuid, {"availability_zone": zone}, now)

    def remove_service(self, uuid: str) -> None:
        """Remove a service and its nodes, and announce each as `hypervisor.delete`.

        Raises HostNotFoundError, and HostInUseError while instances use a node.
        """
        with cell_failures(self._cell.name), writing(self._engine) as connection:
            row = _locked_service(connection, uuid)
            _require_unused(connection, row)
            announce_removed_nodes(connection, self._clock(), compute_nodes.c.service_id == row.id)
            nodes = select(compute_nodes.c.id).where(compute_nodes.c.service_id == row.id)
            connection.execute(delete(node_traits).where(node_traits.c.node_id.in_(nodes)))
            connection.execute(delete(compute_nodes).where(compute_nodes.c.service_id == row.id))
            connection.execute(delete(services).where(services.c.id == row.id))

    def _services(self, *conditions: ColumnElement[bool]) -> Sequence[ComputeService]:
        with cell_failures(self._cell.name), self._engine.connect() as connection:
            return read_services(connection, *conditions)

    def _nodes(self, *conditions: ColumnElement[bool]) -> Sequence[ComputeNode]:
        with cell_failures(self._cell.name), self._engine.connect() as connection:
            return read_nodes(connection, *conditions)


def _locked_service(connection: Connection, uuid: str) -> Row[Any]:
    row = connection.execute(select(services).where(services.c.uuid == uuid).with_for_update()).one_or_none()
    if row is None:
        raise HostNotFoundError(uuid)
    return row


def _require_unused(connection: Connection, service: Row[Any]) -> None:
    """Raise HostInUseError while instances use a node of `service`; until the transaction ends, none can claim one."""
    nodes = select(compute_nodes.c.id).where(compute_nodes.c.service_id == service.id)
    # Lock the rows like a claim.
    connection.execute(nodes.with_for_update()).all()
    used = select(allocations.c.node_id).where(allocations.c.node_id.in_(nodes)).limit(1)
    if connection.execute(used).one_or_none() is not None:
        raise HostInUseError(service.host)


def change_service(connection: Connection, uuid: str, values: Mapping[str, object], now: int) -> ComputeService:
    """Write values of a service in the caller's transaction.

    Announces it as `service.update`, and its nodes as `hypervisor.update`.
    """
    statement = update(services).where(services.c.uuid == uuid).values(**values, updated_at=now)
    service = to_service(connection.execute(statement.returning(services)).one())
    payload, publisher_id = _status_payload(service), f"{COMPUTE}:{service.host}"
    append_event(connection, "service.update", payload, publisher_id=publisher_id, at=now)
    announce_changed_nodes(connection, now, compute_nodes.c.service_id == service.id)
    return service


def _has_id(column: Column[str], wanted: str | int) -> ColumnElement[bool]:
    return column == wanted if isinstance(wanted, str) else column.startswith(beginning_of(wanted))


def _status_payload(service: ComputeService) -> ServiceStatusPayload:
    return ServiceStatusPayload(
        uuid=service.uuid,
        host=service.host,
        binary=service.binary,
        topic="compute",
        report_count=0,
        disabled=service.disabled,
        disabled_reason=service.disabled_reason,
        availability_zone=service.availability_zone,
        last_seen_up=from_microseconds(service.updated_at),
        forced_down=service.forced_down,
        version=_SERVICE_VERSION,
    )
