"""A large answer is handed over in pieces, and counts against its caller until all of it is taken."""

import asyncio

import pytest
from starlette.types import Message, Receive, Scope, Send

from fleetlight.api.caller import Caller
from fleetlight.api.http.errors import TooManyListsError
from fleetlight.api.limits.admission import ListAdmission, RequestAdmission
from fleetlight.api.limits.paced_bodies import PIECE_BYTES, PacedBodies
from fleetlight.api.metrics import ApiMetrics
from fleetlight.api.settings import ApiSettings

ADA, BOB, EVE, DAN, JOE = (Caller(name, None, frozenset()) for name in ("ada", "bob", "eve", "dan", "joe"))
MIB = 2**20


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

    await PacedBodies(app)({"type": "http"}, nothing, take)
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


def test_caller_that_takes_nothing_gets_no_more_while_others_do() -> None:
    async def main() -> None:
        limits = ApiSettings(max_unread_mib=4)
        admission = ListAdmission(limits, ApiMetrics().list_queues, has_identity=True)
        taken = asyncio.Event()

        async def app(_scope: Scope, _receive: Receive, send: Send) -> None:
            await send({"type": "http.response.body", "body": b"x" * MIB})

        async def take(_message: Message) -> None:
            await taken.wait()

        async def answer(of_request: RequestAdmission) -> None:
            await PacedBodies(app)({"type": "http", "state": {"admission": of_request}}, nothing, take)

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

    asyncio.run(main())
