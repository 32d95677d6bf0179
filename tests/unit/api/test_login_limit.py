"""The limit on wrong logins: exact for guesses that come at once, and over after a while."""

import asyncio
from collections.abc import Sequence

from api.http.errors import TooManyLoginsError, UnauthorizedError
from api.identity.login_limit import MOST_FAILURES, WINDOW_S, LoginLimit


class Time:
    """A clock that is put forward by hand."""

    def __init__(self) -> None:
        self.now = 1_800_000_000_000_000

    def __call__(self) -> int:
        return self.now


async def check(*, is_right: bool) -> None:
    await asyncio.sleep(0)  # a password is checked elsewhere
    if not is_right:
        raise UnauthorizedError("wrong")


async def log_in(limit: LoginLimit, name: str, *, is_right: bool) -> str:
    try:
        async with limit.attempt(name):
            await check(is_right=is_right)
    except UnauthorizedError:
        return "wrong"
    except TooManyLoginsError:
        return "too many"
    return "right"


async def log_in_at_once(limit: LoginLimit, rights: Sequence[bool]) -> Sequence[str]:
    return await asyncio.gather(*(log_in(limit, "ada", is_right=is_right) for is_right in rights))


def test_guesses_that_come_at_once_are_counted_each() -> None:
    answers = asyncio.run(log_in_at_once(LoginLimit(Time()), [False] * 25))
    assert answers == ["wrong"] * MOST_FAILURES + ["too many"] * (25 - MOST_FAILURES)


def test_right_passwords_are_never_too_many() -> None:
    assert set(asyncio.run(log_in_at_once(LoginLimit(Time()), [True] * 50))) == {"right"}


def test_right_password_begins_the_count_anew_and_so_does_time() -> None:
    async def story() -> None:
        time = Time()
        limit = LoginLimit(time)
        for is_right in [False] * (MOST_FAILURES - 1) + [True] + [False] * MOST_FAILURES:
            assert await log_in(limit, "ada", is_right=is_right) == ("right" if is_right else "wrong")
        assert await log_in(limit, "ada", is_right=True) == "too many"
        assert await log_in(limit, "bob", is_right=True) == "right"
        time.now += WINDOW_S * 1_000_000
        assert await log_in(limit, "ada", is_right=True) == "right"

    asyncio.run(story())


def test_names_are_remembered_up_to_a_number() -> None:
    async def story() -> None:
        limit = LoginLimit(Time())
        for number in range(10_050):
            assert await log_in(limit, f"name {number}", is_right=False) == "wrong"
        assert len(limit._by_name) == 10_000

    asyncio.run(story())
