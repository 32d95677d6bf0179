"""Whatever jobs come and whatever is killed: no two locks exclude each other, order is kept, every job ends."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings
from sqlalchemy import event, select
from structlog.testing import capture_logs

from fleetlight.cells.tables import jobs
from fleetlight.manager.operations.jobs.model import ENDED, JobPosition, NewOperation, Status
from fleetlight.manager.operations.jobs.queue import cancel_job
from fleetlight.manager.operations.jobs.worker import Worker
from tests.support.examples import examples
from tests.support.fleets.cell_databases import native_cell
from tests.support.fleets.tiny_vocabulary import TINY, JobCell, conflicts, status_of

_OPERATIONS = st.lists(
    st.builds(
        lambda name, steps, locks: NewOperation(name, {"steps": steps, "locks": locks}),
        st.sampled_from(["no-op", "no-op", "start", "fail"]),
        st.integers(1, 3),
        st.dictionaries(st.sampled_from("ab"), st.booleans()),
    ),
    min_size=1,
    max_size=3,
)
_ENDS = st.sets(st.sampled_from(sorted(ENDED)), min_size=1)
_JOBS = st.tuples(
    st.just("add"), _OPERATIONS, st.sampled_from([-10, 0, 10]), st.dictionaries(st.integers(0, 5), _ENDS, max_size=2)
)
_EVENTS = st.one_of(
    _JOBS,
    _JOBS,
    # Which of the jobs that are ready goes on: with several workers it may be any.
    *[st.tuples(st.just("work"), st.lists(st.integers(0, 4), min_size=1, max_size=8))] * 3,
    st.tuples(st.just("kill"), st.integers(0, 4), st.integers(1, 12)),
    st.tuples(st.just("cancel"), st.integers(0, 5)),
)
_FIRST = st.lists(_JOBS, min_size=3, max_size=5)


class Killed(BaseException):
    """The worker is killed here."""


class AnyWorker(Worker):
    """Begins with any of the jobs that are ready, as if other workers had those before it."""

    first = 0

    def _pages(self) -> Iterator[Sequence[JobPosition]]:
        places = [place for page in super()._pages() for place in page]
        first = self.first % len(places) if places else 0
        yield from ([place] for place in places[first:] + places[:first])


@settings(max_examples=examples(30), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_FIRST, st.lists(_EVENTS, max_size=20))
def test_jobs_exclude_each_other_keep_their_order_and_end(
    first: list[tuple[Any, ...]], later: list[tuple[Any, ...]]
) -> None:
    with job_cell() as world, capture_logs():
        checks, ids = Checks(world), list[int]()
        worker = AnyWorker(world.engine, world.fleet, world.cell, TINY, world.nodes)
        for name, *details in (*first, *later):
            if name == "add":
                operations, priority, others = details
                depends_on = {ids[place]: ends for place, ends in others.items() if place < len(ids)}
                ids.append(world.add(*operations, priority=priority, depends_on=depends_on))
            elif name == "cancel" and details[0] < len(ids):
                cancel_job(world.engine, world.cell, world.number(ids[details[0]]))
            elif name == "kill":
                worker.first = details[0]
                with suppress(Killed), killed_at(world, details[1]):
                    worker.run_once()
            elif name == "work":
                for worker.first in details[0]:
                    worker.run_once()
                    checks.run()
            checks.run()
        for _ in range(1000):
            if not worker.run_once():
                break
            checks.run()
        assert {world.status(job) for job in ids} <= ENDED
        assert world.locks() == []


class Checks:
    """What holds between any two transactions."""

    def __init__(self, world: JobCell) -> None:
        self._world = world
        self._held: set[tuple[int, str]] = set()

    def run(self) -> None:
        locks = self._world.locks()
        held = [lock for lock in locks if lock.held_at is not None]
        assert not any(conflicts(one, other) for one in held for other in held)
        for lock in held:
            if (lock.job_id, lock.name) not in self._held:
                place = lock.priority, lock.job_id
                assert not any(conflicts(lock, other) and (other.priority, other.job_id) < place for other in locks)
            # All that a job needs, or nothing.
            assert all(other.held_at is not None for other in locks if other.job_id == lock.job_id)
        self._held = {(lock.job_id, lock.name) for lock in held}
        with self._world.engine.connect() as connection:
            rows = connection.execute(select(jobs)).all()
        for row in rows:
            operations = self._world.operations(row.id)
            assert row.status == status_of([operation.status for operation in operations])
            assert (row.status in ENDED) == (row.ended_at is not None)
            assert row.is_ready or row.status in ENDED | {Status.WAITING}
            serials = [serial for serial, *_ in self._world.log(row.id)]
            assert serials == list(range(1, len(serials) + 1))


@contextmanager
def job_cell() -> Iterator[JobCell]:
    with native_cell() as (engine, fleet, cell):
        yield JobCell(engine, fleet, cell)


@contextmanager
def killed_at(world: JobCell, number: int) -> Iterator[None]:
    """The worker ends before the statement with this number."""
    left = number

    def count(*_arguments: object) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise Killed

    event.listen(world.engine, "before_cursor_execute", count)
    try:
        yield
    finally:
        event.remove(world.engine, "before_cursor_execute", count)
