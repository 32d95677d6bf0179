"""The capacity of a Ganeti cluster's nodes, computed from records of its nodes and instances; pure.

Nodes report their current memory and disk, which do not show reservations. Processors in use are those of instances
that are not marked offline, and those that the node itself needs; the group's policy limits them. A node without a
volume group reports no disk, like one that cannot tell, so its disk is unknown. A node without any other figure is
silent (contracts/ganeti-htools, 7).
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from fleetlight.cells.node_capacity import UNKNOWN_DISK, NodeCapacity
from fleetlight.resources.amount import Amount
from fleetlight.resources.fields import Record
from fleetlight.resources.query_fields.cluster_parameters import POLICY_DEFAULTS
from fleetlight.resources.query_fields.definitions import ResultStatus

NODE_QUERY: Final = (
    "name",
    "group",
    "offline",
    "drained",
    "vm_capable",
    "ctotal",
    "cnos",
    "mtotal",
    "mfree",
    "dtotal",
    "dfree",
)
GROUP_QUERY: Final = ("name", "ipolicy")
INSTANCE_QUERY: Final = (
    "uuid",
    "pnode",
    "snodes",
    "status",
    "forthcoming",
    "be/vcpus",
    "be/memory",
    "disk_template",
    "disk_usage",
)
_SWITCHED_OFF = "ADMIN_offline"
_ON_NODES = ("drbd", "plain")
_NEEDED = ("ctotal", "cnos", "mtotal", "mfree")
_VCPU_RATIO = "vcpu-ratio"
Row = Mapping[str, tuple[int, Any]]


def capacity_of(
    nodes: Sequence[Record], instances: Sequence[Row], groups: Sequence[Record] = ()
) -> Sequence[NodeCapacity]:
    """The capacity of each node. nodes, groups: records. instances: rows of the cluster: status and value by field."""
    ratios = {group["name"]: _vcpu_ratio(group["ipolicy"]) for group in groups}
    vcpus, reserved = defaultdict[str, int](int), defaultdict[str, Amount](Amount)
    for row in instances:
        said = {name: value for name, (status, value) in row.items() if status == 0}
        primary, disk = said.get("pnode"), said.get("disk_usage", 0) if said.get("disk_template") in _ON_NODES else 0
        if primary is None:
            continue
        if said.get("forthcoming"):
            reserved[primary] += Amount(said.get("be/vcpus", 0), said.get("be/memory", 0), disk)
            for secondary in said.get("snodes", ()):
                reserved[secondary] += Amount(disk_mib=disk)
        elif said.get("status") != _SWITCHED_OFF:
            vcpus[primary] += said.get("be/vcpus", 0)
    return [
        _node(
            record,
            vcpus[record["name"]],
            reserved[record["name"]],
            ratios.get(record["group"], _vcpu_ratio(None)),
        )
        for record in nodes
    ]


def _vcpu_ratio(policy: object) -> float:
    """The ratio of processors in a policy, or Ganeti's default."""
    said = policy.get(_VCPU_RATIO) if isinstance(policy, Mapping) else None
    ratio: float = said if isinstance(said, int | float) else POLICY_DEFAULTS[_VCPU_RATIO]
    return ratio


def _node(record: Record, vcpus: int, reserved: Amount, vcpu_ratio: float) -> NodeCapacity:
    is_known = all(_is_figure(record[name]) for name in _NEEDED)
    is_up = not record["offline"] and record["vm_capable"] is not False
    total, free, own = Amount(), Amount(), 0
    has_disk = _is_figure(record["dtotal"]) and _is_figure(record["dfree"])
    if is_known:
        total_disk, free_disk = (record["dtotal"], record["dfree"]) if has_disk else (0, 0)
        total = Amount(record["ctotal"], record["mtotal"], total_disk)
        free, own = Amount(0, record["mfree"], free_disk), record["cnos"]
    used = total - free
    return NodeCapacity(
        name=record["name"],
        group=record["group"],
        zone=None,
        is_available=is_known and is_up and not record["drained"],
        total=total,
        usable=replace(total, vcpus=int(total.vcpus * vcpu_ratio)),
        used=Amount(vcpus + own if is_known else 0, used.memory_mib, used.disk_mib),
        reserved=reserved if is_known else Amount(),
        unknown=frozenset({UNKNOWN_DISK} if is_up and is_known and not has_disk else ()),
        is_silent=is_up and not is_known,
    )


def _is_figure(value: object) -> bool:
    """Whether a node has reported this figure; if not, it is a status, which is a number, too."""
    return isinstance(value, int) and not isinstance(value, ResultStatus)
