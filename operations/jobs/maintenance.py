"""Maintenance tasks of a worker, now and then between its jobs."""

import time
from collections.abc import Callable

_LOOK_AGAIN_AFTER_S = 60.0
AT_ONCE = 100
"""How many of its things a task deals with between two jobs."""


class MaintenanceTask:
    """Does a little of something at each call, if it is due: at once again while there is more, then every interval.

    do: returns how much it found to do, of at most AT_ONCE. interval_s: at most a minute counts.
    """

    def __init__(self, do: Callable[[], int], interval_s: float = _LOOK_AGAIN_AFTER_S) -> None:
        self._do = do
        self._interval_s = min(interval_s, _LOOK_AGAIN_AFTER_S)
        self._due_at = 0.0

    def __call__(self) -> None:
        now = time.monotonic()
        if now >= self._due_at:
            self._due_at = now if self._do() == AT_ONCE else now + self._interval_s
