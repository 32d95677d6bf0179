"""Operations that change what is configured of a cell: rows that no node has to be asked for."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar

from sqlalchemy import Row, Table, update

from fleetlight.cells.tables import compute_nodes, node_groups
from fleetlight.manager.operations.hosts.node_announcements import announce_changed_nodes
from fleetlight.manager.operations.jobs.model import Lock
from fleetlight.manager.operations.jobs.vocabulary import MakeCall, Operation, Step, Task
from fleetlight.manager.operations.opcodes.building import no_locks, operation
from fleetlight.manager.operations.opcodes.opcode import OpCode

Op = TypeVar("Op", bound=OpCode)
Plan = TypeVar("Plan")
Changes = list[list[Any]]
"""What Ganeti's `modify` operations answer: [name, value] of what they have set."""
# Of their group.
_SHOWN_BY_NODES = frozenset({"name", "ndparams"})


def configuring(
    opcode: type[Op],
    plan: Callable[[Op, Task], Plan],
    carry_out: Callable[[Plan, Task], Any],
    *,
    locks: Callable[[Op, str | None], Collection[Lock]] = no_locks,
    call: MakeCall | None = None,
) -> tuple[str, Operation]:
    """An entry of a vocabulary.

    plan: finds out what there is to do, and raises PrerequisiteError. It runs twice, for the check and in the
    transaction that carries it out, because the compute API changes hosts without a job. carry_out: its value is the
    result of the job. call: what a node is asked before that.
    """

    def check(op: Op, task: Task) -> None:
        plan(op, task)

    def run(task: Task) -> None:
        task.job.result = carry_out(plan(opcode.read(task.parameters), task), task)

    return operation(opcode, check, Step(run, call=call), locks=locks)


def change_item(task: Task, table: Table, item: Row[Any], values: Mapping[str, Any]) -> None:
    """Write values of a row with a uuid, a serial number and the time of its last change; nodes show it at once."""
    task.connection.execute(
        update(table)
        .where(table.c.uuid == item.uuid)
        .values(**values, serial_no=table.c.serial_no + 1, updated_at=task.now)
    )
    if table is compute_nodes:
        announce_changed_nodes(task.connection, task.now, compute_nodes.c.uuid == item.uuid)
    elif table is node_groups and not _SHOWN_BY_NODES.isdisjoint(values):
        announce_changed_nodes(task.connection, task.now, compute_nodes.c.group_uuid == item.uuid)
