"""Limits the rate at which a sync reads, to spare cells and index that serve others."""

import time
from collections.abc import Callable
from threading import Event, Lock


class Throttle:
    """Limits all threads together to `rows_per_s` on average; None for no limit.

    stop: ends a wait. clock, pause: replaced by tests.
    """

    def __init__(
        self,
        rows_per_s: float | None,
        stop: Event,
        *,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        self._rows_per_s = rows_per_s
        self._clock = clock
        self._pause = pause or stop.wait
        self._mutex = Lock()
        self._free_at_s = clock()

    def takes_s(self, rows: int) -> float:
        """The least number of seconds for so many rows."""
        return 0.0 if self._rows_per_s is None else rows / self._rows_per_s

    def spend(self, rows: int) -> None:
        """Note that these rows were read, and wait until their time has passed."""
        if self._rows_per_s is None:
            return
        with self._mutex:
            now_s = self._clock()
            self._free_at_s = max(self._free_at_s, now_s) + rows / self._rows_per_s
            wait_s = self._free_at_s - now_s
        self._pause(wait_s)
