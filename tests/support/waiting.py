"""Wait for a condition with a deadline: what tests use instead of a bare sleep."""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_FIRST_PAUSE_S = 0.005
_LONGEST_PAUSE_S = 0.1


def wait_until(condition: Callable[[], T], timeout_s: float = 60.0) -> T:
    """Call `condition` until it returns something truthy, and return that.

    An `AssertionError` of the condition counts as "not yet": a condition may be some asserts and `return True`.
    Raises AssertionError when `timeout_s` has passed, with the last value or the last failed assertion as its cause.
    """
    deadline = time.monotonic() + timeout_s
    pause_s = _FIRST_PAUSE_S
    while True:
        failure: AssertionError | None = None
        value: T | None = None
        try:
            value = condition()
            if value:
                return value
        except AssertionError as error:
            failure = error
        if time.monotonic() >= deadline:
            name = getattr(condition, "__name__", repr(condition))
            raise AssertionError(f"{name} did not hold within {timeout_s} s; last value: {value!r}") from failure
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, _LONGEST_PAUSE_S)


async def eventually(condition: Callable[[], object]) -> None:
    """`wait_until` for a condition that the event loop itself makes true. Raises AssertionError after a minute."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)
