"""Deletion of ended jobs and their logs: those that are too old, and the oldest of too many."""

from sqlalchemy import Connection, Engine, Select, delete, exists, select

from fleetlight.cells.database.engines import cell_failures, writing
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import job_dependencies, jobs
from fleetlight.manager.operations.jobs.maintenance import AT_ONCE
from fleetlight.resources.clock import Clock, system_clock
from fleetlight.resources.units import MICROSECONDS_PER_SECOND


class Pruner:
    """Deletes ended jobs. kept_s: time that a job stays after its end. kept_count: number of jobs that a cell keeps."""

    def __init__(
        self, engine: Engine, cell: Cell, *, kept_s: float, kept_count: int, clock: Clock = system_clock
    ) -> None:
        self._engine = engine
        self._cell = cell
        self._kept_s = kept_s
        self._kept_count = kept_count
        self._clock = clock

    def prune(self) -> int:
        """Delete at most AT_ONCE jobs; returns their number. A job stays while another job waits for it.

        Raises CellUnreachableError.
        """
        with cell_failures(self._cell.name):
            # Read without the write lock, of which SQLite has only one.
            with self._engine.connect() as connection:
                last = self._last_to_go(connection)
                if connection.execute(_due(last)).first() is None:
                    return 0
            with writing(self._engine) as connection:
                found = connection.execute(_due(last).with_for_update(skip_locked=True)).scalars().all()
                connection.execute(delete(jobs).where(jobs.c.id.in_(found)))
        return len(found)

    def _last_to_go(self, connection: Connection) -> int:
        """Return the latest end of a job that is too old, or beyond the kept number."""
        ended_at = jobs.c.ended_at
        too_many = (
            select(ended_at).where(ended_at.is_not(None)).order_by(ended_at.desc()).offset(self._kept_count).limit(1)
        )
        too_old = self._clock() - round(self._kept_s * MICROSECONDS_PER_SECOND)
        return max(too_old, connection.execute(too_many).scalar_one_or_none() or 0)


def _due(last: int) -> Select[tuple[int]]:
    waiting = jobs.alias("waiting")
    is_needed = exists().where(
        job_dependencies.c.depends_on == jobs.c.id,
        job_dependencies.c.job_id == waiting.c.id,
        waiting.c.ended_at.is_(None),
    )
    return select(jobs.c.id).where(jobs.c.ended_at <= last, ~is_needed).order_by(jobs.c.ended_at).limit(AT_ONCE)
