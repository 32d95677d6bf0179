"""The hints about one cell of Nova, from the logs of its own database and of the API database."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Engine

from fleetlight.cells.errors import CommitLogError
from fleetlight.cells.kinds.nova_db.commit_log.log import COMMIT_LOGS, CommitLog
from fleetlight.cells.kinds.nova_db.commit_log.subscription import Subscription
from fleetlight.cells.kinds.nova_db.commit_log.touched import Touched
from fleetlight.cells.kinds.nova_db.databases import address_of
from fleetlight.cells.kinds.nova_db.one_server import close_idle, keep_to
from fleetlight.cells.model import Hints, LogPosition, Positions
from fleetlight.resources.clock import Clock

# Close the connections of a cell that was not queried for so long.
_RESTS_AFTER_S = 10.0


@dataclass(slots=True)
class _Followed:
    """One log, with `at` and `position` of the last `take`."""

    subscription: Subscription
    position: LogPosition | None = None
    at: int = 0


class NovaHints:
    """CommitHints (fleetlight.cells.model) from the logs of a cell of Nova.

    The first of `engines` is that of the cell's own database. Raises CommitLogError.
    """

    def __init__(self, engines: Sequence[Engine], after: Positions, clock: Clock) -> None:
        schemas: dict[str, list[str]] = {}
        logs: dict[str, CommitLog] = {}
        for engine in engines:
            address = address_of(engine.url)
            logs.setdefault(address, COMMIT_LOGS.at(engine.url, clock))
            schemas.setdefault(address, []).append(str(engine.url.database))
        self._touched = Touched()
        self._engines = engines
        self._logs: dict[str, _Followed] = {}
        try:
            for address, log in logs.items():
                self._logs[address] = _Followed(log.subscribe(schemas[address], after.get(address)))
        except CommitLogError:
            self.close()
            # Not the engine of the API database, whose server other cells may rely on.
            keep_to(engines[0], None)
            raise
        for engine in engines:
            keep_to(engine, self._logs[address_of(engine.url)].subscription.identity)

    @property
    def is_continued(self) -> bool:
        return all(followed.subscription.is_continued for followed in self._logs.values())

    def wait(self, longest_s: float) -> None:
        # Of two logs, that of the cell has most commits.
        next(iter(self._logs.values())).subscription.wait(longest_s)

    def take(self) -> Hints | None:
        is_new = False
        for followed in self._logs.values():
            if (taken := followed.subscription.take()) is not None:
                touched, followed.position, followed.at = taken
                self._touched.merge(touched)
                is_new = True
        positions = {
            address: followed.position for address, followed in self._logs.items() if followed.position is not None
        }
        # Before each log has been read once, the hints cannot prove that they are complete up to a moment.
        if not is_new or len(positions) < len(self._logs):
            return None
        touched, self._touched = self._touched, Touched()
        for engine in self._engines:
            close_idle(engine, _RESTS_AFTER_S)
        own = positions[next(iter(self._logs))]
        uuids = None if touched.has_unknown else frozenset(touched.uuids)
        return Hints(uuids, min(followed.at for followed in self._logs.values()), positions, own.number)

    def close(self) -> None:
        for followed in self._logs.values():
            followed.subscription.close()
