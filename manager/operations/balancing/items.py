"""A cluster made of what its cell answers to queries: the records of its groups, nodes and instances.

Fields are those of contracts/ganeti-query; a value that could not be had is None. A node that has not said what it has
is offline, as in a text file of htools, and `left_out` names it; that there is no disk, a node without a volume group
says by saying nothing (contracts/ganeti-htools, 7).

What nodes say of themselves differs: a node of Ganeti reports what is free at this moment, where reservations and
instances that are down do not show; from the figures of a node of a native cell everything is taken off that instances
claim, but for reservations. There a move has to find room for its claims too, so what the node keeps for itself is not
free, and its ratio of processors counts where it is below that of the policy.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from fleetlight.cells.node_capacity import NodeCapacity
from fleetlight.manager.operations.balancing.cluster import (
    DEFAULT_POLICY,
    AllocationPolicy,
    Cluster,
    ClusterInstance,
    ClusterNode,
    DiskTemplate,
    InstanceStatus,
    NodeGroup,
    Policy,
    PolicySize,
)
from fleetlight.manager.operations.scheduling.request_spec import demand_of
from fleetlight.resources.amount import Amount
from fleetlight.resources.units import MIB_PER_GIB

GROUP_ITEM: Final = ("name", "uuid", "alloc_policy", "ipolicy", "tags")
NODE_ITEM: Final = (
    "name",
    "group.uuid",
    "mtotal",
    "mnode",
    "mfree",
    "dtotal",
    "dfree",
    "ctotal",
    "cnos",
    "offline",
    "drained",
    "vm_capable",
    "master",
    "tags",
    "sptotal",
    "spfree",
    "ndp/spindle_count",
    "ndp/exclusive_storage",
    "ndp/cpu_speed",
)
INSTANCE_ITEM: Final = (
    "name",
    "uuid",
    "pnode",
    "snodes",
    "status",
    "disk_template",
    "disk_usage",
    "disk.spindles",
    "flavor",
    "be/memory",
    "be/vcpus",
    "be/auto_balance",
    "be/spindle_use",
    "tags",
    "forthcoming",
    "vm_state",
    "task_state",
    "server_groups",
    "scheduler_hints",
    "pinned_availability_zone",
)

# What instances that Ganeti's operations made have instead, in native cells and in clusters.
_NO_FLAVORS: Final = (None, "ganeti")
# Where a live migration can begin (contracts/nova-rest, 2.6).
_MIGRATED_LIVE: Final = ("active", "paused")
_HINTS: Final = ("same_host", "different_host")
_CONDITIONS: Final = ("trait:", "aggregate_instance_extra_specs:")
# Of nodes whose cell has no groups, as cells of Nova.
_NO_GROUP: Final = NodeGroup(
    "default", "00000000-0000-0000-0000-000000000000", policy=replace(DEFAULT_POLICY, bounds=(), vcpu_ratio=-1.0)
)
# What a node has to say of itself, and what it has to say where it is asked what is used of it.
_FIGURES: Final = ("mtotal", "mfree", "ctotal")
_OWN_FIGURES: Final = ("mnode", "cnos")
_ON_NODES: Final = ("drbd", "plain")
# Of these it cannot have none: the score divides by them.
_ABOVE_ZERO: Final = ("mtotal", "ctotal")
# What an instance has to say of itself; servers of the compute API say it by their flavors.
_SIZES: Final = ("be/memory", "be/vcpus", "disk_template", "disk_usage")

Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What counts only in part, or not at all: a node or an instance (`item_type`), and why, as the end of a sentence
    that begins with it.
    """

    item_type: str
    name: str
    why: str


def left_out(
    groups: Sequence[Item], nodes: Sequence[Item], instances: Sequence[Item], *, reports_usage: bool
) -> Sequence[LeftOut]:
    """What of a cell is not in its cluster as it should be, since a value is missing. Arguments as of the cluster."""
    known_nodes, known_groups = {node["name"] for node in nodes}, {group["uuid"] for group in groups}
    found = []
    # Nodes need no disk of their own where no instance has any of it.
    has_disks = any(item["disk_template"] in _ON_NODES for item in instances)
    for node in nodes:
        if unsaid := _unsaid(node, reports_usage=reports_usage):
            why = f"has not said {', '.join(unsaid)}, and counts as offline"
            found.append(LeftOut("node", node["name"], why))
        elif has_disks and not _is_closed(node) and None in (node["dtotal"], node["dfree"]):
            found.append(LeftOut("node", node["name"], "has not said dtotal and dfree, and counts without disk"))
        if node["group.uuid"] not in known_groups | {None}:
            why = f"is in a group that the cell does not have ({node['group.uuid']})"
            found.append(LeftOut("node", node["name"], why))
    for item in instances:
        name = item["name"] or item["uuid"]
        if item["pnode"] is None:
            continue  # it is on no node yet, or no longer
        if unknown := {item["pnode"], *(item["snodes"] or ())} - known_nodes:
            why = f"is on a node that the cell does not have ({', '.join(sorted(unknown))})"
            found.append(LeftOut("instance", name, why))
        elif unsaid := _unsaid_sizes(item):
            found.append(LeftOut("instance", name, f"has not said {', '.join(unsaid)}, and counts without"))
    return found


def cluster_of_items(
    groups: Sequence[Item],
    nodes: Sequence[Item],
    instances: Sequence[Item],
    capacities: Sequence[NodeCapacity] = (),
    *,
    reports_usage: bool = False,
) -> Cluster:
    """The cluster of one cell. Instances that are on no node of it yet, or no longer, are not in it.

    capacities: of the nodes of a cell where placing claims what they have, as in native cells and in Nova.
    reports_usage: as of fleetlight.cells.capabilities.
    """
    known = {node["name"] for node in nodes}
    placed = [item for item in instances if _is_placed(item, known)]
    names = Counter(item["name"] for item in placed)
    by_node = {capacity.name: capacity for capacity in capacities}
    made = [_instance(item, is_named=names[item["name"]] == 1, is_claimed=bool(by_node)) for item in placed]
    offline = {node["name"] for node in nodes if node["offline"]}
    zones = {capacity.zone for capacity in capacities}
    found = [
        replace(each, is_auto_balanced=each.is_auto_balanced and _may_move(item, offline, zones))
        for each, item in zip(made, placed, strict=True)
    ]
    by_uuid = {group["uuid"]: _group(group) for group in groups}
    group_of = {node["name"]: by_uuid.get(node["group.uuid"], _NO_GROUP) for node in nodes}
    return Cluster(
        (*by_uuid.values(), *([_NO_GROUP] if _NO_GROUP in group_of.values() else ())),
        tuple(
            _node(item, group_of[item["name"]], found, by_node.get(item["name"]), reports_usage=reports_usage)
            for item in nodes
        ),
        tuple(found),
    )


def _is_closed(node: Item) -> bool:
    return bool(node["offline"] or node["drained"] or node["vm_capable"] is False)


def _unsaid(node: Item, *, reports_usage: bool) -> Sequence[str]:
    """The figures that a node should have said, and has not. Of one that nothing goes to anyway none is missed."""
    if _is_closed(node):
        return ()
    needed = [*_FIGURES]
    if reports_usage:
        needed += _OWN_FIGURES
        needed += ["sptotal"] if node["ndp/exclusive_storage"] else []
    return [name for name in needed if node[name] is None or (node[name] <= 0 and name in _ABOVE_ZERO)]


def _unsaid_sizes(item: Item) -> Sequence[str]:
    return () if _flavor_of_server(item) else [name for name in _SIZES if item[name] is None]


def _is_placed(item: Item, nodes: set[str]) -> bool:
    return item["pnode"] in nodes and all(node in nodes for node in item["snodes"] or ())


def _group(item: Item) -> NodeGroup:
    return NodeGroup(
        item["name"],
        item["uuid"],
        AllocationPolicy(item["alloc_policy"] or AllocationPolicy.PREFERRED),
        tuple(item["tags"] or ()),
        policy=_policy(item["ipolicy"] or {}),
    )


def _policy(said: Mapping[str, Any]) -> Policy:
    default = DEFAULT_POLICY
    templates = said.get("disk-templates")
    return Policy(
        standard=_size(said["std"]) if said.get("std") else default.standard,
        bounds=tuple((_size(each["min"]), _size(each["max"])) for each in said.get("minmax") or ()) or default.bounds,
        disk_templates=default.disk_templates if templates is None else tuple(map(DiskTemplate, templates)),
        vcpu_ratio=float(said.get("vcpu-ratio", default.vcpu_ratio)),
        spindle_ratio=float(said.get("spindle-ratio", default.spindle_ratio)),
    )


def _size(said: Mapping[str, int]) -> PolicySize:
    names = ("memory-size", "cpu-count", "disk-size", "disk-count", "nic-count", "spindle-use")
    return PolicySize(*(said[name] for name in names))


def _instance(item: Item, *, is_named: bool, is_claimed: bool) -> ClusterInstance:
    """is_named: no other instance has its name; otherwise the uuid stands in for it, as for a missing one.

    is_claimed: whether what it has of disks is claimed of its nodes, in whole GiB.
    """
    is_forthcoming = bool(item["forthcoming"])
    secondary = next(iter(item["snodes"] or ()), None)
    flavor = _flavor_of_server(item)
    template = DiskTemplate.EXT if flavor else _template(item["disk_template"], has_secondary=secondary is not None)
    disk_mib = demand_of(flavor).disk_gib * MIB_PER_GIB if flavor else item["disk_usage"] or 0
    spindles = item["disk.spindles"]
    return ClusterInstance(
        name=(item["name"] if is_named else None) or item["uuid"],
        memory_mib=item["be/memory"] or 0,
        disk_mib=-(-disk_mib // MIB_PER_GIB) * MIB_PER_GIB if is_claimed else disk_mib,
        vcpus=item["be/vcpus"] or 0,
        status=InstanceStatus.ADMIN_DOWN if is_forthcoming else _status(item["status"]),
        primary=item["pnode"],
        secondary=secondary if template is DiskTemplate.DRBD else None,
        disk_template=template,
        is_auto_balanced=item["be/auto_balance"] is not False,
        tags=tuple(item["tags"] or ()),
        spindle_use=1 if item["be/spindle_use"] is None else item["be/spindle_use"],
        disk_spindles=sum(spindles) if spindles and None not in spindles else None,
        is_forthcoming=is_forthcoming,
        claims_disk=is_claimed or flavor is not None,
        is_server=flavor is not None,
        uuid=item["uuid"],
    )


def _may_move(item: Item, offline: Collection[str], zones: Collection[str | None]) -> bool:
    """Whether a server of the compute API can migrate to any node: it does so live, and takes along what it has.

    What it asked for of its host, a score knows nothing of. offline: nodes that nothing can be copied from.
    zones: those of all nodes.
    """
    flavor = _flavor_of_server(item)
    if flavor is None:
        return True
    hints, specs = item["scheduler_hints"] or {}, flavor.get("extra_specs") or {}
    zone = item["pinned_availability_zone"]
    is_bound = (
        bool(item["server_groups"])
        or any(hints.get(name) for name in _HINTS)
        or any(name.startswith(_CONDITIONS) for name in specs)
        or (zone is not None and set(zones) != {zone})
    )
    can_migrate = item["vm_state"] in _MIGRATED_LIVE and item["task_state"] is None
    return can_migrate and not is_bound and item["pnode"] not in offline


def _node(
    item: Item,
    group: NodeGroup,
    instances: Sequence[ClusterInstance],
    capacity: NodeCapacity | None,
    *,
    reports_usage: bool,
) -> ClusterNode:
    is_offline = _is_closed(item) or bool(_unsaid(item, reports_usage=reports_usage))
    figures = ("mtotal", "mfree", "dtotal", "dfree", "ctotal")
    total_memory, free_memory, total_disk, free_disk, cpus = (item[name] or 0 for name in figures)
    own = Amount(item["cnos"] or 0, item["mnode"] or 0)
    vcpu_ratio = None
    if capacity is not None:
        kept = capacity.total - capacity.usable
        own = Amount(own.vcpus, max(own.memory_mib, kept.memory_mib))
        free_memory -= max(0, kept.memory_mib)
        free_disk -= max(0, kept.disk_mib)
        vcpu_ratio = max(0, capacity.usable.vcpus) / cpus if cpus else None
    if not reports_usage:
        free_memory += sum(each.memory_mib for each in instances if each.primary == item["name"] and _only_claims(each))
    has_exclusive_storage = bool(item["ndp/exclusive_storage"])
    return ClusterNode(
        name=item["name"],
        group_uuid=group.uuid,
        total_memory_mib=total_memory,
        own_memory_mib=own.memory_mib,
        free_memory_mib=free_memory,
        total_disk_mib=total_disk,
        free_disk_mib=free_disk,
        cpus=cpus,
        is_offline=is_offline,
        is_master=bool(item["master"]),
        spindles=(item["sptotal"] if has_exclusive_storage else item["ndp/spindle_count"]) or 1,
        tags=tuple(item["tags"] or ()),
        has_exclusive_storage=has_exclusive_storage,
        free_spindles=item["spfree"] or 0,
        own_vcpus=own.vcpus,
        cpu_speed=item["ndp/cpu_speed"] or 1.0,
        vcpu_ratio=vcpu_ratio,
        has_agent=capacity is not None and capacity.has_agent,
    )


def _only_claims(instance: ClusterInstance) -> bool:
    """Whether its memory is taken off of the figures of its node without being used."""
    return not instance.uses_memory and not instance.is_forthcoming


def _flavor_of_server(item: Item) -> Item | None:
    """The flavor of a server of the compute API, whose disks go with it to any node; None for other instances."""
    flavor: Item | None = item["flavor"]
    return None if flavor is None or flavor.get("flavorid") in _NO_FLAVORS else flavor


def _template(said: str | None, *, has_secondary: bool) -> DiskTemplate:
    if has_secondary:
        return DiskTemplate.DRBD
    # Of disks of several sorts the least movable counts, and so it does of a mirror without another node.
    known = set(DiskTemplate) - {DiskTemplate.DRBD}
    return DiskTemplate(said) if said in known else DiskTemplate.PLAIN


def _status(said: str | None) -> InstanceStatus:
    return InstanceStatus(said) if said in set(InstanceStatus) else InstanceStatus.RUNNING
