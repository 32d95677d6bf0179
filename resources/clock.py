"""The time in the form that cells store."""

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Returns microseconds since the epoch; code that needs the time receives a clock, so that tests control it."""


def system_clock() -> int:
    """The clock of this machine."""
    return time.time_ns() // 1000
