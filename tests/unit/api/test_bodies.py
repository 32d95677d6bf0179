"""Bytes of bodies under way, and of answers that are not taken yet, have a bound for each caller, and for all."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from starlette.types import Message, Receive, Scope, Send

from fleetlight.api.caller import Caller
from fleetlight.api.http.connection import LookingAhead
from fleetlight.api.http.errors import TooManyBodiesError, TooManyListsError, status_of
from fleetlight.api.limits.admission import HeldBytes, ListAdmission, RequestAdmission
from fleetlight.api.limits.bodies import PIECE_BYTES, BoundedBodies
from fleetlight.api.metrics import ApiMetrics
from fleetlight.api.settings import ApiSettings

MIB = 2**20


class Sender:
    """Sends pieces of a body to an application that keeps its request open until it is told to end."""

    def __init__(self, held: HeldBytes, address: str) -> None:
        self._messages: asyncio.Queue[Message] = asyncio.Queue()
        self._ends = asyncio.Event()
        self.refusals: list[Exception] = []
        self.receive: Receive | None = None
        scope = {"type": "http", "client": (address, 1), "headers": [], "state": {}}
        self._task = asyncio.create_task(BoundedBodies(self._app, held)(scope, self._messages.get, self._send))

    async def _app(self, _scope: Scope, receive: Receive, _send: Send) -> None:
        self.receive = receive
        await self._ends.wait()

    async def _send(self, _message: Message) -> None:
        raise AssertionError("nothing is answered")

    async def say(self, size: int) -> None:
        """Raises what the application gets for it."""
        await asyncio.sleep(0)
        self._messages.put_nowait({"type": "http.request", "body": b"x" * size, "more_body": True})
        assert self.receive is not None
        await self.receive()

    async def end(self) -> None:
        self._ends.set()
        await self._task


@asynccontextmanager
async def senders(held: HeldBytes, *addresses: str) -> AsyncIterator[Sequence[Sender]]:
    async with AsyncExitStack() as open_senders:
        opened = [Sender(held, address) for address in addresses]
        for each in opened:
            open_senders.push_async_callback(each.end)
        yield opened


async def test_one_address_is_refused_while_others_are_not() -> None:
    held = HeldBytes(4 * MIB)
    async with senders(held, "192.0.2.1", "192.0.2.1", "192.0.2.2") as (first, second, other):
        await first.say(MIB)
        for each in (first, second):
            with pytest.raises(TooManyBodiesError, match="You"):
                await each.say(1)
        await other.say(MIB // 2)
        await first.end()
        await second.say(1)


async def test_all_addresses_together_have_a_bound_and_nothing_stays_counted() -> None:
    held = HeldBytes(4 * MIB)
    async with senders(held, *(f"192.0.2.{number}" for number in range(5))) as opened:
        for each in opened[:4]:
            await each.say(MIB)
        with pytest.raises(TooManyBodiesError, match="Too much") as refused:
            await opened[4].say(1)
        assert status_of(refused.value) == 503
        assert refused.value.headers["Retry-After"]
    assert held.refusal_of("192.0.2.0") is None
    async with senders(held, "192.0.2.1") as (again,):
        await again.say(MIB)


async def test_addresses_of_one_network_are_one_caller() -> None:
    async with senders(HeldBytes(4 * MIB), "2001:db8::1", "2001:db8::2") as (first, second):
        await first.say(MIB)
        with pytest.raises(TooManyBodiesError, match="You"):
            await second.say(1)


async def test_wait_for_a_slot_is_not_ended_by_a_body_for_which_there_is_no_room() -> None:
    async with senders(HeldBytes(4 * MIB), "192.0.2.1") as (sender,):
        await sender.say(MIB)
        assert sender.receive is not None
        ahead = LookingAhead(sender.receive)
        left = asyncio.create_task(ahead.left())
        done, _ = await asyncio.wait([left], timeout=0.05)
        assert not done
        left.cancel()
        with pytest.raises(TooManyBodiesError):
            await ahead()


def test_request_that_has_ended_gets_nothing_more() -> None:
    async def scenario() -> Message:
        async with senders(HeldBytes(MIB), "192.0.2.1") as (sender,):
            await asyncio.sleep(0)
            await sender.end()
            assert sender.receive is not None
            return await sender.receive()

    assert asyncio.run(scenario()) == {"type": "http.disconnect"}


def test_of_many_bodies_one_piece_is_read_in_a_round_of_the_loop() -> None:
    rounds: list[int] = []
    bodies, pieces = 20, 5

    async def scenario() -> None:
        read = 0

        async def ready() -> Message:
            nonlocal read
            read += 1
            return {"type": "http.request", "body": b"x", "more_body": True}

        async def read_all(_scope: Scope, receive: Receive, _send: Send) -> None:
            for _ in range(pieces):
                await receive()

        async def nothing_is_sent(_message: Message) -> None:
            raise AssertionError("nothing is answered")

        limited = BoundedBodies(read_all, HeldBytes(4 * MIB))
        scope = {"type": "http", "client": ("192.0.2.1", 1), "headers": [], "state": {}}
        tasks = [asyncio.create_task(limited(scope, ready, nothing_is_sent)) for _ in range(bodies)]
        while not all(task.done() for task in tasks):
            before = read
            await asyncio.sleep(0)
            rounds.append(read - before)
        await asyncio.gather(*tasks)

    asyncio.run(scenario())
    assert sum(rounds) == bodies * pieces
    # The first pieces have been read by the server before anybody asks for them.
    assert sorted(rounds, reverse=True)[:2] == [bodies, 1]


ADA, BOB, EVE, DAN, JOE = (Caller(name, None, frozenset()) for name in ("ada", "bob", "eve", "dan", "joe"))


async def nothing() -> Message:
    raise AssertionError


async def sent_of(parts: list[bytes]) -> list[Message]:
    """What a server gets of a body in these parts."""
    sent: list[Message] = []

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        for number, part in enumerate(parts):
            await send({"type": "http.response.body", "body": part, "more_body": number < len(parts) - 1})

    async def take(message: Message) -> None:
        sent.append(message)

    await BoundedBodies(app, HeldBytes(4 * MIB))({"type": "http", "headers": []}, nothing, take)
    return sent


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES, 3 * PIECE_BYTES + 5])
def test_pieces_are_the_body_and_the_last_one_says_so(size: int) -> None:
    body = bytes(number % 251 for number in range(size))
    sent = asyncio.run(sent_of([b"{", body, b"}"]))
    assert b"".join(bytes(message["body"]) for message in sent) == b"{" + body + b"}"
    assert max(len(message["body"]) for message in sent) <= PIECE_BYTES
    assert [message["more_body"] for message in sent] == [True] * (len(sent) - 1) + [False]
    sent = asyncio.run(sent_of([body]))
    assert [message["more_body"] for message in sent] == [True] * (len(sent) - 1) + [False]


async def test_caller_that_takes_nothing_gets_no_more_while_others_do() -> None:
    limits = ApiSettings(max_unread_mib=4)
    admission = ListAdmission(limits, ApiMetrics().list_queues, has_identity=True)
    taken = asyncio.Event()

    async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.body", "body": b"x" * MIB})

    async def take(_message: Message) -> None:
        await taken.wait()

    async def answer(of_request: RequestAdmission) -> None:
        await BoundedBodies(app, HeldBytes(4 * MIB))(
            {"type": "http", "headers": [], "state": {"admission": of_request}}, nothing, take
        )

    async def ask(caller: Caller) -> RequestAdmission:
        of_request = admission.of(caller)
        (await of_request.enter(is_small=False)).leave()
        return of_request

    answers = [asyncio.create_task(answer(await ask(ADA)))]
    await asyncio.sleep(0)
    with pytest.raises(TooManyListsError, match="You"):
        await ask(ADA)
    for caller in (BOB, EVE, DAN):
        answers.append(asyncio.create_task(answer(await ask(caller))))
        await asyncio.sleep(0)
    with pytest.raises(TooManyListsError, match="are asked for"):
        await ask(JOE)
    taken.set()
    await asyncio.gather(*answers)
    await ask(ADA)
