"""Health of a follower: its activity, its current problem, and how long it waits after a failure."""

import time
from dataclasses import dataclass
from enum import StrEnum

import structlog

from fleetlight.indexer.errors import IndexPausedError, IndexRequestError, IndexUnavailableError
from fleetlight.indexer.stream.liveness import SignOfLife

_log = structlog.get_logger(__name__)

_FIRST_WAIT_S = 0.2
_LONGEST_EXPONENT = 10
# A shorter pause is the end of a rebuild, and no problem.
_USUAL_PAUSE_S = 5.0


class Activity(StrEnum):
    """Activities of a follower; `/readyz` shows the values."""

    STARTING = "starting"
    STANDING_BY = "standing by"
    CATCHING_UP = "catching up"
    SYNCING = "syncing"
    FOLLOWING = "following"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class CellHealth:
    """problem: why the follower cannot follow the cell now, as a sentence; None if it can."""

    activity: Activity
    problem: str | None


class FollowerHealth:
    """The health of one follower, whose thread updates it; any thread may read it.

    cell: its name. sign_of_life: of the follower's thread. longest_wait_s: between two attempts.
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
        """The activity and the problem at this moment."""
        return CellHealth(self.activity, self._problem)

    def failed(self, error: Exception) -> float:
        """Note that an attempt to follow the cell failed; returns the seconds to wait before the next one."""
        self._failures += 1
        if not isinstance(error, IndexRequestError):
            self.sign_of_life.give()
        self.report(error)
        return float(min(self._longest_wait_s, _FIRST_WAIT_S * 2 ** min(self._failures - 1, _LONGEST_EXPONENT)))

    def waits(self, error: IndexUnavailableError) -> None:
        """Note that a write waits for the index. A pause of the index counts as a problem after some seconds."""
        self.sign_of_life.give()
        now_s = time.monotonic()
        if isinstance(error, IndexPausedError):
            self._paused_since_s = self._paused_since_s or now_s
            if now_s - self._paused_since_s < _USUAL_PAUSE_S:
                return
        self.report(error)

    def report(self, error: Exception) -> None:
        """Show an error as the problem, and log the first one."""
        if self._problem is None:
            _log.warning("indexer.cell_waiting", cell=self._cell, reason=str(error))
        self._problem = str(error)

    def recovered(self) -> None:
        """Note that the cell is followed again; the next failure begins with a short wait."""
        self._failures = 0
        self._paused_since_s = None
        if self._problem is not None:
            _log.info("indexer.cell_followed_again", cell=self._cell)
            self._problem = None
