"""Operations of Ganeti that move instances off a node, each by a job of its own (contracts/ganeti-rapi, 9)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import Column, Connection, Row, select

from fleetlight.cells.job_numbers import job_number
from fleetlight.cells.tables import instances
from fleetlight.manager.operations.jobs.model import NewJob, NewOperation
from fleetlight.manager.operations.jobs.queue import add_jobs
from fleetlight.manager.operations.jobs.vocabulary import Operation, Step, Task
from fleetlight.manager.operations.opcodes.building import instance_lock, operation
from fleetlight.manager.operations.opcodes.filters.applying import apply_filters
from fleetlight.manager.operations.opcodes.lookups import known_node
from fleetlight.manager.operations.opcodes.nodes import NodeOpCode, node_lock
from fleetlight.manager.operations.opcodes.parameter_values import wrong
from fleetlight.resources.power_states import RUNNING

_DEFAULT_ALLOCATOR = "hail"
_PRIMARY = ("primary-only", "all")
_SECONDARY = ("secondary-only", "all")
_MIGRATE, _FAILOVER, _REPLACE = "OP_INSTANCE_MIGRATE", "OP_INSTANCE_FAILOVER", "OP_INSTANCE_REPLACE_DISKS"


class NodeEvacuate(NodeOpCode):
    """Evacuate a node. remote_node: the new secondary node. early_release, ignore_soft_errors: have no effect here."""

    OP_ID = "OP_NODE_EVACUATE"

    mode: Literal["primary-only", "secondary-only", "all"]
    remote_node: str | None = None
    iallocator: str | None = None
    early_release: bool = False
    ignore_soft_errors: bool = False


class NodeMigrate(NodeOpCode):
    """Migrate all instances of a node. mode: None: the one that the hypervisor parameters set."""

    OP_ID = "OP_NODE_MIGRATE"

    mode: Literal["live", "non-live"] | None = None
    target_node: str | None = None
    iallocator: str | None = None
    allow_runtime_changes: bool = True
    ignore_ipolicy: bool = False


@dataclass(frozen=True, slots=True)
class _Move:
    """The operation that moves an instance away. parameters: of the operation; None: not given."""

    instance: Row[Any]
    operation: str
    parameters: Mapping[str, Any]

    def queued(self) -> NewOperation:
        name = self.instance.display_name or self.instance.uuid
        given = {name: value for name, value in self.parameters.items() if value is not None}
        summary = f"{self.operation.removeprefix('OP_')}({name})"
        return NewOperation(self.operation, {"instance_name": name, **given}, self.instance.uuid, summary=summary)


# Queueing needs the locks alone; the worker has the steps.
_QUEUED = {name: Operation((), instance_lock) for name in (_MIGRATE, _FAILOVER, _REPLACE)}


def _check_evacuate(op: NodeEvacuate, task: Task) -> None:
    node = known_node(task, op.node_name)
    if op.remote_node is None:
        return
    if op.iallocator is not None:
        raise wrong("Do not specify both, iallocator and node")
    if op.mode != "secondary-only":
        raise wrong("Primary instances can not be evacuated to a node that is given; use an iallocator")
    if known_node(task, op.remote_node).uuid == node.uuid:
        raise wrong("Can not use evacuated node as a new secondary node")


def _evacuate(task: Task) -> None:
    op = NodeEvacuate.read(task.parameters)
    node = known_node(task, op.node_name).hypervisor_hostname
    moves: list[_Move] = []
    if op.mode in _PRIMARY:
        moves += (_away(op, row) for row in _on_node(task.connection, node))
    if op.mode in _SECONDARY:
        allocator = None if op.remote_node is not None else op.iallocator or _DEFAULT_ALLOCATOR
        to = {"mode": "replace_new_secondary", "remote_node": op.remote_node, "iallocator": allocator}
        moves += (_Move(row, _REPLACE, {**to, "reason": op.reason}) for row in _mirrored_to(task.connection, node))
    task.job.result = {"jobs": _submit(task, moves)}


def _check_migrate(op: NodeMigrate, task: Task) -> None:
    known_node(task, op.node_name)
    if op.target_node is not None:
        known_node(task, op.target_node)
        if op.iallocator is not None:
            raise wrong("Do not specify both, iallocator and node")


def _migrate(task: Task) -> None:
    op = NodeMigrate.read(task.parameters)
    node = known_node(task, op.node_name).hypervisor_hostname
    task.job.result = {"jobs": _submit(task, [_migration(op, row) for row in _on_node(task.connection, node)])}


def _migration(op: NodeMigrate, row: Row[Any]) -> _Move:
    """Return the migration of an instance, or the failover of a reservation (contracts/ganeti-rapi, 9)."""
    to = {
        "target_node": op.target_node,
        "iallocator": op.iallocator,
        "ignore_ipolicy": op.ignore_ipolicy,
        "reason": op.reason,
    }
    if row.forthcoming:
        return _Move(row, _FAILOVER, to)
    return _Move(row, _MIGRATE, {**to, "mode": op.mode, "allow_runtime_changes": op.allow_runtime_changes})


def _away(op: NodeEvacuate, row: Row[Any]) -> _Move:
    """Return the migration of a running guest, or the failover of any other instance."""
    if row.forthcoming or row.power_state != RUNNING:
        return _Move(row, _FAILOVER, {"reason": op.reason})
    return _Move(row, _MIGRATE, {"allow_failover": True, "reason": op.reason})


def _submit(task: Task, moves: Sequence[_Move]) -> list[tuple[bool, int]]:
    """Queue a job for each move; returns for each that it was accepted, and its number in the fleet."""
    new = [NewJob([move.queued()], task.job.request) for move in moves]
    ids = add_jobs(task.connection, _QUEUED, new, task.now)
    if ids:
        apply_filters(task.connection, task.cell, task.now, ids)
    return [(True, job_number(task.cell, job_id)) for job_id in ids]


_NEEDED = ("uuid", "display_name", "power_state", "forthcoming", "ganeti")
_WANTED: Sequence[Column[Any]] = [instances.c[name] for name in _NEEDED]


def _on_node(connection: Connection, node: str) -> Sequence[Row[Any]]:
    statement = select(*_WANTED).where(instances.c.node == node, instances.c.deleted.is_(False))
    return connection.execute(statement.order_by(instances.c.uuid)).all()


def _mirrored_to(connection: Connection, node: str) -> Iterator[Row[Any]]:
    """Yield the instances with this secondary node."""
    kept = instances.c.deleted.is_(False), instances.c.ganeti.is_not(None)
    for row in connection.execute(select(*_WANTED).where(*kept).order_by(instances.c.uuid)).all():
        if node in (row.ganeti["values"].get("snodes") or ()):
            yield row


EVACUATION: tuple[tuple[str, Operation], ...] = (
    operation(NodeEvacuate, _check_evacuate, Step(_evacuate), locks=node_lock),
    operation(NodeMigrate, _check_migrate, Step(_migrate), locks=node_lock),
)
