"""Operations that change the configuration of a cell: its rows alone, without calls of nodes."""

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
"""Result of Ganeti's `modify` operations: [name, value] of each changed parameter."""
# Fields of a group that its nodes show.
_SHOWN_BY_NODES = frozenset({"name", "ndparams"})


def configuring(
    opcode: type[Op],
    plan: Callable[[Op, Task], Plan],
    carry_out: Callable[[Plan, Task], Any],
    *,
    locks: Callable[[Op, str | None], Collection[Lock]] = no_locks,
    call: MakeCall | None = None,
) -> tuple[str, Operation]:
    """Return an entry of a vocabulary.

    plan: returns the changes, or raises PrerequisiteError. It runs in the check, and again in the transaction that
    makes the changes, because the compute API changes hosts without a job. carry_out: makes the changes, and returns
    the result of the job. call: makes the call of a node that comes before.
    """

    def check(op: Op, task: Task) -> None:
        plan(op, task)

    def run(task: Task) -> None:
        task.job.result = carry_out(plan(opcode.read(task.parameters), task), task)

    return operation(opcode, check, Step(run, call=call), locks=locks)


def change_item(task: Task, table: Table, item: Row[Any], values: Mapping[str, Any]) -> None:
    """Update a row with its serial number and time, and announce the nodes whose fields show the change."""
    task.connection.execute(
        update(table)
        .where(table.c.uuid == item.uuid)
        .values(**values, serial_no=table.c.serial_no + 1, updated_at=task.now)
    )
    if table is compute_nodes:
        announce_changed_nodes(task.connection, task.now, compute_nodes.c.uuid == item.uuid)
    elif table is node_groups and not _SHOWN_BY_NODES.isdisjoint(values):
        announce_changed_nodes(task.connection, task.now, compute_nodes.c.group_uuid == item.uuid)
