"""Conversion of a cell's query results, the records of its groups, nodes and instances, to a cluster.

Fields are those of contracts/ganeti-query; None is a missing value. A node that has not reported its figures counts as
offline, as in a text file of htools, and `left_out` names it. A node without a volume group reports no disk figures,
and counts without disk (contracts/ganeti-htools, 7).

The free figures of nodes differ. A node of Ganeti reports what is unused now, without regard to reservations and
stopped instances. A native cell subtracts the claims of all instances, but not those of reservations. There, placement
checks the claims of a move, too, so memory that the node reserves for itself is not free, and its allocation ratio of
processors applies if it is below that of the policy.
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

# Flavor ids of instances that Ganeti's operations made, in native cells and in clusters.
_NO_FLAVORS: Final = (None, "ganeti")
# States in which a live migration can begin (contracts/nova-rest, 2.6).
_MIGRATED_LIVE: Final = ("active", "paused")
_HINTS: Final = ("same_host", "different_host")
_CONDITIONS: Final = ("trait:", "aggregate_instance_extra_specs:")
# The group of nodes of cells without groups, as those of Nova.
_NO_GROUP: Final = NodeGroup(
    "default", "00000000-0000-0000-0000-000000000000", policy=replace(DEFAULT_POLICY, bounds=(), vcpu_ratio=-1.0)
)
# Figures that every node has to report, and those that it has to report in cells that report usage.
_FIGURES: Final = ("mtotal", "mfree", "ctotal")
_OWN_FIGURES: Final = ("mnode", "cnos")
_ON_NODES: Final = ("drbd", "plain")
# Figures that have to be above 0, since the score divides by them.
_ABOVE_ZERO: Final = ("mtotal", "ctotal")
# Figures that an instance has to have; servers of the compute API have them in their flavors.
_SIZES: Final = ("be/memory", "be/vcpus", "disk_template", "disk_usage")

Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A node or an instance (`item_type`) that counts only in part, or not at all.

    why: a predicate, as in `has not said mfree, and counts as offline`.
    """

    item_type: str
    name: str
    why: str


def left_out(
    groups: Sequence[Item], nodes: Sequence[Item], instances: Sequence[Item], *, reports_usage: bool
) -> Sequence[LeftOut]:
    """Return the items that count only in part since a value is missing. Arguments: see `cluster_of_items`."""
    known_nodes, known_groups = {node["name"] for node in nodes}, {group["uuid"] for group in groups}
    found = []
    # Disk figures of nodes matter only if an instance has local disks.
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
    """Return the cluster of one cell, without instances that are on no node of the cell yet, or no longer.

    capacities: of nodes in cells with placement claims, as native cells and those of Nova.
    reports_usage: see fleetlight.cells.capabilities.
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
    """Return the missing figures of a node; none for a node that takes no instances."""
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
    """Convert an instance. is_named: no other instance has its name; if one has, the uuid stands for the name.

    is_claimed: whether its disk is claimed from its nodes, in whole GiB.
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
    """Whether a server of the compute API can migrate live to any node.

    The score ignores a server's requirements on its host, so a server that has some stays. offline: nodes from which
    nothing can be copied. zones: of all nodes.
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
    """Whether its memory is claimed from its node without being used."""
    return not instance.uses_memory and not instance.is_forthcoming


def _flavor_of_server(item: Item) -> Item | None:
    """Return the flavor of a server of the compute API, whose disks move with it; None for other instances."""
    flavor: Item | None = item["flavor"]
    return None if flavor is None or flavor.get("flavorid") in _NO_FLAVORS else flavor


def _template(said: str | None, *, has_secondary: bool) -> DiskTemplate:
    if has_secondary:
        return DiskTemplate.DRBD
    # Mixed disks, and a mirror without a second node, count as the least movable template.
    known = set(DiskTemplate) - {DiskTemplate.DRBD}
    return DiskTemplate(said) if said in known else DiskTemplate.PLAIN


def _status(said: str | None) -> InstanceStatus:
    return InstanceStatus(said) if said in set(InstanceStatus) else InstanceStatus.RUNNING
