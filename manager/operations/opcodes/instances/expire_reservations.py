"""Expiry of reservations: a job for each, which ends it if it still is a reservation."""

from math import inf

from sqlalchemy import Engine

from fleetlight.cells.database.engines import cell_failures, writing
from fleetlight.cells.model import NO_REQUEST, Cell
from fleetlight.manager.operations.jobs.maintenance import AT_ONCE
from fleetlight.manager.operations.jobs.model import NewJob
from fleetlight.manager.operations.jobs.queue import add_jobs
from fleetlight.manager.operations.jobs.vocabulary import Operation, Step, Task
from fleetlight.manager.operations.opcodes.building import instance_lock, operation
from fleetlight.manager.operations.opcodes.instances.remove import remove_reservation
from fleetlight.manager.operations.opcodes.instances.reservation_expiries import expired, is_over, next_expiry
from fleetlight.manager.operations.opcodes.opcode import InstanceOpCode
from fleetlight.resources.clock import Clock, system_clock
from fleetlight.resources.units import MICROSECONDS_PER_SECOND


class InstanceExpire(InstanceOpCode):
    """End a reservation; an operation of Fleetlight, since Ganeti's reservations do not expire."""

    OP_ID = "OP_INSTANCE_EXPIRE"


def _look(_op: InstanceExpire, task: Task) -> None:
    """Note whether it is still a reservation, and its time is over."""
    is_there = task.about is not None and not task.record["deleted"]
    is_reserved = is_there and task.record["forthcoming"]
    task.notes["is_over"] = is_reserved and is_over(task.connection, task.instance.uuid, task.now)


EXPIRE: tuple[tuple[str, Operation], ...] = (
    operation(
        InstanceExpire,
        _look,
        Step(lambda task: remove_reservation(task, "reservation.expire"), lambda task: task.notes["is_over"]),
        locks=instance_lock,
    ),
)


class Expirer:
    """Queues a job for each reservation of a cell whose time is over, and another one if that was canceled."""

    def __init__(self, engine: Engine, cell: Cell, clock: Clock = system_clock) -> None:
        self._engine = engine
        self._cell = cell
        self._clock = clock
        self._next_at: int | None = None

    def rest_s(self) -> float:
        """Return the seconds until a reservation expires, as known from the last `expire`."""
        return inf if self._next_at is None else (self._next_at - self._clock()) / MICROSECONDS_PER_SECOND

    def expire(self) -> int:
        """Queue jobs that end reservations, at most AT_ONCE; returns how many. Raises CellUnreachableError."""
        with cell_failures(self._cell.name):
            # Read without the write lock, of which SQLite has only one.
            with self._engine.connect() as connection:
                self._next_at = next_expiry(connection)
                if not expired(connection, self._clock(), 1, InstanceExpire.OP_ID):
                    return 0
            with writing(self._engine) as connection:
                now = self._clock()
                due = expired(connection, now, AT_ONCE, InstanceExpire.OP_ID)
                opcodes = [InstanceExpire(instance_name=uuid, instance_uuid=uuid) for uuid in due]
                jobs = [NewJob([opcode.to_operation(opcode.instance_uuid)], NO_REQUEST) for opcode in opcodes]
                add_jobs(connection, dict(EXPIRE), jobs, now)
        return len(due)
