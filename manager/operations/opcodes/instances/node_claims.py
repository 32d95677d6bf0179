"""Claims of the nodes of an instance: a primary one, and a secondary one for mirrored disks.

What is taken up of them is claimed by the one scheduler (fleetlight.manager.operations.scheduling), reservations
included, so that each of them can be made real (contracts/ganeti-reservations, 5).
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
    """A node of the cell, with its service."""

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
    """secondary: of mirrored disks."""

    primary: NodeRow
    secondary: NodeRow | None = None

    @property
    def names(self) -> list[str]:
        return [node.name for node in (self.primary, self.secondary) if node is not None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which nodes an instance is to have; None: which one, the scheduler chooses. group: the name of a group of nodes.

    is_temporary: whether a lack of room is reported as one that may pass.
    """

    primary: str | None = None
    secondary: str | None = None
    group: str | None = None
    is_temporary: bool = False


def demand_of_instance(configuration: Configuration, cluster: Parameters) -> Amount:
    """What the instance takes up of its primary node; of the secondary one it is the disk alone."""
    backend = configuration.filled_backend(cluster)
    return Amount.of_gib(backend["vcpus"], backend["maxmem"], -(-configuration.disk_mib // MIB_PER_GIB))


def node_called(connection: Connection, name: str) -> NodeRow:
    """The node with this name, what begins it up to a dot, or its uuid. Raises PrerequisiteError."""
    found = nodes_called(connection, name)
    if not found or (len(found) > 1 and found[0].name != name):
        raise PrerequisiteError(f"Node '{name}' not known", Reason.UNKNOWN)
    return found[0]


def nodes_called(connection: Connection, name: str) -> Sequence[NodeRow]:
    """The nodes that a name may mean, at most two; one that is called so comes first."""
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
    """A node that new instances may have. Raises PrerequisiteError for one that is offline, drained or not capable."""
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
    """Choose nodes and claim what the instance takes up of them. Raises PrerequisiteError; then nothing is claimed."""
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
    """Claim what an instance takes up more of its node than before. Raises PrerequisiteError."""
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
    """Take up of the nodes of an instance what it is to be made of. A second one comes, or goes, with mirrored disks.

    Raises PrerequisiteError.
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
    """Claim the disk of another node of the same group, the one with this name if there is one.

    without: the name of a node that it is not to be. Raises PrerequisiteError.
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
    """Whether what an instance takes up counts as reserved only."""
    connection.execute(_MARK, {"of_instance": instance_uuid, "is_forthcoming": is_forthcoming})


def leave(connection: Connection, instance_uuid: str, node: str) -> None:
    """Give back what an instance takes up of a node."""
    release(connection, instance_uuid, node)


def no_room(demand: Amount, wanted: Wanted) -> PrerequisiteError:
    """Says what there is no room for, and where."""
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
    """The node that was claimed, which so is one that new instances may have."""
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
