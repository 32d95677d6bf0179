"""OP_INSTANCE_MULTI_ALLOC: several instances, each by a job of its own (contracts/ganeti-rapi, 5)."""

from typing import Annotated

from pydantic import Field

from cells.job_numbers import job_number
from operations.jobs.errors import PrerequisiteError
from operations.jobs.model import NewJob
from operations.jobs.queue import add_jobs
from operations.jobs.vocabulary import Operation, Task
from operations.opcodes.building import operation
from operations.opcodes.instances.create import CREATE
from operations.opcodes.instances.create_parameters import InstanceCreate, check_input
from operations.opcodes.instances.new import add_instance
from operations.opcodes.opcode import OpCode


class InstanceMultiAlloc(OpCode):
    """The result: `allocatable` and `failed`, names of instances that have room and that have none, and `jobs`."""

    OP_ID = "OP_INSTANCE_MULTI_ALLOC"

    instances: Annotated[list[InstanceCreate], Field(max_length=1000)]
    iallocator: str | None = None
    opportunistic_locking: bool = False


def _allocate(op: InstanceMultiAlloc, task: Task) -> None:
    """Try them together, and then leave each to its job, which takes what it needs."""
    allocatable: list[InstanceCreate] = []
    failed: list[str | None] = []
    attempt = task.connection.begin_nested()
    for instance in op.instances:
        # Of a trial nothing is announced outside of this transaction, or in the fleet database.
        trial = instance.model_copy(update={"dry_run": True})
        try:
            check_input(trial)
            add_instance(trial, task, trial.to_operation_of_new().instance_uuid)
        except PrerequisiteError as error:
            task.log(f"{instance.instance_name}: {error}")
            failed.append(instance.instance_name)
        else:
            allocatable.append(instance)
    attempt.rollback()
    jobs = [] if op.dry_run else [NewJob([each.to_operation_of_new()], task.job.request) for each in allocatable]
    numbers = add_jobs(task.connection, dict(CREATE), jobs, task.now)
    task.job.result = {
        "jobs": [[True, job_number(task.cell, number)] for number in numbers],
        "allocatable": [each.instance_name for each in allocatable],
        "failed": failed,
    }


SEVERAL: tuple[tuple[str, Operation], ...] = (operation(InstanceMultiAlloc, _allocate),)
