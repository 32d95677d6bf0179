"""The one policy to retry calls that failed because a server is down.

Code that waits for an event or a condition does not need this module.
"""

from collections.abc import Callable
from threading import Event
from typing import Any

from tenacity import AsyncRetrying, RetryCallState, Retrying, retry_if_exception, retry_if_exception_type
from tenacity.nap import sleep_using_event
from tenacity.stop import stop_when_event_set
from tenacity.wait import wait_fixed, wait_random_exponential

Failures = type[Exception] | tuple[type[Exception], ...]
BeforeWait = Callable[[Any, int, float], None]
"""Called before each wait, with the exception, the number of attempts so far, and the seconds to wait."""

_FIRST_WAIT_S = 0.2


def retrying_until(
    stop: Event,
    on: Failures,
    before_wait: BeforeWait,
    *,
    longest_wait_s: float,
    first_wait_s: float = _FIRST_WAIT_S,
    unless: Failures = (),
) -> Retrying:
    """Returns a caller that repeats a call while it fails with one of `on`, and returns None after `stop` is set.

    Waits grow, and are random, so that processes which wait for one server do not return all at once. unless: subtypes
    of `on` that it raises at once.
    """
    return Retrying(
        retry=retry_if_exception(lambda error: isinstance(error, on) and not isinstance(error, unless)),
        wait=wait_random_exponential(multiplier=first_wait_s, max=longest_wait_s),
        sleep=sleep_using_event(stop),
        stop=stop_when_event_set(stop),
        before_sleep=_told(before_wait),
        retry_error_callback=lambda _: None,
    )


def retrying_every(wait_s: float, on: Failures, before_wait: BeforeWait | None = None) -> AsyncRetrying:
    """Returns a caller that awaits a coroutine function again, `wait_s` after each failure with one of `on`."""
    return AsyncRetrying(
        retry=retry_if_exception_type(on),
        wait=wait_fixed(wait_s),
        before_sleep=None if before_wait is None else _told(before_wait),
    )


def failure_of(state: RetryCallState) -> BaseException | None:
    """The exception of the last attempt; None if it succeeded."""
    return state.outcome.exception() if state.outcome else None


def _told(before_wait: BeforeWait) -> Callable[[RetryCallState], None]:
    return lambda state: before_wait(failure_of(state), state.attempt_number, state.upcoming_sleep)
