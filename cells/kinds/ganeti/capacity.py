"""What the nodes of a Ganeti cluster have and what of it is taken, from what it says of its nodes and instances; pure.

Memory and disk are what nodes report at this moment, in which reservations do not show; processors are those of the
instances on a node that are not switched off for good, and those that the node itself needs.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from fleetlight.cells.node_capacity import Amounts, NodeCapacity
from fleetlight.resources.fields import Record
from fleetlight.resources.query_fields.definitions import CellStatus

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
Row = Mapping[str, tuple[int, Any]]


def capacity_of(nodes: Sequence[Record], instances: Sequence[Row]) -> Sequence[NodeCapacity]:
    """nodes: records of items. instances: as the cluster answers, a status and a value for each field."""
    vcpus, reserved = defaultdict[str, int](int), defaultdict[str, Amounts](Amounts)
    for row in instances:
        said = {name: value for name, (status, value) in row.items() if status == 0}
        primary, disk = said.get("pnode"), said.get("disk_usage", 0) if said.get("disk_template") in _ON_NODES else 0
        if primary is None:
            continue
        if said.get("forthcoming"):
            reserved[primary] += Amounts(said.get("be/vcpus", 0), said.get("be/memory", 0), disk)
            for secondary in said.get("snodes", ()):
                reserved[secondary] += Amounts(disk_mib=disk)
        elif said.get("status") != _SWITCHED_OFF:
            vcpus[primary] += said.get("be/vcpus", 0)
    return [_node(record, vcpus[record["name"]], reserved[record["name"]]) for record in nodes]


def _node(record: Record, vcpus: int, reserved: Amounts) -> NodeCapacity:
    live = {name: record[name] for name in ("ctotal", "mtotal", "mfree", "dtotal", "dfree")}
    is_known = all(_is_figure(value) for value in live.values())
    total = Amounts(live["ctotal"], live["mtotal"], live["dtotal"]) if is_known else Amounts()
    free = Amounts(0, live["mfree"], live["dfree"]) if is_known else Amounts()
    own = record["cnos"] if _is_figure(record["cnos"]) else 0
    used = total - free
    return NodeCapacity(
        name=record["name"],
        group=record["group"],
        zone=None,
        is_available=is_known and not record["offline"] and not record["drained"] and bool(record["vm_capable"]),
        total=total,
        usable=total,
        used=Amounts(vcpus + own if is_known else 0, used.memory_mib, used.disk_mib),
        reserved=reserved if is_known else Amounts(),
    )


def _is_figure(value: object) -> bool:
    """Whether a node has told it; a status, which is a number too, says why it has not."""
    return isinstance(value, int) and not isinstance(value, CellStatus)
