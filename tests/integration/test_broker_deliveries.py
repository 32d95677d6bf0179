"""Deliveries to a real RabbitMQ: what a consumer's queue gets, and what becomes of failures."""

import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

import kombu
import pytest
from cloudevents.core.formats.json import JSONFormat

from bench.faults.proxy import TcpProxy, tcp_proxy
from fleetlight.api.subscriptions.brokers import broker_address, without_password
from fleetlight.api.subscriptions.events import other_event
from fleetlight.api.subscriptions.targets import TargetRules
from fleetlight.delivery.broker_link import BrokerLink
from fleetlight.delivery.outcomes import UNTRUSTED, Away, Delivered, Outcome, Refused
from scripts.servers.certificates import CA_FILE
from tests.contract.compute_fleet import ComputeFleet, compute_fleet
from tests.contract.test_deliveries import LOCAL, Subscriber
from tests.support.deliveries import Receiver, delivering, receiving
from tests.support.servers.tls_front import tls_front
from tests.support.waiting import wait_until

PAGES = Path(__file__).parents[2] / "docs/operations"
EVENTS = [other_event("a subscription", "test") for _ in range(2)]


class Exchange:
    """An exchange of a test, and a queue that gets all of it from `bind` on. url: of a target, with the password."""

    def __init__(self, amqp_url: str) -> None:
        self.name = f"fleetlight-test-{uuid4().hex}"
        self.url = f"{amqp_url}?exchange={self.name}"
        self.connection = kombu.Connection(amqp_url)
        self.channel = self.connection.channel()
        self.messages: list[Any] = []

    def bind(self) -> None:
        """Also declares the exchange, which the broker refuses unless it is what it is to be."""
        self.channel.exchange_declare(self.name, "topic", durable=True, auto_delete=False)
        self.channel.queue_declare(self.name, auto_delete=False)
        self.channel.queue_bind(self.name, self.name, "#")

    def events(self) -> Sequence[Any]:
        """All that have come so far."""
        while (message := self.channel.basic_get(self.name, no_ack=True)) is not None:
            self.messages.append(message)
        return [json.loads(each.body) for each in self.messages]

    def wait_for(self, count: int) -> Sequence[Any]:
        """The changes, once there are so many different ones."""

        def changes() -> Sequence[Any]:
            found = [each for each in self.events() if ".instance." in each["type"]]
            return found if len({each["id"] for each in found}) >= count else []

        return wait_until(changes)

    def close(self) -> None:
        self.channel.queue_delete(self.name)
        self.channel.exchange_delete(self.name)
        self.connection.release()


@pytest.fixture
def exchange(amqp_url: str) -> Iterator[Exchange]:
    made = Exchange(amqp_url)
    yield made
    made.close()


@pytest.fixture
def broker(amqp_url: str) -> Iterator[TcpProxy]:
    """In front of RabbitMQ."""
    place = urlsplit(amqp_url)
    with tcp_proxy(place.hostname or "127.0.0.1", place.port or 5672) as proxy:
        yield proxy
        proxy.restore()


@pytest.fixture(scope="module")
def receiver() -> Iterator[Receiver]:
    with receiving() as made:
        yield made


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComputeFleet]:
    with compute_fleet(tmp_path_factory.mktemp("fleet")) as made, delivering(made.fleet_url):
        yield made


@pytest.fixture
def subscribe(fleet: ComputeFleet, receiver: Receiver) -> Iterator[Callable[..., Subscriber]]:
    api, made = fleet.api(delivery=LOCAL), list[str]()

    def make(**values: Any) -> Subscriber:
        subscriber = Subscriber(fleet, api, receiver, **values)
        made.append(subscriber.id)
        return subscriber

    yield make
    for each in made:
        fleet.fleet.subscriptions.remove(each)


def through(proxy: TcpProxy, url: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{parts.netloc.rpartition('@')[0]}@127.0.0.1:{proxy.port}").geturl()


def first_revisions(changes: Sequence[Any], uuid: str) -> Sequence[int]:
    """In the order in which each came first."""
    return list(dict.fromkeys(each["data"]["revision"] for each in changes if each["data"]["id"] == uuid))


def test_queue_gets_each_event_once_and_in_order_from_when_it_is_bound(
    subscribe: Callable[..., Subscriber], exchange: Exchange
) -> None:
    subscriber = subscribe(url=exchange.url)
    wait_until(lambda: subscriber.show()["last_error"] == "the exchange has no queue for fleetlight.complete")
    uuids = subscriber.create("a", "b", "c")
    exchange.bind()
    for uuid in uuids:
        subscriber.change(uuid, times=3)
    changes = exchange.wait_for(12)
    wait_until(lambda: subscriber.show()["delivered"] == len(exchange.events()))
    assert subscriber.failures() == []
    assert exchange.events()[0]["type"] == "fleetlight.complete"
    assert len(changes) == len({each["id"] for each in changes})
    for uuid in uuids:
        assert first_revisions(changes, uuid) == [1, 2, 3, 4]
    for message, event in zip(exchange.messages, exchange.events(), strict=True):
        assert JSONFormat().read(None, message.body).get_id() == event["id"] == message.properties["message_id"]
        assert message.delivery_info["routing_key"] == event["type"]
        assert message.properties["content_type"] == "application/cloudevents+json"
        assert message.properties["delivery_mode"] == 2


def test_broker_that_is_cut_off_misses_nothing_and_delays_no_webhook(
    subscribe: Callable[..., Subscriber], exchange: Exchange, broker: TcpProxy
) -> None:
    exchange.bind()
    subscriber, other = subscribe(url=through(broker, exchange.url)), subscribe().begun()
    uuids = subscriber.create(*map(str, range(5)))
    exchange.wait_for(5)
    for cut_off in (broker.cut, broker.hold):
        cut_off()
        for uuid in uuids:
            subscriber.change(uuid)
        other.receiver.wait_for(other.path, len(other.create("a")))
        broker.restore()
    changes = exchange.wait_for(15)
    for uuid in uuids:
        assert first_revisions(changes, uuid) == [1, 2, 3]
    wait_until(lambda: subscriber.show()["failing_since"] is None)
    assert subscriber.failures() == []


def test_wrong_password_is_said_without_it(
    subscribe: Callable[..., Subscriber], exchange: Exchange, capfd: pytest.CaptureFixture[str]
) -> None:
    account, _, place = exchange.url.rpartition("@")
    subscriber = subscribe(url=f"{account}-hidden@{place}")
    wait_until(lambda: subscriber.show()["failing_since"])
    assert subscriber.show()["last_error"] == "the broker refuses the user or the password (403)"
    subscriber.post("test")
    wait_until(lambda: [each for each in subscriber.failures() if not each["waiting"]])
    output = capfd.readouterr()
    assert "hidden" not in json.dumps([subscriber.show(), subscriber.failures(), output.out, output.err])


def link_to(url: str, **changed: Any) -> BrokerLink:
    shown, password = without_password(url)
    return BrokerLink(replace(broker_address(shown), **changed), password, TargetRules(LOCAL))


@pytest.mark.parametrize(
    ("changed", "outcome"),
    [
        ({"virtual_host": "hidden"}, Away("there is no such virtual host, or the user may not use it (530)")),
        # A name that RabbitMQ reserves, and an exchange of its own to which clients cannot publish.
        ({"exchange": "amq.hidden"}, Away("there is no such exchange, and the user may not make it (403)")),
        ({"exchange": "amq.rabbitmq.trace"}, Refused("the user may not publish this event (403)")),
        ({"port": 1}, Away("it cannot be reached")),
        ({"host": "hidden.invalid"}, Away("it cannot be reached")),
    ],
)
def test_broker_that_takes_nothing_says_why(exchange: Exchange, changed: Any, outcome: Outcome) -> None:
    assert link_to(exchange.url, **changed).publish(EVENTS) == [outcome] * len(EVENTS)


def test_exchange_that_was_removed_is_made_again(exchange: Exchange) -> None:
    exchange.bind()
    link = link_to(exchange.url)
    assert link.publish(EVENTS) == [Delivered()] * 2
    exchange.channel.exchange_delete(exchange.name)
    assert link.publish(EVENTS) == [Away("the exchange was removed (404)")] * 2
    assert link.publish(EVENTS) == [Away("the exchange has no queue for fleetlight.test")] * 2
    link.close()


def test_certificate_of_a_broker_is_checked(
    exchange: Exchange, amqp_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange.bind()
    with tls_front(tmp_path, amqp_url) as front:
        encrypted = {"is_encrypted": True, "port": urlsplit(front).port}
        assert link_to(exchange.url, **encrypted).publish(EVENTS[:1]) == [Away(UNTRUSTED)]
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / CA_FILE))
        for host, outcome in (("localhost", Delivered()), ("0x7f.1", Away(UNTRUSTED))):
            link = link_to(exchange.url, **encrypted, host=host)
            assert link.publish(EVENTS[:1]) == [outcome]
            link.close()


def test_documented_consumer_keeps_a_copy(subscribe: Callable[..., Subscriber], exchange: Exchange) -> None:
    """The code of docs/operations/events-from-a-broker.md, with that of docs/operations/webhooks.md."""
    code: dict[str, Any] = {}
    for page in ("webhooks.md", "events-from-a-broker.md"):
        exec(re.findall(r"```python\n(.*?)```", (PAGES / page).read_text(), re.DOTALL)[0], code)  # noqa: S102
    store = sqlite3.connect(":memory:")
    store.execute("CREATE TABLE seen (id TEXT PRIMARY KEY)")
    store.execute("CREATE TABLE copy (id TEXT PRIMARY KEY, revision INTEGER, name TEXT)")
    listed: list[str] = []
    subscriber = subscribe(url=exchange.url, fields=["name"])
    names = exchange.name, exchange.name
    with code["consumer"](exchange.connection, store, lambda _, kind: listed.append(kind), *names):
        while not listed:
            exchange.connection.drain_events(timeout=30)
        uuids = subscriber.create("a", "b")
        while store.execute("SELECT count(*) FROM copy").fetchone()[0] < len(uuids):
            exchange.connection.drain_events(timeout=30)
    found = store.execute("SELECT id, name FROM copy ORDER BY name").fetchall()
    assert found == [(uuid, f"{subscriber.name}-{name}") for uuid, name in zip(uuids, "ab", strict=True)]
    assert listed == ["complete"]
    store.close()
