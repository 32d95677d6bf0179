"""What comes of events for what is no broker, or one that does as it likes."""

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from struct import pack

import pytest
from amqp.exceptions import AccessRefused  # type: ignore[import-untyped]  # as kombu, which it belongs to
from pydantic import SecretStr
from structlog.testing import capture_logs

from fleetlight.api.settings import DeliverySettings
from fleetlight.api.subscriptions.brokers import BrokerAddress
from fleetlight.api.subscriptions.events import Event, other_event
from fleetlight.api.subscriptions.targets import TargetRules
from fleetlight.delivery.broker_link import BrokerLink
from fleetlight.delivery.brokers import Broker
from fleetlight.delivery.outcomes import Away, Delivered, Outcome, Refused

LOCAL = TargetRules(DeliverySettings(allowed_networks=("127.0.0.1",)))
EVENT = other_event("a subscription", "test")


@contextmanager
def served(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """The port of a server that handles one connection; ends when that has ended."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def handle() -> None:
            with suppress(OSError), listener.accept()[0] as connection:
                serve(connection)

        thread = threading.Thread(target=handle)
        thread.start()
        yield listener.getsockname()[1]
        thread.join(10)
        assert not thread.is_alive()


def link_to(port: int, rules: TargetRules = LOCAL) -> BrokerLink:
    """0x7f.1 is 127.0.0.1 to a resolver, and a name to what looks at the URL."""
    address = BrokerAddress(
        is_encrypted=False, host="0x7f.1", port=port, user="ada", virtual_host="/", exchange="fleet"
    )
    return BrokerLink(address, SecretStr("secret"), rules)


def outcome_of(serve: Callable[[socket.socket], None]) -> Outcome:
    """serve: called once the client has said what it speaks, as it does first."""

    def answer(connection: socket.socket) -> None:
        connection.recv(8)
        serve(connection)

    with served(answer) as port:
        return link_to(port).publish([EVENT])[0]


def hang(connection: socket.socket) -> None:
    while connection.recv(4096):
        pass


def send_without_end(connection: socket.socket) -> None:
    connection.sendall(pack(">BHI", 3, 1, 0xFFFFFFFF))
    while True:
        connection.sendall(b"x" * 65_536)


def send_empty_frames(connection: socket.socket) -> None:
    """As heartbeats are."""
    while True:
        connection.sendall(pack(">BHIB", 8, 0, 0, 0xCE) * 1000)


def speak_amqp_1(connection: socket.socket) -> None:
    connection.sendall(b"AMQP\0\1\0\0")


@pytest.mark.parametrize("serve", [send_without_end, send_empty_frames, speak_amqp_1])
def test_what_is_no_broker_is_away(serve: Callable[[socket.socket], None]) -> None:
    with capture_logs() as logs:
        assert outcome_of(serve) == Away("it does not speak AMQP 0-9-1")
    assert [each["event"] for each in logs if each["log_level"] == "warning"] == ["deliverer.not_understood"]


def test_connection_that_ends_at_once_is_away() -> None:
    assert outcome_of(lambda _: None) == Away("the connection broke off")


class Choosy:
    """Takes events until it comes to one that it refuses, as a broker with rights to single routing keys does."""

    def __init__(self, refused: Event) -> None:
        self._refused = refused

    def publish(self, events: Sequence[Event], outcomes: dict[int, Outcome]) -> None:
        for place, event in enumerate(events):
            if event is self._refused:
                raise AccessRefused("no", (60, 40))
            outcomes[place] = Delivered()


def test_one_of_several_events_is_refused_without_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BrokerLink, "_open", lambda _: Choosy(EVENT))
    refused = Refused("the user may not publish this event (403)")
    others = [other_event("a subscription", "test") for _ in range(2)]
    outcomes = link_to(1).publish([others[0], EVENT, others[1]])
    assert outcomes == [Delivered(), refused, Delivered()]


def test_connection_to_an_inner_address_is_not_made() -> None:
    inner = Away("its address is an inner one, which the operator has not allowed")
    assert link_to(1, TargetRules(DeliverySettings())).publish([EVENT]) == [inner]


def test_broker_that_hangs_is_away_after_a_time_and_let_go_of_at_once() -> None:
    async def send_and_close(port: int) -> list[Outcome]:
        broker = Broker(link_to(port), timeout_s=0.2)
        outcomes = [await broker.send(EVENT)]
        sending = asyncio.create_task(broker.send(EVENT))
        await asyncio.sleep(0)
        sending.cancel()
        await broker.close()
        return outcomes

    with served(hang) as port:
        began_at = time.monotonic()
        assert asyncio.run(send_and_close(port)) == [Away("no answer in 0.2 s")]
    # Before the link itself gives up what does not answer (4 s).
    assert time.monotonic() - began_at < 3
