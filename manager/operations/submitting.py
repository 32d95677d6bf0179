"""Submits jobs of Ganeti's operations to a native cell, and says what they are called.

What is wrong with the state of things is found by the job itself, and ends it (contracts/ganeti-rapi, 2).
"""

from collections.abc import Sequence

from sqlalchemy import Connection, Engine

from fleetlight.cells.database.engines import cell_failures, writing
from fleetlight.cells.job_numbers import job_number
from fleetlight.cells.model import Cell, RequestContext
from fleetlight.manager.operations.jobs.model import NewJob, NewOperation
from fleetlight.manager.operations.jobs.queue import add_jobs
from fleetlight.manager.operations.opcodes.filters.applying import apply_filters
from fleetlight.manager.operations.opcodes.named_instances import instances_called
from fleetlight.manager.operations.opcodes.opcode import OpCode, dependencies_of
from fleetlight.manager.operations.vocabulary import ALL_OPERATIONS
from fleetlight.resources.clock import Clock, system_clock


class JobSubmission:
    """Takes jobs for one native cell. Calls raise CellUnreachableError when its database does not answer."""

    def __init__(self, engine: Engine, cell: Cell, clock: Clock = system_clock) -> None:
        self._engine = engine
        self._cell = cell
        self._clock = clock

    def submit(self, opcodes: Sequence[OpCode], request: RequestContext) -> int:
        """Queue a job of these operations, and return its number in the fleet. Raises OtherCellError."""
        depends_on = {
            job_id: statuses for opcode in opcodes for job_id, statuses in dependencies_of(opcode, self._cell).items()
        }
        priority = min(opcode.priority for opcode in opcodes)
        with cell_failures(self._cell.name), writing(self._engine) as connection:
            operations = [_operation(connection, opcode) for opcode in opcodes]
            job = NewJob(operations, request, priority, depends_on)
            now = self._clock()
            [job_id] = add_jobs(connection, ALL_OPERATIONS, [job], now)
            apply_filters(connection, self._cell, now, [job_id])
        return job_number(self._cell, job_id)


def _operation(connection: Connection, opcode: OpCode) -> NewOperation:
    """Of an instance that is not there, or not the only one of its name, the check of the operation tells."""
    if opcode.makes_instance:
        return opcode.to_operation_of_new()
    if opcode.instance is None:
        return opcode.to_operation()
    found = instances_called(connection, opcode.instance)
    return opcode.to_operation(found[0] if len(found) == 1 else None)
