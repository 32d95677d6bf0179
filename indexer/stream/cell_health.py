"""Health of a follower: what it is doing, why not at the moment, and how long it waits after failures."""

import time
from dataclasses import dataclass
from enum import StrEnum

import structlog

from fleetlight.indexer.errors import IndexPausedError, IndexRequestError, IndexUnavailableError
from fleetlight.indexer.stream.liveness import SignOfLife

_log = structlog.get_logger(__name__)

_FIRST_WAIT_S = 0.2
_LONGEST_EXPONENT = 10
# Until then a rebuild is ending, and nothing is wrong.
_USUAL_PAUSE_S = 5.0


class Activity(StrEnum):
    """What a follower is doing."""

    STARTING = "starting"
    STANDING_BY = "standing by"
    CATCHING_UP = "catching up"
    SYNCING = "syncing"
    FOLLOWING = "following"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class CellHealth:
    """problem: why the cell is not followed at the moment, as a sentence; None while all is well."""

    activity: Activity
    problem: str | None


class FollowerHealth:
    """Kept by the thread of the follower of the cell `cell` (its name); any thread may read it.

    sign_of_life: whether its work gets done. longest_wait_s: between two attempts.
    """

    def __init__(self, cell: str, longest_wait_s: float) -> None:
        self.activity = Activity.STARTING
        self.sign_of_life = SignOfLife()
        self._cell = cell
        self._longest_wait_s = longest_wait_s
        self._problem: str | None = None
        self._failures = 0
        self._paused_since_s: float | None = None

    @property
    def now(self) -> CellHealth:
        return CellHealth(self.activity, self._problem)

    def failed(self, error: Exception) -> float:
        """An attempt to follow the cell has failed; returns how many seconds to wait before the next one."""
        self._failures += 1
        if not isinstance(error, IndexRequestError):
            self.sign_of_life.give()
        self.report(error)
        return float(min(self._longest_wait_s, _FIRST_WAIT_S * 2 ** min(self._failures - 1, _LONGEST_EXPONENT)))

    def waits(self, error: IndexUnavailableError) -> None:
        """A write waits for the index, which is away."""
        self.sign_of_life.give()
        now_s = time.monotonic()
        if isinstance(error, IndexPausedError):
            self._paused_since_s = self._paused_since_s or now_s
            if now_s - self._paused_since_s < _USUAL_PAUSE_S:
                return
        self.report(error)

    def report(self, error: Exception) -> None:
        if self._problem is None:
            _log.warning("indexer.cell_waiting", cell=self._cell, reason=str(error))
        self._problem = str(error)

    def recovered(self) -> None:
        self._failures = 0
        self._paused_since_s = None
        if self._problem is not None:
            _log.info("indexer.cell_followed_again", cell=self._cell)
            self._problem = None
