"""The limit of how fast a sync reads, for cells and an index that have other things to do."""

import time
from collections.abc import Callable
from threading import Event, Lock


class Throttle:
    """At most `rows_per_s` on average, for all threads together; None: as fast as it goes.

    stop: ends the waiting. clock, pause: of tests.
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
        """How long so many rows take at least."""
        return 0.0 if self._rows_per_s is None else rows / self._rows_per_s

    def spend(self, rows: int) -> None:
        """These rows have been read: return when the time that they may take is over."""
        if self._rows_per_s is None:
            return
        with self._mutex:
            now_s = self._clock()
            self._free_at_s = max(self._free_at_s, now_s) + rows / self._rows_per_s
            wait_s = self._free_at_s - now_s
        self._pause(wait_s)
