"""Application of job filters: to new jobs, and to all jobs that have not begun when filters change.

A held job stays queued, is not ready, and requests no locks, so no job waits for it. Filters apply to jobs of Ganeti's
operations only: the compute API has accepted its actions already, and shows no jobs to its callers.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from sqlalchemy import Connection, Engine, case, select, update

from fleetlight.cells.database.engines import cell_failures, writing
from fleetlight.cells.database.locks import wait_for_lock
from fleetlight.cells.job_numbers import job_number
from fleetlight.cells.job_words import OPCODE
from fleetlight.cells.kinds.native.items.json_columns import as_text, decoded, decoded_or
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import job_filters, job_operations, jobs
from fleetlight.manager.operations.jobs.ending import end_jobs
from fleetlight.manager.operations.jobs.errors import JobCanceledError
from fleetlight.manager.operations.jobs.locks import give_up_locks
from fleetlight.manager.operations.jobs.model import ENDED, Stage, Status
from fleetlight.manager.operations.opcodes.filters.predicates import FilteredJob, PredicateError, check_predicate, holds
from fleetlight.resources.clock import Clock, system_clock

RATE_LIMIT = "RATE_LIMIT"
_FILTERS = select(
    job_filters.c.uuid, job_filters.c.watermark, as_text(job_filters.c.predicates), as_text(job_filters.c.action)
).order_by(job_filters.c.priority, job_filters.c.watermark, job_filters.c.uuid)


@dataclass(frozen=True, slots=True)
class _Filter:
    """A stored filter. watermark: the fleet's number of the newest job when the filter was made."""

    uuid: str
    predicates: Sequence[Sequence[Any]]
    action: Any
    watermark: int

    @property
    def limit(self) -> int | None:
        """How many jobs may run at once; None for other actions."""
        match self.action:
            case [str() as word, int() as limit] if word == RATE_LIMIT:
                return limit
        return None


@dataclass(frozen=True, slots=True)
class _Job:
    """A job that has not ended. is_held: whether a filter keeps it from beginning."""

    id: int
    filtered: FilteredJob
    has_begun: bool
    is_held: bool
    stage: str


class HeldJobs:
    """Releases the jobs of a native cell that a rate limit holds, when others have ended."""

    def __init__(self, engine: Engine, cell: Cell, clock: Clock = system_clock) -> None:
        self._engine = engine
        self._cell = cell
        self._clock = clock

    @staticmethod
    def rest_s() -> float:
        """Return the seconds until a job may be released without a commit: infinite."""
        return inf

    def release(self) -> int:
        """Release held jobs that may begin now; returns how many. Raises CellUnreachableError."""
        with cell_failures(self._cell.name):
            # Read without the write lock, of which SQLite has only one.
            with self._engine.connect() as connection:
                if not any(each.limit is not None for each in _filters(connection, self._cell)):
                    return 0
            with writing(self._engine) as connection:
                return apply_filters(connection, self._cell, self._clock())


def apply_filters(connection: Connection, cell: Cell, now: int, only: Collection[int] | None = None) -> int:
    """Hold, reject or release jobs that have not begun; returns how many held jobs were released.

    only: the cell's numbers of the jobs to decide; None: all.
    """
    filters = _filters(connection, cell)
    if not filters and only is not None:
        return 0
    has_limits = any(each.limit is not None for each in filters)
    if has_limits:
        # Two transactions that count concurrently would each find room for the same job.
        wait_for_lock(connection, "limits of job filters")
    under_way = Counter[str]()
    released = 0
    undecided: list[tuple[_Job, _Filter | None]] = []
    for job in _jobs(connection, cell, None if has_limits else only):
        chosen = _first_that_fits(filters, job.filtered)
        if job.has_begun or (only is not None and job.id not in only):
            under_way[chosen.uuid if chosen else ""] += not job.is_held
        else:
            undecided.append((job, chosen))
    # Running jobs count first, whatever their numbers, since a later job may have begun earlier.
    for job, chosen in undecided:
        if chosen is not None and chosen.action == "REJECT":
            if _lock(connection, job):
                end_jobs(connection, [job.id], Status.CANCELED, JobCanceledError(job.filtered.number), now)
        elif chosen is not None and _holds_back(chosen, under_way[chosen.uuid]):
            if not job.is_held and _lock(connection, job):
                _hold(connection, job)
        else:
            under_way[chosen.uuid if chosen else ""] += 1
            released += _release(connection, job)
    return released


def _filters(connection: Connection, cell: Cell) -> Sequence[_Filter]:
    """Return the filters in order of application, without damaged ones."""
    found = []
    for row in connection.execute(_FILTERS):
        predicates = decoded_or(row.predicates, [["damaged", None]])
        try:
            for predicate in predicates:
                check_predicate(*predicate)
        except (PredicateError, TypeError):
            continue
        watermark = job_number(cell, row.watermark) if row.watermark else 0
        found.append(_Filter(row.uuid, predicates, decoded(row.action), watermark))
    return found


def _first_that_fits(filters: Sequence[_Filter], job: FilteredJob) -> _Filter | None:
    for each in filters:
        if each.action != "CONTINUE" and all(
            holds(name, expression, job, each.watermark) for name, expression in each.predicates
        ):
            return each
    return None


def _holds_back(chosen: _Filter, under_way: int) -> bool:
    return chosen.action == "PAUSE" or (chosen.limit is not None and under_way >= chosen.limit)


def _jobs(connection: Connection, cell: Cell, only: Collection[int] | None) -> Sequence[_Job]:
    """Return the jobs of Ganeti's operations by number: the given ones, or all that have not ended."""
    columns = job_operations.c
    wanted = jobs.c.status.not_in(ENDED) if only is None else jobs.c.id.in_(only)
    operations = defaultdict[int, list[dict[str, Any]]](list)
    statement = (
        select(columns.job_id, columns.operation, as_text(columns.parameters))
        .join_from(job_operations, jobs, jobs.c.id == columns.job_id)
        .where(wanted, columns.operation.startswith(OPCODE, autoescape=True))
        .order_by(columns.job_id, columns.position)
    )
    for row in connection.execute(statement):
        operations[row.job_id].append({"OP_ID": row.operation, **decoded_or(row.parameters, {})})
    has_begun = case((jobs.c.started_at.is_not(None), 1), (jobs.c.status != Status.QUEUED, 1), else_=0)
    columns_of_job = (jobs.c.id, jobs.c.is_ready, jobs.c.stage, has_begun.label("has_begun"))
    found = connection.execute(select(*columns_of_job).where(wanted).order_by(jobs.c.id))
    return [
        _Job(
            row.id,
            FilteredJob(job_number(cell, row.id), operations[row.id]),
            bool(row.has_begun),
            not row.has_begun and not row.is_ready,
            row.stage,
        )
        for row in found
        if row.id in operations
    ]


def _lock(connection: Connection, job: _Job) -> bool:
    """Lock the row of a job; returns False if it has begun, or a worker has locked it to begin it."""
    has_not_begun = jobs.c.started_at.is_(None), jobs.c.status == Status.QUEUED
    statement = select(jobs.c.id).where(jobs.c.id == job.id, *has_not_begun).with_for_update(skip_locked=True)
    return connection.execute(statement).first() is not None


def _hold(connection: Connection, job: _Job) -> None:
    give_up_locks(connection, [job.id], have_ended=False)
    stage = job.stage if job.stage == Stage.DEPENDENCIES else Stage.REQUEST
    connection.execute(update(jobs).where(jobs.c.id == job.id).values(is_ready=False, stage=stage))


def _release(connection: Connection, job: _Job) -> bool:
    if not job.is_held or not _lock(connection, job):
        return False
    connection.execute(update(jobs).where(jobs.c.id == job.id).values(is_ready=True))
    return True
