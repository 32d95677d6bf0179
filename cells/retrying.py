"""Trying again what failed because something is away: the one policy of all that waits for its servers.

Code that waits for an event, or for a condition to come true, has no use for this module.
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
"""Called with what failed with which exception, how many attempts there were, and how many seconds are waited now."""

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
    """Makes the calls that it is given until they do not fail with one of `on`; returns None once `stop` is set.

    Waits grow, and are random, so that processes which wait for one server do not come back all at once.
    unless: kinds of `on` that are raised at once.
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
    """Awaits the calls that it is given until they do not fail with one of `on`; this long after a failure the next."""
    return AsyncRetrying(
        retry=retry_if_exception_type(on),
        wait=wait_fixed(wait_s),
        before_sleep=None if before_wait is None else _told(before_wait),
    )


def failure_of(state: RetryCallState) -> BaseException | None:
    """What the last attempt failed with."""
    return state.outcome.exception() if state.outcome else None


def _told(before_wait: BeforeWait) -> Callable[[RetryCallState], None]:
    return lambda state: before_wait(failure_of(state), state.attempt_number, state.upcoming_sleep)
