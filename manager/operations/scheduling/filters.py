"""Filters of nodes for an instance: SQL conditions on `compute_nodes` and `services`, each for one reason.

A node passes if every condition of every filter holds. Whether it has room depends on its usage, which
fleetlight.manager.operations.scheduling.hosts checks.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from sqlalchemy import ColumnElement, and_, false, func, or_, select, true

from fleetlight.cells.fleet.compute.server_groups import ServerGroup
from fleetlight.cells.tables import compute_nodes, node_traits, services
from fleetlight.manager.operations.scheduling.affinity import AffinityHosts
from fleetlight.manager.operations.scheduling.request_spec import RequestSpec

# The largest ratio of processors, in thousandths, at which instances share none.
_ONCE = 1000
Conditions = Iterator[ColumnElement[bool]]


def _is_up(_spec: RequestSpec) -> Conditions:
    yield services.c.forced_down.is_(False)


def _is_vm_capable(_spec: RequestSpec) -> Conditions:
    yield compute_nodes.c.vm_capable


def _is_enabled(spec: RequestSpec) -> Conditions:
    """Require an enabled service, unless the request names the host."""
    if not spec.is_forced:
        yield services.c.disabled.is_(False)


def _is_in_zone(spec: RequestSpec) -> Conditions:
    if spec.zone is not None:
        yield services.c.availability_zone == spec.zone


def _is_named(spec: RequestSpec) -> Conditions:
    if spec.host is not None:
        yield services.c.host == spec.host
    if spec.node is not None:
        yield compute_nodes.c.hypervisor_hostname == spec.node
    if spec.nodes:
        yield compute_nodes.c.hypervisor_hostname.in_(spec.nodes)


def _is_not_excluded(spec: RequestSpec) -> Conditions:
    if spec.without:
        yield services.c.host.not_in(spec.without)


def _is_of_the_same_kind(spec: RequestSpec) -> Conditions:
    """Require an agent for instances on hosts with an agent, and none for simulated ones: nothing is carried over.

    The same holds for both hosts of mirrored disks.
    """
    if spec.without:
        node, service = compute_nodes.alias(), services.alias()
        has_one = (
            select(node.c.id)
            .join_from(node, service, service.c.id == node.c.service_id)
            .where(service.c.host == spec.without[0], node.c.agent_address.is_not(None))
            .exists()
        )
        address = compute_nodes.c.agent_address
        yield or_(and_(address.is_not(None), has_one), and_(address.is_(None), ~has_one))


def _is_in_node_group(spec: RequestSpec) -> Conditions:
    if spec.node_group is not None:
        yield compute_nodes.c.group_uuid == spec.node_group


def _is_in_aggregates(spec: RequestSpec) -> Conditions:
    if spec.hosts is not None:
        yield services.c.host.in_(spec.hosts)


def _has_traits(spec: RequestSpec) -> Conditions:
    of_node = node_traits.c.node_id == compute_nodes.c.id
    if spec.required_traits:
        # One condition for all traits, since databases limit the number of conditions.
        wanted = set(spec.required_traits)
        found = select(func.count()).select_from(node_traits).where(of_node, node_traits.c.trait.in_(wanted))
        yield found.scalar_subquery() == len(wanted)
    if spec.forbidden_traits:
        forbidden = node_traits.c.trait.in_(spec.forbidden_traits)
        yield ~select(node_traits.c.trait).where(of_node, forbidden).exists()


def _gives_processors_once(spec: RequestSpec) -> Conditions:
    if spec.has_own_processors:
        yield compute_nodes.c.vcpus_permille <= _ONCE


def _supports_flavor(spec: RequestSpec) -> Conditions:
    if spec.unsupported:
        yield false()


def _is_beside(spec: RequestSpec, affinity: AffinityHosts) -> Conditions:
    yield from _on_all(affinity.named.get(uuid, ()) for uuid in spec.beside)


def _is_apart(spec: RequestSpec, affinity: AffinityHosts) -> Conditions:
    if spec.apart:
        yield services.c.host.not_in({host for uuid in spec.apart for host in affinity.named.get(uuid, ())})


def _keeps_to_policy(spec: RequestSpec, affinity: AffinityHosts) -> Conditions:
    """Apply a hard policy of the group: members must, or must not, share a host. Soft policies are weights."""
    match spec.group:
        case ServerGroup(policy="affinity"):
            yield from _on_all(affinity.members.values())
        case ServerGroup(policy="anti-affinity", most_on_one_host=most):
            full = [host for host, count in affinity.counts.items() if count >= most]
            yield services.c.host.not_in(full)


def _on_all(hosts: Iterable[Collection[str]]) -> Conditions:
    """Require a host that is in all of these sets; no condition without sets."""
    if each := list(map(set, hosts)):
        yield services.c.host.in_(set.intersection(*each))


@dataclass(frozen=True, slots=True)
class Filter:
    """A filter. of_host: conditions on the host alone. of_affinity: conditions that depend on other instances."""

    name: str
    of_host: Callable[[RequestSpec], Conditions] = lambda _spec: iter(())
    of_affinity: Callable[[RequestSpec, AffinityHosts], Conditions] = lambda _spec, _affinity: iter(())


FILTERS = (
    Filter("up", _is_up),
    Filter("capable of instances", _is_vm_capable),
    Filter("enabled", _is_enabled),
    Filter("zone", _is_in_zone),
    Filter("host and node", _is_named),
    Filter("other hosts", _is_not_excluded),
    Filter("agent", _is_of_the_same_kind),
    Filter("node group", _is_in_node_group),
    Filter("aggregates", _is_in_aggregates),
    Filter("traits", _has_traits),
    Filter("own processors", _gives_processors_once),
    Filter("extra specs", _supports_flavor),
    Filter("same host", of_affinity=_is_beside),
    Filter("different host", of_affinity=_is_apart),
    Filter("server group", of_affinity=_keeps_to_policy),
)


def conditions_of(spec: RequestSpec, affinity: AffinityHosts | None = None) -> ColumnElement[bool]:
    """Make the condition on nodes for `spec`, without regard to free room. affinity: None: ignore other instances."""
    found = [condition for each in FILTERS for condition in each.of_host(spec)]
    if affinity is not None:
        found += [condition for each in FILTERS for condition in each.of_affinity(spec, affinity)]
    return and_(true(), *found)
