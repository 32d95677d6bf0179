"""Limits that were made before processes were forked hold for all of them."""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

import pytest

from fleetlight.api.caller import Caller
from fleetlight.api.http.errors import TooManyOwnWatchesError, TooManyWatchesError
from fleetlight.api.limits.login_limit import MOST_FAILURES, LoginLimit
from fleetlight.api.limits.watch_limit import WatchLimits, WatchSlots
from tests.unit.api.test_login_limit import Time, log_in


def in_another_process(work: Callable[[], str]) -> str:
    """What `work` says in a process that is forked for it, and then ends at once, cleaning up nothing."""
    read, write = os.pipe()
    if not os.fork():
        os.write(write, work().encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, encoding="utf-8") as said:
        text = said.read()
    os.wait()
    return text


def caller(user: str, project: str | None) -> Caller:
    return Caller(user, project, frozenset({"member"}))


# What is here is not given back before the end of a test.
_HELD = ExitStack()


@pytest.fixture(autouse=True)
def given_back() -> Iterator[None]:
    yield
    _HELD.close()


def taken(places: WatchSlots, process: int, *callers: Caller) -> str:
    """Take places and keep them; what there are too many of, or `had`."""
    places.begin(process)
    for each in callers:
        try:
            _HELD.enter_context(places.take(each))
        except TooManyOwnWatchesError as error:
            return str(error).split()[1]
        except TooManyWatchesError:
            return "all"
    return "had"


ADA, BOB = caller("ada", "web"), caller("bob", "web")


def test_watches_of_a_user_count_wherever_they_are() -> None:
    places = WatchSlots(WatchLimits(of_all=10, per_user=3, per_project=5))
    assert in_another_process(lambda: taken(places, 2, ADA, ADA)) == "had"
    assert taken(places, 1, ADA, ADA) == "user"
    assert in_another_process(lambda: taken(places, 3, ADA)) == "user"
    assert in_another_process(lambda: taken(places, 4, BOB, BOB, BOB)) == "project"


def test_watches_of_all_count_wherever_they_are() -> None:
    places = WatchSlots(WatchLimits(of_all=3, per_user=9, per_project=9))
    assert in_another_process(lambda: taken(places, 2, ADA, BOB)) == "had"
    assert taken(places, 1, ADA, BOB) == "all"


def test_process_in_place_of_one_that_died_has_its_places_again_and_those_of_no_other() -> None:
    places = WatchSlots(WatchLimits(of_all=10, per_user=2, per_project=10))
    assert in_another_process(lambda: taken(places, 2, ADA)) == "had"
    assert in_another_process(lambda: taken(places, 3, ADA)) == "had"
    assert taken(places, 1, ADA) == "user"
    assert in_another_process(lambda: taken(places, 2, ADA, ADA)) == "user"


def test_place_is_free_when_its_stream_has_ended() -> None:
    places = WatchSlots(WatchLimits(of_all=2, per_user=1, per_project=0))
    for _ in range(3):
        with places.take(caller("ada", None)), pytest.raises(TooManyOwnWatchesError), places.take(caller("ada", None)):
            pass
    ada, bob, eve = (places.take(caller(user, None)) for user in ("ada", "bob", "eve"))
    with ada, bob, pytest.raises(TooManyWatchesError), eve:
        pass


def logged_in(limit: LoginLimit, *, is_right: bool) -> str:
    return asyncio.run(log_in(limit, "ada", is_right=is_right))


def test_wrong_passwords_count_whichever_process_checks_them() -> None:
    limit = LoginLimit(Time())
    guess = partial(logged_in, limit, is_right=False)
    answers = [guess() if number % 2 else in_another_process(guess) for number in range(MOST_FAILURES + 1)]
    assert answers == ["wrong"] * MOST_FAILURES + ["too many"]
    assert in_another_process(partial(logged_in, limit, is_right=True)) == "too many"


def test_right_password_begins_the_count_anew_for_all() -> None:
    limit = LoginLimit(Time())
    for _ in range(MOST_FAILURES - 1):
        assert logged_in(limit, is_right=False) == "wrong"
    assert in_another_process(partial(logged_in, limit, is_right=True)) == "right"
    assert logged_in(limit, is_right=False) == "wrong"
    assert logged_in(limit, is_right=True) == "right"
