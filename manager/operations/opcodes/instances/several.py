"""OP_INSTANCE_MULTI_ALLOC: create several instances, each by a job of its own (contracts/ganeti-rapi, 5)."""

from typing import Annotated

from pydantic import Field

from fleetlight.cells.job_numbers import job_number
from fleetlight.manager.operations.jobs.errors import PrerequisiteError, Reason
from fleetlight.manager.operations.jobs.model import NewJob
from fleetlight.manager.operations.jobs.queue import add_jobs
from fleetlight.manager.operations.jobs.vocabulary import Operation, Task
from fleetlight.manager.operations.opcodes.building import operation
from fleetlight.manager.operations.opcodes.filters.applying import apply_filters
from fleetlight.manager.operations.opcodes.instances.add_instance import add_instance
from fleetlight.manager.operations.opcodes.instances.create import CREATE
from fleetlight.manager.operations.opcodes.instances.create_parameters import InstanceCreate, check_input
from fleetlight.manager.operations.opcodes.opcode import OpCode, OtherCellError, dependencies_of
from fleetlight.manager.operations.scheduling.select_destinations import wait_for_several_nodes


class InstanceMultiAlloc(OpCode):
    """Create instances. Its result names those with room (`allocatable`) and without (`failed`), and has `jobs`."""

    OP_ID = "OP_INSTANCE_MULTI_ALLOC"

    instances: Annotated[list[InstanceCreate], Field(max_length=1000)]
    iallocator: str | None = None
    opportunistic_locking: bool = False


def _allocate(op: InstanceMultiAlloc, task: Task) -> None:
    """Try all claims together, roll back, and queue a job for each instance that had room."""
    allocatable: list[InstanceCreate] = []
    failed: list[str | None] = []
    refused: list[str] = []
    # The trials claim several nodes, in any order.
    wait_for_several_nodes(task.connection)
    attempt = task.connection.begin_nested()
    for instance in op.instances:
        trial_of_one = task.connection.begin_nested()
        # A trial run writes nothing to the fleet database.
        trial = instance.model_copy(update={"dry_run": True})
        try:
            _try(trial, task)
        except PrerequisiteError as error:
            # Release its claims for the others.
            trial_of_one.rollback()
            refused.append(f"{instance.instance_name}: {error}")
            failed.append(instance.instance_name)
        else:
            trial_of_one.commit()
            allocatable.append(instance)
    attempt.rollback()
    for text in refused:
        task.log(text)
    jobs = [] if op.dry_run else [_job(each, task) for each in allocatable]
    numbers = add_jobs(task.connection, dict(CREATE), jobs, task.now)
    if numbers:
        apply_filters(task.connection, task.cell, task.now, numbers)
    task.job.result = {
        "jobs": [[True, job_number(task.cell, number)] for number in numbers],
        "allocatable": [each.instance_name for each in allocatable],
        "failed": failed,
    }


def _try(trial: InstanceCreate, task: Task) -> None:
    if trial.commit:
        raise PrerequisiteError("Reservations are made real one by one", Reason.WRONG_INPUT)
    try:
        dependencies_of(trial, task.cell)
    except OtherCellError as error:
        raise PrerequisiteError(str(error), Reason.WRONG_INPUT) from error
    check_input(trial)
    add_instance(trial, task, trial.to_operation_of_new().instance_uuid)


def _job(op: InstanceCreate, task: Task) -> NewJob:
    return NewJob([op.to_operation_of_new()], task.job.request, op.priority, dependencies_of(op, task.cell))


SEVERAL: tuple[tuple[str, Operation], ...] = (operation(InstanceMultiAlloc, _allocate),)
