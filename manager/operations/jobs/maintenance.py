"""Maintenance tasks of a worker, now and then between its jobs."""

import time
from collections.abc import Callable

_LOOK_AGAIN_AFTER_S = 60.0
AT_ONCE = 100
"""How many of its things a task deals with between two jobs."""


class MaintenanceTask:
    """Does a little of something at each call, if it is due: at once again while there is more, then every interval.

    do: returns how much it found to do, of at most AT_ONCE. interval_s: at most a minute counts.
    rest_s: called after `do`: how long there is nothing to do unless something is committed, of which at most a minute
        counts; None: there may be at any time.
    """

    def __init__(
        self,
        do: Callable[[], int],
        interval_s: float = _LOOK_AGAIN_AFTER_S,
        *,
        rest_s: Callable[[], float] | None = None,
    ) -> None:
        self._do = do
        self._interval_s = min(interval_s, _LOOK_AGAIN_AFTER_S)
        self._rest_s = rest_s
        self._due_at = self._rests_until = 0.0

    @property
    def due_s(self) -> float:
        """When it is due if nothing is committed until then, by the monotonic clock."""
        return max(self._due_at, self._rests_until)

    def __call__(self, *, may_be_new: bool) -> None:
        """may_be_new: whether anything may have been committed since the last call."""
        now = time.monotonic()
        if may_be_new:
            self._rests_until = 0.0
        if now < self.due_s:
            return
        if self._do() == AT_ONCE:
            self._due_at = now
            return
        self._due_at = now + self._interval_s
        if self._rest_s is not None:
            self._rests_until = now + min(self._rest_s(), _LOOK_AGAIN_AFTER_S)
