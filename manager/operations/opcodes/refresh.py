"""The operation that reads the whole state of nodes into the cache, and its periodic job.

Contract: contracts/ganeti-node-state-cache, 9.
"""

import random
from math import inf

from pydantic import Field
from sqlalchemy import Connection, Engine, exists, select, update

from fleetlight.cells.database.engines import cell_failures, writing
from fleetlight.cells.model import NO_REQUEST, Cell
from fleetlight.cells.tables import compute_nodes, job_operations, periodic_jobs
from fleetlight.manager.operations.jobs.model import NewJob
from fleetlight.manager.operations.jobs.nodes import NodeCall
from fleetlight.manager.operations.jobs.queue import add_jobs
from fleetlight.manager.operations.jobs.vocabulary import Operation, Step, Task
from fleetlight.manager.operations.nodes.differences import Differences, Observation
from fleetlight.manager.operations.nodes.refreshing import ALL_NODES, REFRESH
from fleetlight.manager.operations.opcodes.building import operation
from fleetlight.manager.operations.opcodes.lookups import known_node
from fleetlight.manager.operations.opcodes.opcode import OpCode
from fleetlight.resources.clock import Clock, system_clock
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

# Fraction of the interval, so that cells that were started together do not refresh together for ever.
_JITTER = 0.1


class NodeSnapshotRefresh(OpCode):
    """Refresh nodes. nodes: names; empty: all online nodes with agents. bypass: whether to ignore cached state."""

    OP_ID = "OP_NODE_SNAPSHOT_REFRESH"

    nodes: list[str] = Field(default_factory=list)
    bypass: bool = True


def _check(op: NodeSnapshotRefresh, task: Task) -> None:
    names = (known_node(task, name).hypervisor_hostname for name in op.nodes)
    task.notes["nodes"] = list(dict.fromkeys(names))


def _call(task: Task) -> NodeCall:
    bypass = NodeSnapshotRefresh.read(task.parameters).bypass
    return NodeCall(ALL_NODES, REFRESH, {"nodes": task.notes["nodes"], "bypass": bypass})


def _note(task: Task) -> None:
    found = Observation(**task.answer)
    # Serialize refreshes, since two jobs may find the same deviations.
    row = select(periodic_jobs.c.due_at).where(periodic_jobs.c.operation == NodeSnapshotRefresh.OP_ID)
    task.connection.execute(row.with_for_update())
    Differences(task.connection, task.cell, task.now).note(found)
    for name, is_ok, text in found.results:
        if not is_ok:
            task.log(f"{name}: {text}")
    task.job.result = found.results


REFRESHING: tuple[tuple[str, Operation], ...] = (operation(NodeSnapshotRefresh, _check, Step(_note, call=_call)),)


class Refresher:
    """Queues a refresh when it is due in a cell whose nodes have agents; any worker of the cell may.

    interval_s: mean time between two refreshes.
    """

    def __init__(self, engine: Engine, cell: Cell, interval_s: float, clock: Clock = system_clock) -> None:
        self._engine = engine
        self._cell = cell
        self._interval_s = interval_s
        self._clock = clock
        self._next_at: int | None = None

    def rest_s(self) -> float:
        """Return the seconds until a refresh is due, as known from the last `submit`."""
        return inf if self._next_at is None else (self._next_at - self._clock()) / MICROSECONDS_PER_SECOND

    def submit(self) -> int:
        """Queue a job if one is due and none is queued or runs; returns how many. Raises CellUnreachableError."""
        with cell_failures(self._cell.name):
            # Read without the write lock, of which SQLite has only one.
            with self._engine.connect() as connection:
                if not self._is_due(connection):
                    return 0
            with writing(self._engine) as connection:
                if not self._take(connection) or _is_under_way(connection):
                    return 0
                job = NewJob([NodeSnapshotRefresh().to_operation()], NO_REQUEST)
                return len(add_jobs(connection, dict(REFRESHING), [job], self._clock()))

    def _is_due(self, connection: Connection) -> bool:
        columns = periodic_jobs.c
        has_agents = exists(select(compute_nodes.c.id).where(compute_nodes.c.agent_address.is_not(None)))
        statement = select(columns.due_at).where(columns.operation == NodeSnapshotRefresh.OP_ID, has_agents)
        self._next_at = connection.execute(statement).scalar()
        return self._next_at is not None and self._next_at <= self._clock()

    def _take(self, connection: Connection) -> bool:
        """Set the next due time; returns whether the refresh was still due."""
        columns = periodic_jobs.c
        interval_s = self._interval_s * random.uniform(1 - _JITTER, 1 + _JITTER)  # noqa: S311 -- no secret
        now = self._clock()
        statement = update(periodic_jobs).where(columns.operation == NodeSnapshotRefresh.OP_ID, columns.due_at <= now)
        return (
            connection.execute(statement.values(due_at=now + round(interval_s * MICROSECONDS_PER_SECOND))).rowcount == 1
        )


def postpone_refresh(engine: Engine, cell: Cell, by_s: float, clock: Clock = system_clock) -> None:
    """Let no periodic refresh begin for `by_s` seconds, while agents are starting. Raises CellUnreachableError."""
    columns, due_at = periodic_jobs.c, clock() + round(by_s * MICROSECONDS_PER_SECOND)
    is_earlier = (columns.operation == NodeSnapshotRefresh.OP_ID, columns.due_at < due_at)
    with cell_failures(cell.name), writing(engine) as connection:
        connection.execute(update(periodic_jobs).where(*is_earlier).values(due_at=due_at))


def _is_under_way(connection: Connection) -> bool:
    columns = job_operations.c
    is_one = (columns.operation == NodeSnapshotRefresh.OP_ID, columns.ended_at.is_(None))
    return connection.execute(select(columns.job_id).where(*is_one).limit(1)).first() is not None
