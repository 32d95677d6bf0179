"""The limit on wrong logins: exact for guesses that come at once, over after a while, and nobody else's trouble."""

import asyncio
from collections.abc import Sequence

from fleetlight.api.http.connection import ClientConnection
from fleetlight.api.http.errors import CallerLeftError, TooManyLoginsError, UnauthorizedError
from fleetlight.api.limits.login_limit import (
    CHECKS_AT_ONCE,
    MOST_FAILURES,
    MOST_FAILURES_OF_ADDRESS,
    MOST_WAITING,
    MOST_WAITING_OF_ADDRESS,
    WINDOW_S,
    LoginLimit,
)
from tests.support.waiting import eventually

HOME, AWAY = ClientConnection("192.0.2.1"), ClientConnection("198.51.100.7")


class Time:
    """A clock that is put forward by hand."""

    def __init__(self) -> None:
        self.now = 1_800_000_000_000_000

    def __call__(self) -> int:
        return self.now


def refuse_unless(is_right: bool) -> None:
    if not is_right:
        raise UnauthorizedError("wrong")


class Logins:
    """checked: the names, in the order in which they were checked. released: until this is set no check ends."""

    def __init__(self, limit: LoginLimit | None = None) -> None:
        self.limit = limit or LoginLimit(Time())
        self.checked: list[str] = []
        self.released = asyncio.Event()
        self.released.set()

    async def log_in(self, name: str, *, is_right: bool, caller: ClientConnection = HOME) -> str:
        try:
            async with self.limit.attempt(name, caller):
                self.checked.append(name)
                await asyncio.sleep(0)  # a password is checked elsewhere
                await self.released.wait()
                refuse_unless(is_right)
        except UnauthorizedError:
            return "wrong"
        except TooManyLoginsError:
            return "too many"
        except CallerLeftError:
            return "gone"
        return "right"


async def log_in(limit: LoginLimit, name: str, *, is_right: bool, caller: ClientConnection = HOME) -> str:
    return await Logins(limit).log_in(name, is_right=is_right, caller=caller)


async def log_in_at_once(limit: LoginLimit, rights: Sequence[bool]) -> Sequence[str]:
    return await asyncio.gather(*(log_in(limit, "ada", is_right=is_right) for is_right in rights))


def test_guesses_that_come_at_once_are_counted_each() -> None:
    answers = asyncio.run(log_in_at_once(LoginLimit(Time()), [False] * 25))
    assert answers == ["wrong"] * MOST_FAILURES + ["too many"] * (25 - MOST_FAILURES)


def test_right_passwords_are_never_too_many() -> None:
    assert set(asyncio.run(log_in_at_once(LoginLimit(Time()), [True] * 50))) == {"right"}


async def test_right_password_begins_the_count_anew_and_so_does_time() -> None:
    time = Time()
    limit = LoginLimit(time)
    for is_right in [False] * (MOST_FAILURES - 1) + [True] + [False] * MOST_FAILURES:
        assert await log_in(limit, "ada", is_right=is_right) == ("right" if is_right else "wrong")
    assert await log_in(limit, "ada", is_right=True) == "too many"
    assert await log_in(limit, "bob", is_right=True) == "right"
    time.now += WINDOW_S * 1_000_000
    assert await log_in(limit, "ada", is_right=True) == "right"


async def test_names_are_remembered_up_to_a_number() -> None:
    limit = LoginLimit(Time())
    for number in range(10_050):
        caller = ClientConnection(f"10.0.{number // 256}.{number % 256}")
        assert await log_in(limit, f"name {number}", is_right=False, caller=caller) == "wrong"
        assert await log_in(limit, f"other {number}", is_right=True, caller=caller) == "right"
    assert len(limit._right) == 10_000
    assert not limit._under_way


async def test_wrong_passwords_from_elsewhere_lock_nobody_out() -> None:
    limit = LoginLimit(Time())
    answers = [await log_in(limit, "ada", is_right=False, caller=AWAY) for _ in range(MOST_FAILURES + 1)]
    assert answers == ["wrong"] * MOST_FAILURES + ["too many"]
    assert await log_in(limit, "ada", is_right=True, caller=AWAY) == "too many"
    assert await log_in(limit, "ada", is_right=True) == "right"


async def test_address_with_wrong_logins_under_many_names_has_to_wait_but_not_who_logged_in_there_before() -> None:
    time = Time()
    limit = LoginLimit(time)
    assert await log_in(limit, "ada", is_right=True) == "right"
    names = [f"invented {number}" for number in range(MOST_FAILURES_OF_ADDRESS + 1)]
    answers = [await log_in(limit, name, is_right=False) for name in names]
    assert answers == ["wrong"] * MOST_FAILURES_OF_ADDRESS + ["too many"]
    assert await log_in(limit, "bob", is_right=True) == "too many"
    assert await log_in(limit, "ada", is_right=True) == "right"
    assert await log_in(limit, "bob", is_right=True, caller=AWAY) == "right"
    time.now += WINDOW_S * 1_000_000
    assert await log_in(limit, "bob", is_right=True) == "right"


def test_addresses_of_one_network_of_ipv6_count_together_and_mapped_ones_as_ipv4() -> None:
    assert ClientConnection("2001:db8:1:2::1").network == ClientConnection("2001:db8:1:2:ffff::2").network
    assert ClientConnection("2001:db8:1:3::1").network != ClientConnection("2001:db8:1:2::1").network
    assert ClientConnection("::ffff:192.0.2.1").network == HOME.network
    assert ClientConnection("no address").network == "no address"


async def test_right_login_is_checked_next_however_many_wrong_ones_wait() -> None:
    logins = Logins()
    logins.released.clear()
    flood = [asyncio.create_task(logins.log_in(f"name {number}", is_right=False)) for number in range(200)]
    await eventually(lambda: logins.limit.waiting == MOST_WAITING_OF_ADDRESS)
    checked = len(logins.checked)
    right = asyncio.create_task(logins.log_in("ada", is_right=True, caller=AWAY))
    await eventually(lambda: logins.limit.waiting == MOST_WAITING_OF_ADDRESS + 1)
    logins.released.set()
    assert await right == "right"
    # One of the flow of the others at the most comes first.
    assert logins.checked.index("ada") - checked <= 1
    answers = await asyncio.gather(*flood)
    assert answers.count("wrong") == MOST_WAITING_OF_ADDRESS + CHECKS_AT_ONCE
    assert answers.count("too many") == 200 - answers.count("wrong")


async def test_who_logged_in_before_is_checked_next_at_the_same_address_too() -> None:
    logins = Logins()
    assert await logins.log_in("ada", is_right=True) == "right"
    logins.released.clear()
    flood = [asyncio.create_task(logins.log_in(f"name {number}", is_right=False)) for number in range(200)]
    await eventually(lambda: logins.limit.waiting == MOST_WAITING_OF_ADDRESS)
    checked = len(logins.checked)
    right = asyncio.create_task(logins.log_in("ada", is_right=True))
    await eventually(lambda: logins.limit.waiting == MOST_WAITING_OF_ADDRESS + 1)
    logins.released.set()
    assert await right == "right"
    assert logins.checked.index("ada", 1) - checked <= 1
    await asyncio.gather(*flood)


async def test_no_more_wait_than_there_are_places_and_half_of_those_are_for_who_logged_in_before() -> None:
    logins = Logins()
    assert await logins.log_in("ada", is_right=True) == "right"
    logins.released.clear()
    flood = [
        asyncio.create_task(logins.log_in("x", is_right=False, caller=ClientConnection(f"10.0.{flow}.1")))
        for flow in range(250)
        for _ in range(2)
    ]
    await eventually(lambda: logins.limit.waiting == MOST_WAITING // 2)
    assert await logins.log_in("bob", is_right=True, caller=AWAY) == "too many"
    right = asyncio.create_task(logins.log_in("ada", is_right=True))
    await eventually(lambda: logins.limit.waiting == MOST_WAITING // 2 + 1)
    logins.released.set()
    assert await right == "right"
    await asyncio.gather(*flood)
    assert logins.limit.waiting == 0


async def test_nothing_is_checked_for_callers_who_left_and_their_places_are_free() -> None:
    logins, gone = Logins(), asyncio.Event()
    logins.released.clear()

    async def left() -> None:
        await gone.wait()

    impatient = ClientConnection(AWAY.address, left)
    flood = [asyncio.create_task(logins.log_in(f"name {number}", is_right=False)) for number in range(20)]
    leaving = [asyncio.create_task(logins.log_in("mia", is_right=True, caller=impatient)) for _ in range(20)]
    cancelled = asyncio.create_task(logins.log_in("bob", is_right=True, caller=AWAY))
    await eventually(lambda: logins.limit.waiting == 20 - CHECKS_AT_ONCE + 21)
    gone.set()
    cancelled.cancel()
    assert set(await asyncio.gather(*leaving)) == {"gone"}
    await eventually(lambda: logins.limit.waiting == 20 - CHECKS_AT_ONCE)
    logins.released.set()
    assert set(await asyncio.gather(*flood)) == {"wrong"}
    assert (logins.limit.waiting, {"mia", "bob"} & {*logins.checked}) == (0, set())
    # No turn was lost with them.
    assert await logins.log_in("ada", is_right=True) == "right"
    assert logins.limit._queue._free == CHECKS_AT_ONCE
