"""The locks of jobs, which are rows: an operation takes all of its locks together or none, in the order of jobs.

A job blocks another one if both name a lock that they do not both share, and it holds the lock, or wants it and is
earlier (by priority, then number). So there are no deadlocks, and no job waits for ever. Every transaction that takes
or releases locks first locks their names until its end (PostgreSQL; SQLite has one writer at a time), in a fixed order,
and so sees the changes of the others. A waiting job becomes ready when a lock is released for which it is next.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import (
    BigInteger,
    BindParameter,
    ColumnElement,
    CompoundSelect,
    Connection,
    Select,
    Subquery,
    TextClause,
    and_,
    bindparam,
    delete,
    exists,
    insert,
    literal,
    or_,
    select,
    text,
    tuple_,
    union_all,
    update,
)

from fleetlight.cells.tables import job_dependencies, job_locks, jobs
from fleetlight.manager.operations.jobs.model import Lock, Status

_WAIT = """
    SELECT pg_advisory_xact_lock(hashtextextended(key, 0))
    FROM (SELECT DISTINCT key COLLATE "C" AS key FROM ({keys}) AS keys ORDER BY key) AS ordered
"""
_KEYS_OF_JOBS = """
    SELECT 'job lock ' || level || ' ' || name AS key FROM job_locks WHERE job_id = ANY(:ids)
    UNION ALL SELECT 'end of job ' || id AS key FROM unnest(CAST(:ids AS bigint[])) AS id
"""
_KEYS_OF_DEPENDENCIES = """
    SELECT 'end of job ' || depends_on AS key FROM job_dependencies WHERE job_id = ANY(:ids)
"""
# Parameters of the statements.
_JOB, _JOBS, _PAIR = "of_job", "of_jobs", ("level", "name")
_OF_JOB = bindparam(_JOB, type_=BigInteger)
_OF_JOBS = bindparam(_JOBS, type_=BigInteger, expanding=True)
_WAIT_FOR_JOBS = text(_WAIT.format(keys=_KEYS_OF_JOBS))
_WAIT_FOR_DEPENDENCIES = text(_WAIT.format(keys=_KEYS_OF_DEPENDENCIES))


def want_locks(connection: Connection, wanted: Iterable[tuple[int, int, Lock]], now: int) -> None:
    """Request locks of operations. wanted: the number of a job, its priority, and a lock."""
    rows = [
        {
            "job_id": job_id,
            "level": lock.level,
            "name": lock.name,
            "is_shared": lock.is_shared,
            "priority": priority,
            "wanted_at": now,
        }
        for job_id, priority, lock in wanted
    ]
    if rows:
        connection.execute(_WANT, rows)


def take_locks(connection: Connection, job_id: int, now: int) -> bool:
    """Take all requested locks of a job; returns False, and takes none, if another job blocks one of them."""
    _lock_names(connection, [job_id], _WAIT_FOR_JOBS)
    taken = connection.execute(_TAKE, {_JOB: job_id, "held_at": now})
    # Without taken rows, either another job blocks it, or it needs no locks.
    return taken.rowcount > 0 or connection.execute(_ANY, {_JOB: job_id}).first() is None


def give_up_locks(
    connection: Connection, job_ids: Sequence[int], *, have_ended: bool, have_locked_names: bool = False
) -> None:
    """Release locks and requests of jobs; jobs that are next for them, or wait for the jobs' end, become ready.

    have_locked_names: whether the jobs have taken their locks in this transaction.
    The transaction must not have written to rows of these jobs before, unless they were ready: another transaction that
    makes them ready locks the names first.
    """
    if not have_locked_names:
        _lock_names(connection, job_ids, _WAIT_FOR_JOBS)
    given_up = sorted({(row.level, row.name) for row in connection.execute(_GIVE_UP, {_JOBS: list(job_ids)})})
    names = {
        f"{what}{number}": value
        for number, pair in enumerate(given_up)
        for what, value in zip(_PAIR, pair, strict=True)
    }
    if not given_up and not have_ended:
        return
    found = connection.execute(_woken(len(given_up), have_ended), {_JOBS: list(job_ids), **names}).all()
    ready = {row.job_id for row in found}
    for row in found:
        if row.is_shared:
            ready |= _sharing(connection, row.level, row.name)
    if ready:
        # Skip ready jobs: a worker may have locked one while it waits for the names, which would be a deadlock.
        wakes = jobs.c.id.in_(ready), jobs.c.status == Status.WAITING, jobs.c.is_ready.is_(False)
        in_order = select(jobs.c.id).where(*wakes).order_by(jobs.c.id).with_for_update()
        connection.execute(update(jobs).where(jobs.c.id.in_(in_order)).values(is_ready=True))


def wait_for_ends(connection: Connection, job_id: int) -> None:
    """Wait for transactions that are ending jobs on which this one depends."""
    _lock_names(connection, [job_id], _WAIT_FOR_DEPENDENCIES)


def _lock_names(connection: Connection, job_ids: Sequence[int], keys: TextClause) -> None:
    if connection.dialect.name != "sqlite":
        connection.execute(keys, {"ids": list(job_ids)})


def _is_kept_from(job_id: BindParameter[int]) -> ColumnElement[bool]:
    """Whether another job blocks one of the requested locks of a job."""
    mine, theirs = job_locks.alias("mine"), job_locks.alias("theirs")
    conflicts = and_(
        theirs.c.level == mine.c.level,
        theirs.c.name == mine.c.name,
        theirs.c.job_id != job_id,
        or_(mine.c.is_shared.is_(False), theirs.c.is_shared.is_(False)),
    )
    is_earlier = or_(
        theirs.c.priority < mine.c.priority,
        and_(theirs.c.priority == mine.c.priority, theirs.c.job_id < mine.c.job_id),
    )
    # Compare only with the first in line, which an index finds without reading the others.
    first_is_earlier = (
        select(is_earlier)
        .where(conflicts)
        .order_by(theirs.c.priority, theirs.c.job_id)
        .limit(1)
        .correlate(mine)
        .scalar_subquery()
    )
    is_held = exists().where(conflicts, theirs.c.held_at.is_not(None)).correlate(mine)
    return exists().where(mine.c.job_id == job_id, or_(is_held, first_is_earlier)).correlate(None)


@lru_cache
def _woken(count: int, have_ended: bool) -> CompoundSelect[Any]:  # of a cache
    """Select the jobs next in line for each of `count` locks, and those that wait for jobs, if these have ended."""
    choices: list[Select[Any]] = [select(_next_in_line(number)) for number in range(count)]
    if have_ended:
        nothing = (literal(value=False).label("is_shared"), literal("").label("level"), literal("").label("name"))
        choices.append(select(job_dependencies.c.job_id, *nothing).where(job_dependencies.c.depends_on.in_(_OF_JOBS)))
    return union_all(*choices)


def _next_in_line(number: int) -> Subquery:
    """Select the jobs next in line for one lock. number: of the lock among the statement's parameters."""
    columns = job_locks.c
    level, name = (bindparam(f"{what}{number}", type_=columns[what].type) for what in _PAIR)
    return (
        select(columns.job_id, columns.is_shared, columns.level, columns.name)
        .where(columns.level == level, columns.name == name, columns.held_at.is_(None))
        .order_by(columns.priority, columns.job_id)
        .limit(1)
        .subquery()
    )


def _sharing(connection: Connection, level: str, name: str) -> set[int]:
    """Return the jobs that want to share a lock, up to the first that wants it exclusively."""
    earlier = job_locks.alias("earlier")
    is_behind = exists().where(
        earlier.c.level == level,
        earlier.c.name == name,
        earlier.c.held_at.is_(None),
        earlier.c.is_shared.is_(False),
        tuple_(earlier.c.priority, earlier.c.job_id) < tuple_(job_locks.c.priority, job_locks.c.job_id),
    )
    statement = select(job_locks.c.job_id).where(
        job_locks.c.level == level,
        job_locks.c.name == name,
        job_locks.c.held_at.is_(None),
        job_locks.c.is_shared,
        ~is_behind,
    )
    return set(connection.execute(statement).scalars())


# Built once, since building statements takes as long as executing them.
_WANT = insert(job_locks)
_TAKE = update(job_locks).where(job_locks.c.job_id == _OF_JOB, ~_is_kept_from(_OF_JOB))
_ANY = select(job_locks.c.name).where(job_locks.c.job_id == _OF_JOB)
_GIVE_UP = delete(job_locks).where(job_locks.c.job_id.in_(_OF_JOBS)).returning(job_locks.c.level, job_locks.c.name)
