"""The time as cells write it down."""

import time
from collections.abc import Callable

Clock = Callable[[], int]
"""Returns microseconds since the epoch; parts that need the time are given one, so that tests decide it."""


def system_clock() -> int:
    return time.time_ns() // 1000
