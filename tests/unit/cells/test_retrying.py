"""Calls that are made again while something is away."""

import asyncio
from collections.abc import Callable
from threading import Event

import pytest

from fleetlight.cells.retrying import retrying_every, retrying_until

Told = list[tuple[str, int, bool]]


def _failing(times: int, failure: Exception) -> Callable[[], str]:
    left = [failure] * times

    def call() -> str:
        if left:
            raise left.pop()
        return "an answer"

    return call


def _noting(told: Told) -> Callable[[Exception, int, float], None]:
    return lambda error, attempt, wait_s: told.append((str(error), attempt, 0 <= wait_s <= 0.01))


def test_call_is_made_again_until_it_succeeds_and_each_wait_is_told() -> None:
    told: Told = []
    retrying = retrying_until(Event(), KeyError, _noting(told), first_wait_s=0.001, longest_wait_s=0.01)
    assert retrying(_failing(3, KeyError("away"))) == "an answer"
    assert told == [("'away'", 1, True), ("'away'", 2, True), ("'away'", 3, True)]


def test_wait_ends_without_an_answer_when_it_is_told_to_stop() -> None:
    stop = Event()
    retrying = retrying_until(stop, KeyError, lambda *_: stop.set(), first_wait_s=60, longest_wait_s=60)
    assert retrying(_failing(9, KeyError())) is None


def test_other_failures_and_exceptions_of_a_kind_are_raised_at_once() -> None:
    retrying = retrying_until(
        Event(), LookupError, lambda *_: pytest.fail("it waits"), unless=KeyError, longest_wait_s=60
    )
    for failure in (ValueError(), KeyError()):
        with pytest.raises(type(failure)):
            retrying(_failing(1, failure))


def test_coroutine_is_awaited_again_at_an_interval() -> None:
    told: Told = []
    call = _failing(2, KeyError("away"))

    async def answer() -> str:
        return call()

    assert asyncio.run(retrying_every(0.001, KeyError, _noting(told))(answer)) == "an answer"
    assert told == [("'away'", 1, True), ("'away'", 2, True)]
    with pytest.raises(ValueError, match="wrong"):
        asyncio.run(retrying_every(60, KeyError)(_raise, ValueError("wrong")))


async def _raise(error: Exception) -> None:
    raise error
