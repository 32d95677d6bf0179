"""Opens the hints about one cell of Nova from the logs of its databases.

The drivers are an optional dependency, so modules that need them are imported when used.
"""

from collections.abc import Sequence

from sqlalchemy import Engine

from fleetlight.cells.errors import CommitLogError
from fleetlight.cells.kinds.nova_db.databases import dialect_of
from fleetlight.cells.model import CommitHints, Positions
from fleetlight.resources.clock import Clock

_NOT_READ = {
    "sqlite": "a SQLite file has no log that tells which rows were touched",
    "postgresql": "the log of PostgreSQL is not read",
}


def follow_commits(engines: Sequence[Engine], after: Positions, clock: Clock) -> CommitHints:
    """The hints of these databases, of which the first is the cell's own (fleetlight.cells.model.HintingAdapter).

    From now on each engine reads rows from the server whose log is read. Raises CommitLogError.
    """
    for engine in engines:
        if reason := _NOT_READ.get(dialect_of(engine.url)):
            raise CommitLogError(reason, is_lasting=True)
    try:
        from fleetlight.cells.kinds.nova_db.commit_log.hints import NovaHints  # noqa: PLC0415
    except ModuleNotFoundError as error:
        reason = f"{error.name} is not installed: pip install 'fleetlight[nova]'"
        raise CommitLogError(reason, is_lasting=True) from None
    return NovaHints(engines, after, clock)
