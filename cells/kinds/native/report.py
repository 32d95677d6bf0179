"""The report of a native cell for operators: position, nodes, jobs, and how far back its changelog goes."""

from sqlalchemy import Connection, func, select

from fleetlight.cells.kinds.native.epochs import read_position
from fleetlight.cells.kinds.native.past_instances import earliest_kept
from fleetlight.cells.model import CellReport
from fleetlight.cells.tables import compute_nodes, jobs

_RUNNING = frozenset({"running", "canceling"})
_NODES = select(func.count()).select_from(compute_nodes)
_JOBS = select(jobs.c.status, func.count()).where(jobs.c.ended_at.is_(None)).group_by(jobs.c.status)


def read_report(connection: Connection) -> CellReport:
    """The report as of the transaction of `connection`."""
    of_status = {row[0]: row[1] for row in connection.execute(_JOBS)}
    running = sum(count for status, count in of_status.items() if status in _RUNNING)
    return CellReport(
        position=read_position(connection),
        nodes=connection.execute(_NODES).scalar_one(),
        jobs_waiting=sum(of_status.values()) - running,
        jobs_running=running,
        keeps_past_since=earliest_kept(connection),
    )
