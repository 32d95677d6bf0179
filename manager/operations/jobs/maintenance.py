"""Maintenance tasks, which a worker carries out between jobs."""

import time
from collections.abc import Callable

_LOOK_AGAIN_AFTER_S = 60.0
AT_ONCE = 100
"""Number of objects that a task handles between two jobs."""


class MaintenanceTask:
    """Does a part of its work at each call if it is due: again at once while there is more, then at intervals.

    do: returns how much it has handled, at most AT_ONCE. interval_s: at most a minute counts.
    rest_s: called after `do`: returns for how long there is nothing to do unless a transaction commits, at most a
        minute; None: work may come at any time.
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
        """The monotonic time at which it is due if no transaction commits before."""
        return max(self._due_at, self._rests_until)

    def __call__(self, *, may_be_new: bool) -> None:
        """Do a part if due. may_be_new: whether a transaction may have committed since the last call."""
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
