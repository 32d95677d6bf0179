"""Hosts for the instances of one request: a claimed host for each, and alternates in the same cell.

Claims are made in the caller's transaction, under the lock of the node, so that none is claimed twice, and under the
lock of the group, so that concurrent members do not break its policy. `allocations` alone decide what is claimed. The
rules are those of contracts/nova-selection, 4.
"""

import heapq
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from operator import itemgetter

from sqlalchemy import Connection, select

from fleetlight.cells.database.locks import wait_for_lock
from fleetlight.cells.errors import NoValidHostError
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import compute_nodes
from fleetlight.manager.operations.scheduling.affinity import find_affinity_hosts
from fleetlight.manager.operations.scheduling.allocations import allocate, allocate_each
from fleetlight.manager.operations.scheduling.hosts import (
    LOCKED_AT_ONCE,
    Host,
    HostQuery,
    after_claim,
    lock_free_node,
    read_best_hosts,
    read_host,
    read_locked_host,
    read_locked_hosts,
)
from fleetlight.manager.operations.scheduling.request_spec import RequestSpec
from fleetlight.notifications.payloads.selection import (
    NO_ALLOCATION_REQUEST,
    PLACEMENT_VERSION,
    AllocationRequest,
    ProviderAllocation,
    SchedulerLimits,
    Selection,
)
from fleetlight.resources.amount import Amount

# More than one, since concurrent claims all want the best.
_READ_AT_ONCE = LOCKED_AT_ONCE
# Only one transaction at a time may lock several nodes, in any order, to avoid deadlocks.
_SEVERAL_NODES = "claims of several nodes"


@dataclass(frozen=True, slots=True)
class Destination:
    """The host that was claimed for an instance, and its alternates, the best first."""

    host: Host
    alternates: Sequence[Host] = ()

    @property
    def hosts(self) -> Sequence[Host]:
        """All hosts, the claimed one first."""
        return (self.host, *self.alternates)


def select_destinations(
    connection: Connection,
    cell: Cell,
    instance_uuids: Sequence[str],
    demand: Amount,
    spec: RequestSpec,
    *,
    max_attempts: int,
) -> Sequence[Sequence[Selection]]:
    """Claim a host for each instance, in order; returns its Selection, and those of the alternates.

    max_attempts: largest number of Selections of an instance. Raises NoValidHostError, without claims then.
    """
    found = claim_hosts(connection, instance_uuids, demand, spec, max_attempts=max_attempts)
    nodes = {host.node_id: host for destination in found for host in destination.hosts}
    made = {node_id: _selection(cell, host, demand) for node_id, host in nodes.items()}
    return [[made[host.node_id] for host in destination.hosts] for destination in found]


def claim_hosts(
    connection: Connection,
    instance_uuids: Sequence[str],
    demand: Amount,
    spec: RequestSpec,
    *,
    max_attempts: int = 1,
    is_forthcoming: bool = False,
) -> Sequence[Destination]:
    """As `select_destinations`, but returns Destinations. is_forthcoming: whether the instances are reservations.

    Raises NoValidHostError.
    """
    if spec.unsupported:
        raise NoValidHostError(spec.unsupported)
    if len(instance_uuids) > 1:
        wait_for_lock(connection, _SEVERAL_NODES)
    if spec.group is not None:
        wait_for_lock(connection, f"server group {spec.group.uuid}")
    if len(instance_uuids) == 1:
        query = _query_of(connection, instance_uuids[0], demand, spec)
        chosen: Sequence[Host] = [
            _Candidates(connection, query, is_forthcoming=is_forthcoming).claim(instance_uuids[0])
        ]
    else:
        chosen = _claim_all_or_none(connection, instance_uuids, demand, spec, is_forthcoming=is_forthcoming)
    alternates: Sequence[Host] = ()
    if max_attempts > 1 and chosen:
        taken = {host.service_host for host in chosen}
        query = _query_of(connection, instance_uuids[-1], demand, spec)
        alternates = _alternates(connection, query, taken, max_attempts - 1)
    return [Destination(host, alternates) for host in chosen]


def wait_for_several_nodes(connection: Connection) -> None:
    """Lock out other transactions that claim several nodes, until this one ends."""
    wait_for_lock(connection, _SEVERAL_NODES)


def claim_host(
    connection: Connection, instance_uuid: str, demand: Amount, spec: RequestSpec, *, is_forthcoming: bool = False
) -> Host:
    """Choose a node and claim `demand` of it. Raises NoValidHostError."""
    return claim_hosts(connection, [instance_uuid], demand, spec, is_forthcoming=is_forthcoming)[0].host


def claim_alternate(
    connection: Connection, selection: Selection, instance_uuid: str, demand: Amount, spec: RequestSpec
) -> Host | None:
    """Claim the node of an alternate for an instance; None if it does not meet the spec any more, or has no room."""
    if spec.group is not None:
        wait_for_lock(connection, f"server group {spec.group.uuid}")
    node_id = connection.scalar(
        select(compute_nodes.c.id).where(compute_nodes.c.uuid == selection.compute_node_uuid.lower())
    )
    if node_id is None:
        return None
    # A nested transaction releases the lock if the node is not claimed, before another one is locked.
    look = connection.begin_nested()
    host = read_locked_host(connection, _query_of(connection, instance_uuid, demand, spec), node_id)
    if host is None:
        look.rollback()
        return None
    allocate(connection, instance_uuid, host.node_id, demand)
    look.commit()
    return host


def claim_pair(
    connection: Connection,
    instance_uuid: str,
    demand: Amount,
    spec: RequestSpec,
    *,
    secondary_nodes: tuple[str, ...] = (),
    is_forthcoming: bool = False,
) -> tuple[Host, Host]:
    """Claim `demand` on one node, and its disk on a second node of the same group, for mirrored disks.

    secondary_nodes: permitted names of the second node; empty: any. Raises NoValidHostError, without claims then.
    """
    wait_for_lock(connection, _SEVERAL_NODES)
    if spec.group is not None:
        wait_for_lock(connection, f"server group {spec.group.uuid}")
    without: list[int] = []
    while True:
        attempt = connection.begin_nested()
        query = _query_of(connection, instance_uuid, demand, spec)
        try:
            primary = _Candidates(connection, query, without, is_forthcoming=is_forthcoming).claim(instance_uuid)
        except NoValidHostError:
            attempt.rollback()
            raise
        second = RequestSpec(
            node_group=primary.group_uuid, nodes=secondary_nodes, without=(*spec.without, primary.service_host)
        )
        disk = _query_of(connection, instance_uuid, Amount.of_gib(0, 0, demand.disk_gib), second)
        try:
            secondary = _Candidates(connection, disk, is_forthcoming=is_forthcoming).claim(instance_uuid)
        except NoValidHostError:
            attempt.rollback()
            # Skip the group: its other nodes find no second node either, or only this one.
            without += _nodes_beside(connection, primary)
        else:
            attempt.commit()
            return primary, secondary


def selections_of(cell: Cell, destination: Destination, demand: Amount) -> Sequence[Selection]:
    """Return the Selections, that of the claimed host first."""
    return [_selection(cell, host, demand) for host in destination.hosts]


class _Candidates:
    """Hosts for one instance, the best first.

    They are read once, and each is read again, under its lock, before it is claimed.
    A node that another transaction has locked is about to get worse, so the next one is tried instead, unless all of
    the best are locked. Members of a group wait, since they may need that very node.
    """

    def __init__(
        self, connection: Connection, query: HostQuery, without: Sequence[int] = (), *, is_forthcoming: bool = False
    ) -> None:
        self._connection = connection
        self._question = query
        self._is_forthcoming = is_forthcoming
        self._gone = list(without)
        self._best: list[tuple[tuple[float, ...], int]] = []

    def claim(self, instance_uuid: str) -> Host:
        """Claim the best host. Raises NoValidHostError."""
        while True:
            if not self._best and not self._read():
                raise NoValidHostError
            # A nested transaction releases the lock of an unsuitable node: no transaction waits while it holds one.
            look = self._connection.begin_nested()
            node_id, host = self._look()
            if host is None:
                self._gone.append(node_id)
            elif self._best and self._best[0][0] < host.weights:
                heapq.heappush(self._best, (host.weights, node_id))
            else:
                demand = self._question.demand
                allocate(self._connection, instance_uuid, node_id, demand, is_forthcoming=self._is_forthcoming)
                look.commit()
                return host
            look.rollback()

    def _look(self) -> tuple[int, Host | None]:
        """Lock the best unlocked node, and read it again; drops the better ones."""
        ids = [node_id for _, node_id in heapq.nsmallest(LOCKED_AT_ONCE, self._best)]
        free = None if self._question.spec.group is not None else lock_free_node(self._connection, ids)
        if free is None:
            node_id = heapq.heappop(self._best)[1]
            return node_id, read_locked_host(self._connection, self._question, node_id)
        while heapq.heappop(self._best)[1] != free:
            pass
        return free, read_host(self._connection, self._question, free)

    def _read(self) -> bool:
        """Read the best hosts, except those known to be full; returns whether there are any."""
        hosts = read_best_hosts(self._connection, self._question, limit=_READ_AT_ONCE, without_nodes=self._gone)
        self._best = [(host.weights, host.node_id) for host in hosts]
        return bool(self._best)


def _claim_all_or_none(
    connection: Connection, instance_uuids: Sequence[str], demand: Amount, spec: RequestSpec, *, is_forthcoming: bool
) -> Sequence[Host]:
    """Claim hosts in a constant number of statements, unless concurrent claims take the room."""
    chosen: list[Host] = []
    attempt = connection.begin_nested()
    while left := instance_uuids[len(chosen) :]:
        query = _query_of(connection, left[0], demand, spec)
        hosts = read_locked_hosts(connection, query, limit=len(left))
        if not hosts:
            attempt.rollback()
            raise NoValidHostError
        found = _best_of_each_moment(hosts, query, len(left))
        node_ids = {uuid: host.node_id for uuid, host in zip(left, found, strict=False)}
        allocate_each(connection, node_ids, demand, is_forthcoming=is_forthcoming)
        chosen += found
    attempt.commit()
    return chosen


def _best_of_each_moment(hosts: Sequence[Host], query: HostQuery, count: int) -> Sequence[Host]:
    """Choose hosts for up to `count` instances, one by one. hosts: locked, and each possible for the first instance."""
    group, chosen = query.spec.group, list[Host]()
    nodes_of = defaultdict[str, list[Host]](list)
    for host in hosts:
        nodes_of[host.service_host].append(host)
    # Keep the best node of each host, since a claim changes only nodes of its host.
    bests = [_best_node(nodes) for nodes in nodes_of.values()]
    heapq.heapify(bests)
    while bests and len(chosen) < count:
        _, best = heapq.heappop(bests)
        chosen.append(best)
        if group is not None and group.policy == "affinity":
            bests.clear()
        claimed = [after_claim(host, query, best.node_id) for host in nodes_of[best.service_host]]
        nodes_of[best.service_host] = left = [host for host in claimed if _may_take_another(host, query)]
        if left:
            heapq.heappush(bests, _best_node(left))
    return chosen


def _best_node(nodes: Sequence[Host]) -> tuple[tuple[float, ...], Host]:
    """Return the best of some nodes, with its weights, which are unique."""
    return min(((host.weights, host) for host in nodes), key=itemgetter(0))


def _may_take_another(host: Host, query: HostQuery) -> bool:
    group = query.spec.group
    is_full = group is not None and group.policy == "anti-affinity" and host.members >= group.most_on_one_host
    return not is_full and query.demand.fits_into(host.usable - host.used)


def _query_of(connection: Connection, instance_uuid: str, demand: Amount, spec: RequestSpec) -> HostQuery:
    return HostQuery(demand, spec, find_affinity_hosts(connection, spec, instance_uuid))


def _nodes_beside(connection: Connection, host: Host) -> Sequence[int]:
    """Return the numbers of all nodes in a host's group."""
    columns = compute_nodes.c
    return connection.scalars(select(columns.id).where(columns.group_uuid == host.group_uuid)).all()


def _alternates(connection: Connection, query: HostQuery, taken: Collection[str], count: int) -> Sequence[Host]:
    """Read the best hosts beside those that the request has `taken`, each once."""
    found: dict[str, Host] = {}
    while len(found) < count:
        hosts = read_best_hosts(connection, query, limit=count - len(found), without_hosts=[*taken, *found])
        if not hosts:
            break
        for host in hosts:
            found.setdefault(host.service_host, host)
    return list(found.values())


def _selection(cell: Cell, host: Host, demand: Amount) -> Selection:
    return Selection(
        compute_node_uuid=host.node_uuid,
        service_host=host.service_host,
        nodename=host.nodename,
        cell_uuid=cell.uuid,
        limits=SchedulerLimits.of({}),
        allocation_request=_allocation_request(host.node_uuid, demand),
        allocation_request_version=PLACEMENT_VERSION,
        availability_zone=host.availability_zone,
    )


def _allocation_request(node_uuid: str, demand: Amount) -> str:
    resources = resources_of(demand)
    if not resources:
        return NO_ALLOCATION_REQUEST
    request = AllocationRequest(
        allocations={node_uuid: ProviderAllocation(resources=resources)}, mappings={"": [node_uuid]}
    )
    return request.as_text()


def resources_of(amount: Amount) -> dict[str, int]:
    """Return an amount by resource classes of placement, without zeros."""
    resources = {"VCPU": amount.vcpus, "MEMORY_MB": amount.memory_mib, "DISK_GB": amount.disk_gib}
    return {name: value for name, value in resources.items() if value}
