"""What comes of a post, by what the other side does."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from yarl import URL

from fleetlight.api.settings import DeliverySettings
from fleetlight.api.subscriptions.targets import TargetRules
from fleetlight.delivery.outcomes import Away, Delivered, Outcome, Refused, Unwanted
from fleetlight.delivery.webhooks import WebhookCalls

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
RULES = TargetRules(DeliverySettings(allowed_networks=("127.0.0.1",)))


def outcome_of(serve: Serve, timeout_s: float = 30) -> Outcome:
    async def post() -> Outcome:
        served: list[asyncio.Task[None] | None] = []

        async def serve_and_close(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            served.append(asyncio.current_task())
            with suppress(ConnectionError):
                await serve(reader, writer)
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()

        server = await asyncio.start_server(serve_and_close, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        calls = WebhookCalls(RULES, timeout_s=timeout_s)
        try:
            return await calls.post(URL(f"http://127.0.0.1:{port}/"), {}, b"{}")
        finally:
            await calls.close()
            server.close()
            await asyncio.gather(*filter(None, served))

    return asyncio.run(post())


def answering(head: str, body: bytes = b"", *, is_endless: bool = False) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        length = "" if is_endless else f"Content-Length: {len(body)}\r\n"
        writer.write(f"HTTP/1.1 {head}\r\n{length}\r\n".encode() + body)
        while is_endless:
            writer.write(b"x" * 65_536)
            await writer.drain()

    return serve


@pytest.mark.parametrize(
    ("head", "outcome"),
    [
        ("200 OK", Delivered()),
        ("204 No Content", Delivered()),
        ("301 Moved\r\nLocation: /other", Refused("it answered 301; redirects are not followed")),
        ("400 Bad Request", Refused("it answered 400")),
        ("500 Mistake", Refused("it answered 500")),
        ("410 Gone", Unwanted("the target answered 410: it wants no more")),
        ("503 Away", Away("it answered 503")),
        ("503 Away\r\nRetry-After: 120", Away("it answered 503", 120.0)),
        ("429 Too many\r\nRetry-After: soon", Away("it answered 429")),
        ("504 Late\r\nRetry-After: Wed, 21 Oct 2015 07:28:00 GMT", Away("it answered 504", 0.0)),
    ],
)
def test_status_says_what_came_of_it(head: str, outcome: Outcome) -> None:
    assert outcome_of(answering(head)) == outcome


def test_date_of_retry_after_is_waited_for() -> None:
    later = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    outcome = outcome_of(answering(f"503 Away\r\nRetry-After: {later}"))
    assert isinstance(outcome, Away)
    assert outcome.retry_after_s is not None
    assert 3500 < outcome.retry_after_s <= 3600


def test_answer_without_end_is_not_read_to_it() -> None:
    assert outcome_of(answering("200 OK", is_endless=True)) == Delivered()


def test_target_that_says_nothing_is_away_after_a_time() -> None:
    async def hang(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    assert outcome_of(hang, timeout_s=0.05) == Away("no answer in 0.05 s")


def test_what_is_no_http_is_away() -> None:
    async def mumble(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail\r\n")

    outcome = outcome_of(mumble)
    assert isinstance(outcome, Away)
    assert outcome.reason.startswith("the connection broke off")


def test_connection_to_an_inner_address_is_not_made() -> None:
    async def post() -> Outcome:
        calls = WebhookCalls(TargetRules(DeliverySettings()))
        try:
            return await calls.post(URL("http://127.0.0.1:1/"), {}, b"{}")
        finally:
            await calls.close()

    assert asyncio.run(post()) == Away("its address is an inner one, which the operator has not allowed")
