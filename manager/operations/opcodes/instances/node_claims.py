"""Claims of the nodes of an instance: a primary one, and a secondary one for mirrored disks.

The scheduler of the compute API (fleetlight.manager.operations.scheduling) makes the claims, for reservations, too, so
that each of them can be made real (contracts/ganeti-reservations, 5).
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, or_, select, update

from fleetlight.cells.errors import NoValidHostError
from fleetlight.cells.tables import allocations, compute_nodes, node_groups, services
from fleetlight.manager.operations.jobs.errors import PrerequisiteError, Reason
from fleetlight.manager.operations.opcodes.instance_parameters import MIRRORED
from fleetlight.manager.operations.opcodes.instances.configuration import Configuration
from fleetlight.manager.operations.scheduling.affinity import find_affinity_hosts
from fleetlight.manager.operations.scheduling.allocations import allocate, release
from fleetlight.manager.operations.scheduling.hosts import Host, HostQuery, read_locked_host
from fleetlight.manager.operations.scheduling.request_spec import RequestSpec
from fleetlight.manager.operations.scheduling.select_destinations import claim_host, claim_pair, wait_for_several_nodes
from fleetlight.resources.amount import Amount
from fleetlight.resources.query_fields.cluster_parameters import Parameters
from fleetlight.resources.units import MIB_PER_GIB

_MARK = update(allocations).where(allocations.c.instance_uuid == bindparam("of_instance"))


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node of the cell with its compute service."""

    id: int
    uuid: str
    name: str
    host: str
    zone: str
    group_uuid: str | None
    is_offline: bool
    is_drained: bool
    is_vm_capable: bool


@dataclass(frozen=True, slots=True)
class Places:
    """The nodes of an instance. secondary: for mirrored disks only."""

    primary: NodeRow
    secondary: NodeRow | None = None

    @property
    def names(self) -> list[str]:
        return [node.name for node in (self.primary, self.secondary) if node is not None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The requested nodes of an instance; None: the scheduler chooses. group: name or uuid of a node group.

    is_temporary: whether a lack of room is reported as temporary.
    """

    primary: str | None = None
    secondary: str | None = None
    group: str | None = None
    is_temporary: bool = False


def demand_of_instance(configuration: Configuration, cluster: Parameters) -> Amount:
    """Return the instance's demand on its primary node; the demand on the secondary one is its disk alone."""
    backend = configuration.filled_backend(cluster)
    return Amount.of_gib(backend["vcpus"], backend["maxmem"], -(-configuration.disk_mib // MIB_PER_GIB))


def node_called(connection: Connection, name: str) -> NodeRow:
    """Return the node with this name, first part of a name, or uuid. Raises PrerequisiteError if there is not one."""
    found = nodes_called(connection, name)
    if not found or (len(found) > 1 and found[0].name != name):
        raise PrerequisiteError(f"Node '{name}' not known", Reason.UNKNOWN)
    return found[0]


def nodes_called(connection: Connection, name: str) -> Sequence[NodeRow]:
    """Return at most two nodes that a name may mean, an exact match first."""
    columns = compute_nodes.c
    statement = (
        select(
            columns.id,
            columns.uuid,
            columns.hypervisor_hostname,
            services.c.host,
            services.c.availability_zone,
            columns.group_uuid,
            services.c.forced_down,
            services.c.disabled,
            columns.vm_capable,
        )
        .join_from(compute_nodes, services, services.c.id == columns.service_id)
        .where(
            or_(
                columns.hypervisor_hostname == name,
                columns.hypervisor_hostname.startswith(f"{name}.", autoescape=True),
                columns.uuid == name,
            )
        )
        .order_by(columns.hypervisor_hostname != name, columns.hypervisor_hostname)
        .limit(2)
    )
    return [NodeRow(*row) for row in connection.execute(statement)]


def usable_node(connection: Connection, name: str, *, is_primary: bool) -> NodeRow:
    """As `node_called`. Raises PrerequisiteError for a node that is offline, drained or not capable, too."""
    node = node_called(connection, name)
    what = f"{'primary' if is_primary else 'secondary'} node '{node.name}'"
    if node.is_offline:
        raise PrerequisiteError(f"Cannot use offline {what}", Reason.WRONG_STATE)
    if node.is_drained:
        raise PrerequisiteError(f"Cannot use drained {what}", Reason.WRONG_STATE)
    if not node.is_vm_capable:
        raise PrerequisiteError(f"Cannot use non-vm_capable {what}", Reason.WRONG_STATE)
    return node


def take_places(
    connection: Connection,
    instance_uuid: str,
    demand: Amount,
    wanted: Wanted,
    template: str,
    *,
    is_forthcoming: bool = False,
) -> Places:
    """Choose and claim the nodes of an instance. Raises PrerequisiteError, without claims, if there is no room."""
    primary = None if wanted.primary is None else usable_node(connection, wanted.primary, is_primary=True)
    secondary = None if wanted.secondary is None else usable_node(connection, wanted.secondary, is_primary=False)
    is_mirrored = template in MIRRORED
    if is_mirrored:
        _check_pair(primary, secondary)
    spec = RequestSpec(
        node=None if primary is None else primary.name,
        node_group=None if wanted.group is None else _group_called(connection, wanted.group),
    )
    try:
        if is_mirrored:
            names = () if secondary is None else (secondary.name,)
            first, second = claim_pair(
                connection, instance_uuid, demand, spec, secondary_nodes=names, is_forthcoming=is_forthcoming
            )
            return Places(_node_of(first), _node_of(second))
        return Places(_node_of(claim_host(connection, instance_uuid, demand, spec, is_forthcoming=is_forthcoming)))
    except NoValidHostError:
        raise no_room(demand, wanted) from None


def take_more(connection: Connection, instance_uuid: str, node: str, before: Amount, after: Amount) -> None:
    """Raise an instance's claim on its node from `before` to `after`. Raises PrerequisiteError if there is no room."""
    more = Amount.of_gib(
        max(after.vcpus - before.vcpus, 0),
        max(after.memory_mib - before.memory_mib, 0),
        max(after.disk_gib - before.disk_gib, 0),
    )
    spec = RequestSpec(node=node)
    query = HostQuery(more, spec, find_affinity_hosts(connection, spec, instance_uuid))
    node_id = node_called(connection, node).id
    if more != Amount() and read_locked_host(connection, query, node_id) is None:
        raise PrerequisiteError(f"Node '{node}' has no room for {_in_words(more)} more", Reason.NO_RESOURCES)
    allocate(connection, instance_uuid, node_id, after)


def change_places(
    connection: Connection,
    instance_uuid: str,
    primary: NodeRow,
    before: Configuration,
    after: Configuration,
    *,
    cluster: Parameters,
) -> Places:
    """Claim the changed demand of an instance on its nodes, and add or remove the node of mirrored disks.

    Raises PrerequisiteError if there is no room.
    """
    was, is_now = demand_of_instance(before, cluster), demand_of_instance(after, cluster)
    is_mirrored = after.template in MIRRORED
    if is_mirrored:
        wait_for_several_nodes(connection)
    take_more(connection, instance_uuid, primary.name, was, is_now)
    if not is_mirrored:
        if before.secondary is not None:
            release(connection, instance_uuid, before.secondary)
        return Places(primary)
    if before.secondary is None:
        return Places(primary, take_secondary(connection, instance_uuid, primary.name, None, is_now.disk_gib))
    of_disks = Amount.of_gib(0, 0, was.disk_gib), Amount.of_gib(0, 0, is_now.disk_gib)
    take_more(connection, instance_uuid, before.secondary, *of_disks)
    return Places(primary, node_called(connection, before.secondary))


def take_secondary(
    connection: Connection,
    instance_uuid: str,
    primary: str,
    name: str | None,
    disk_gib: int,
    *,
    without: str | None = None,
) -> NodeRow:
    """Claim the disk on a secondary node of the same group. name: of the node; None: the scheduler chooses.

    without: name of a node to exclude. Raises PrerequisiteError if there is no room.
    """
    node = node_called(connection, primary)
    wanted = None if name is None else usable_node(connection, name, is_primary=False)
    _check_pair(node, wanted)
    demand = Amount.of_gib(0, 0, disk_gib)
    spec = RequestSpec(
        node=None if wanted is None else wanted.name,
        node_group=node.group_uuid,
        without=(node.host, *(() if without is None else (node_called(connection, without).host,))),
    )
    try:
        return _node_of(claim_host(connection, instance_uuid, demand, spec))
    except NoValidHostError:
        raise no_room(demand, Wanted(secondary=name)) from None


def mark_forthcoming(connection: Connection, instance_uuid: str, *, is_forthcoming: bool) -> None:
    """Mark the claims of an instance as those of a reservation, or of a real instance."""
    connection.execute(_MARK, {"of_instance": instance_uuid, "is_forthcoming": is_forthcoming})


def no_room(demand: Amount, wanted: Wanted) -> PrerequisiteError:
    """Return the error that names the demand and the nodes without room."""
    names = [name for name in (wanted.primary, wanted.secondary) if name is not None]
    where = f"on {' and '.join(names)}" if names else "on any node"
    if wanted.group is not None:
        where += f" of group '{wanted.group}'"
    reason = Reason.NO_RESOURCES_NOW if wanted.is_temporary else Reason.NO_RESOURCES
    return PrerequisiteError(f"There is no room {where} for {_in_words(demand)}", reason)


def _in_words(amount: Amount) -> str:
    return f"{amount.vcpus} processors, {amount.memory_mib} MiB of memory and {amount.disk_gib} GiB of disk"


def _check_pair(primary: NodeRow | None, secondary: NodeRow | None) -> None:
    if primary is None or secondary is None:
        return
    if primary.id == secondary.id:
        raise PrerequisiteError("The secondary node cannot be the primary node", Reason.WRONG_INPUT)
    if primary.group_uuid != secondary.group_uuid:
        text = f"The primary and secondary nodes are in different groups: '{primary.name}' and '{secondary.name}'"
        raise PrerequisiteError(text, Reason.WRONG_INPUT)


def _group_called(connection: Connection, name: str) -> str:
    columns = node_groups.c
    found: str | None = connection.scalar(select(columns.uuid).where(or_(columns.name == name, columns.uuid == name)))
    if found is None:
        raise PrerequisiteError(f"Group '{name}' not known", Reason.UNKNOWN)
    return found


def _node_of(host: Host) -> NodeRow:
    """Return the node of a claimed host, which is online, not drained and capable, as the scheduler requires."""
    return NodeRow(
        host.node_id,
        host.node_uuid,
        host.nodename,
        host.service_host,
        host.availability_zone,
        host.group_uuid,
        is_offline=False,
        is_drained=False,
        is_vm_capable=True,
    )
