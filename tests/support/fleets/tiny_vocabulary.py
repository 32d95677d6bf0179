"""A second vocabulary for the engine of jobs: operations about nothing, and a cell whose jobs consist of them."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Engine, select

from fleetlight.cells.database.engines import writing
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.job_numbers import job_number
from fleetlight.cells.model import NO_REQUEST, Cell, RequestContext
from fleetlight.cells.tables import job_locks, job_log, job_operations, jobs
from fleetlight.manager.operations.jobs.model import Lock, NewJob, NewOperation, Status
from fleetlight.manager.operations.jobs.nodes import NodeCall, Nodes
from fleetlight.manager.operations.jobs.queue import add_jobs
from fleetlight.manager.operations.jobs.vocabulary import Operation, Step, Task
from fleetlight.manager.operations.jobs.worker import Worker
from fleetlight.resources.clock import Clock, system_clock

_LONGEST = 4


def _locks(parameters: Mapping[str, Any], _instance_uuid: str | None) -> Collection[Lock]:
    return [Lock("node", name, is_shared) for name, is_shared in parameters.get("locks", {}).items()]


def _say(number: int) -> Callable[[Task], None]:
    def run(task: Task) -> None:
        task.log(f"step {number}")
        task.job.result = {"steps": number + 1}

    return run


def _needs(number: int) -> Callable[[Task], bool]:
    return lambda task: bool(number < task.parameters.get("steps", 1))


def _fail(_task: Task) -> None:
    raise ValueError("it cannot be done")


def _start(task: Task) -> NodeCall:
    return NodeCall("host1", "start", task.parameters)


def _keep_answer(task: Task) -> None:
    task.job.result = task.answer


_STEPS = tuple(Step(_say(number), _needs(number)) for number in range(_LONGEST))
TINY = {
    # As many steps as its parameters say; it needs the locks that they name.
    "no-op": Operation(_STEPS, _locks),
    "fail": Operation((_STEPS[0], Step(_fail)), _locks),
    "start": Operation((_STEPS[0], Step(_keep_answer, call=_start)), _locks),
}


def no_op(steps: int = 1, **locks: bool) -> NewOperation:
    """locks: their names, and whether they are shared."""
    return NewOperation("no-op", {"steps": steps, "locks": locks})


@dataclass
class RememberingNodes:
    """Nodes that keep what they were called for; `failure` is raised instead of an answer."""

    calls: list[tuple[str, NodeCall]] = field(default_factory=list)
    failure: BaseException | None = None
    on_call: Callable[[], object] = lambda: None

    def call(self, call: NodeCall, key: str) -> Any:
        self.calls.append((key, call))
        self.on_call()
        if self.failure is not None:
            raise self.failure
        return f"{call.name} done"


class JobCell:
    """A cell whose jobs consist of the operations of TINY."""

    def __init__(
        self, engine: Engine, fleet: Fleet, cell: Cell, nodes: Nodes | None = None, clock: Clock = system_clock
    ) -> None:
        self.engine = engine
        self.fleet = fleet
        self.cell = cell
        self.nodes = nodes or RememberingNodes()
        self.clock = clock
        self.worker = self.new_worker()

    def new_worker(self) -> Worker:
        return Worker(self.engine, self.fleet, self.cell, TINY, self.nodes, clock=self.clock)

    def add(
        self,
        *operations: NewOperation,
        priority: int = 0,
        depends_on: Mapping[int, Collection[Status]] | None = None,
        request: RequestContext = NO_REQUEST,
    ) -> int:
        job = NewJob(operations, request, priority=priority, depends_on=depends_on or {})
        with writing(self.engine) as connection:
            [job_id] = add_jobs(connection, TINY, [job], self.clock())
        return job_id

    def number(self, job_id: int) -> int:
        """Of a job in the fleet."""
        return job_number(self.cell, job_id)

    def work(self) -> None:
        while self.worker.run_once():
            pass

    def job(self, job_id: int) -> Any:
        with self.engine.connect() as connection:
            return connection.execute(select(jobs).where(jobs.c.id == job_id)).one()

    def status(self, job_id: int) -> str:
        status: str = self.job(job_id).status
        return status

    def operations(self, job_id: int) -> Sequence[Any]:
        statement = select(job_operations).where(job_operations.c.job_id == job_id).order_by(job_operations.c.position)
        with self.engine.connect() as connection:
            return connection.execute(statement).all()

    def log(self, job_id: int) -> Sequence[tuple[int, int, str]]:
        columns = job_log.c
        statement = select(columns.serial, columns.position, columns.data).where(columns.job_id == job_id)
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.execute(statement.order_by(columns.serial))]

    def locks(self) -> Sequence[Any]:
        with self.engine.connect() as connection:
            return connection.execute(select(job_locks).order_by(job_locks.c.name, job_locks.c.job_id)).all()

    def held(self) -> dict[str, list[int]]:
        """The jobs that hold each lock, by its name."""
        held: dict[str, list[int]] = {}
        for lock in self.locks():
            if lock.held_at is not None:
                held.setdefault(lock.name, []).append(lock.job_id)
        return held


def status_of(operations: Sequence[str]) -> str:
    """The status of a job by those of its operations, as Ganeti has it."""
    for status in operations:
        if status in {Status.ERROR, Status.CANCELED, Status.CANCELING}:
            return status
    under_way = [status for status in operations if status in {Status.WAITING, Status.RUNNING}]
    if under_way:
        return under_way[-1]
    return Status.SUCCESS if set(operations) == {Status.SUCCESS} else Status.QUEUED


def conflicts(one: Any, other: Any) -> bool:
    """Whether two rows of locks, of different jobs, are in each other's way."""
    same = (one.level, one.name) == (other.level, other.name) and one.job_id != other.job_id
    return same and not (one.is_shared and other.is_shared)
