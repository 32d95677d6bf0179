"""Operations of Ganeti on the storage of nodes. A simulated host has a volume group and two folders."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field
from sqlalchemy import Connection, select

from fleetlight.cells.kinds.native.items.cluster import read_parameters
from fleetlight.cells.kinds.native.nodes import ComputeNode, read_nodes
from fleetlight.cells.tables import compute_nodes, services
from fleetlight.manager.operations.jobs.errors import JobError, PrerequisiteError, Reason
from fleetlight.manager.operations.jobs.vocabulary import Operation, Task
from fleetlight.manager.operations.opcodes.building import operation
from fleetlight.manager.operations.opcodes.lookups import known_node
from fleetlight.manager.operations.opcodes.nodes import NodeOpCode, node_lock
from fleetlight.manager.operations.opcodes.opcode import OpCode
from fleetlight.manager.operations.opcodes.parameter_values import wrong
from fleetlight.resources.units import MIB_PER_GIB

StorageType = Literal[
    "blockdev", "diskless", "drbd", "ext", "file", "gluster", "lvm-pv", "lvm-vg", "plain", "rados", "sharedfile"
]
_FIELDS = ("name", "type", "size", "used", "free", "allocatable", "node")
_MODIFIABLE, _REPAIRABLE = ("lvm-pv",), ("lvm-vg",)
_UNIT_NAMES: Mapping[str, str] = {
    "lvm-vg": "volume_group_name",
    "file": "file_storage_dir",
    "sharedfile": "shared_file_storage_dir",
}
"""By storage type of a simulated host: the cluster parameter that names its one unit."""


class NodeQueryStorage(OpCode):
    """List storage units. nodes: names; empty: all. name: of the units to list; None: all."""

    OP_ID = "OP_NODE_QUERY_STORAGE"

    output_fields: list[str]
    storage_type: StorageType | None = None
    nodes: list[str] = Field(default_factory=list)
    name: str | None = None


class _UnitOpCode(NodeOpCode):
    storage_type: StorageType
    name: str


class NodeModifyStorage(_UnitOpCode):
    OP_ID = "OP_NODE_MODIFY_STORAGE"

    changes: dict[str, Any]


class RepairNodeStorage(_UnitOpCode):
    OP_ID = "OP_REPAIR_NODE_STORAGE"

    ignore_consistency: bool = False


def _query(op: NodeQueryStorage, task: Task) -> None:
    """Set the result to a row for each unit, sorted by node and name."""
    if unknown := sorted(set(op.output_fields) - set(_FIELDS)):
        raise wrong(f"Unknown output fields selected: {', '.join(unknown)}")
    names = sorted({known_node(task, name).hypervisor_hostname for name in op.nodes})
    wanted = [compute_nodes.c.hypervisor_hostname.in_(names)] if names else []
    units = [unit for node in read_nodes(task.connection, *wanted) for unit in _units(task.connection, op, node)]
    found = [unit for unit in units if op.name in {None, unit["name"]}]
    found.sort(key=lambda unit: (unit["node"], unit["name"]))
    task.job.result = [[unit[name] for name in op.output_fields] for unit in found]


def _units(connection: Connection, op: NodeQueryStorage, node: ComputeNode) -> Sequence[Mapping[str, Any]]:
    """Return the units of one node; none if it is offline."""
    storage_type = op.storage_type or "lvm-vg"
    named_by = _UNIT_NAMES.get(storage_type)
    name = None if named_by is None else read_parameters(connection)[named_by]
    if name is None or not node.service.is_up:
        return []
    return [
        {
            "name": name,
            "type": storage_type,
            "size": node.capacity.disk_gib * MIB_PER_GIB,
            "used": node.used.disk_gib * MIB_PER_GIB,
            "free": node.free.disk_gib * MIB_PER_GIB,
            "allocatable": True,
            "node": node.hypervisor_hostname,
        }
    ]


def _refuse_change(op: NodeModifyStorage, task: Task) -> None:
    _known_online_node(op, task)
    if op.storage_type not in _MODIFIABLE:
        raise wrong(f"Storage units of type '{op.storage_type}' can not be modified")
    raise JobError(f"Failed to modify storage unit '{op.name}' on {op.node_name}: a simulated host has no such unit")


def _refuse_repair(op: RepairNodeStorage, task: Task) -> None:
    _known_online_node(op, task)
    if op.storage_type not in _REPAIRABLE:
        raise wrong(f"Storage units of type '{op.storage_type}' can not be repaired")
    raise JobError(f"Failed to repair storage unit '{op.name}' on {op.node_name}: a simulated host cannot do that")


def _known_online_node(op: _UnitOpCode, task: Task) -> None:
    node = known_node(task, op.node_name)
    is_down = task.connection.scalar(select(services.c.forced_down).where(services.c.id == node.service_id))
    if is_down:
        raise PrerequisiteError(f"Can't use offline node {op.node_name}", Reason.WRONG_STATE)


STORAGE: tuple[tuple[str, Operation], ...] = (
    operation(NodeQueryStorage, _query),
    operation(NodeModifyStorage, _refuse_change, locks=node_lock),
    operation(RepairNodeStorage, _refuse_repair, locks=node_lock),
)
