"""Copies of what Nova sends, through a queue of our own on a real broker; Nova's own queues keep all they have."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event
from uuid import uuid4

import kombu
import pytest
from typer.testing import CliRunner

from fleetlight.bus.bus import Delivery, Message, Publisher, Receiver, remove_bus, remove_work_queue
from fleetlight.bus.external_exchange import Binding
from fleetlight.bus.link import bare_channel, queue_states
from fleetlight.bus.settings import BusSettings
from fleetlight.bus.topology import work_queue_name
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.findings import State
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.migrations import upgrade_cell, upgrade_fleet
from fleetlight.cells.model import Cell
from fleetlight.cli.app import app
from fleetlight.cli.doctor.checks import bus_check
from fleetlight.indexer.writing.leases import CellLeases
from fleetlight.notifications.errors import BusError, BusUnavailableError
from tests.support.waiting import wait_until

pytestmark = pytest.mark.rabbitmq

INFO, ERROR = "versioned_notifications.info", "versioned_notifications.error"


class Nova:
    """Publishes as oslo.messaging does, to an exchange whose name nobody else uses."""

    def __init__(self, amqp_url: str) -> None:
        self.exchange = f"fleetlight-test-{uuid4().hex}"
        self._connection = kombu.Connection(amqp_url)
        self.channel = self._connection.channel()

    def declare(self, *, durable: bool = False) -> None:
        self.channel.exchange_declare(self.exchange, "topic", durable=durable, auto_delete=False)

    def send(self, routing_key: str, body: bytes) -> None:
        message = self.channel.prepare_message(body, content_type="application/json", properties={"delivery_mode": 2})
        self.channel.basic_publish(message, exchange=self.exchange, routing_key=routing_key)

    def close(self) -> None:
        with self._connection.channel() as channel:
            channel.exchange_delete(self.exchange)
        self._connection.release()


@pytest.fixture
def nova(amqp_url: str) -> Iterator[Nova]:
    with closing(Nova(amqp_url)) as nova:
        yield nova


def receive(receiver: Receiver, count: int) -> list[Delivery]:
    deliveries: list[Delivery] = []
    for _ in range(60):
        deliveries += receiver.receive(count - len(deliveries), 10**6, 1.0)
        if len(deliveries) == count:
            return deliveries
    raise AssertionError(f"{len(deliveries)} of {count} messages have arrived")


@pytest.mark.parametrize("durable", [False, True])
def test_each_message_comes_as_a_copy_whatever_the_exchange_was_made_as(
    nova: Nova, amqp_url: str, amqp_cell: str, durable: bool
) -> None:
    nova.declare(durable=durable)
    with kombu.Connection(amqp_url) as connection, connection.channel() as channel:
        theirs = channel.queue_declare("", exclusive=True).queue
        channel.queue_bind(theirs, exchange=nova.exchange, routing_key=INFO)
        with closing(Receiver(amqp_url, amqp_cell, 10, binding=Binding(nova.exchange))) as receiver:
            receiver.receive(1, 1, 0.01)
            nova.send(INFO, b"one")
            nova.send(ERROR, b"two")
            nova.send("notifications.info", b"of the unversioned topic")
            with closing(Publisher(amqp_url, amqp_cell)) as own:
                own.publish([Message(b"three", INFO, {})])
            arrived = receive(receiver, 3)
            assert {delivery.body for delivery in arrived} == {b"one", b"two", b"three"}
            receiver.ack(arrived)
        assert channel.queue_declare(theirs, passive=True).message_count == 1, "nothing was taken from them"


def test_what_is_sent_while_nobody_listens_waits_and_what_was_not_acknowledged_comes_again(
    nova: Nova, amqp_url: str, amqp_cell: str
) -> None:
    nova.declare()
    binding = Binding(nova.exchange)
    with closing(Receiver(amqp_url, amqp_cell, 10, binding=binding)) as receiver:
        receiver.receive(1, 1, 0.01)
    nova.send(INFO, b"one")
    with closing(Receiver(amqp_url, amqp_cell, 10, binding=binding)) as receiver:
        assert not receive(receiver, 1)[0].redelivered
    with closing(Receiver(amqp_url, amqp_cell, 10, binding=binding)) as receiver:
        assert receive(receiver, 1)[0].body == b"one"


def test_exchange_that_is_not_there_is_waited_for_and_not_made(nova: Nova, amqp_url: str, amqp_cell: str) -> None:
    with closing(Receiver(amqp_url, amqp_cell, 10, binding=Binding(nova.exchange))) as receiver:
        with pytest.raises(BusUnavailableError, match=f"there is no exchange '{nova.exchange}' yet.*add durable=true"):
            receiver.receive(1, 1, 0.01)
        nova.declare(durable=True)
        receiver.receive(1, 1, 0.01)
        nova.send(INFO, b"one")
        assert receive(receiver, 1)[0].body == b"one"


def test_doctor_names_queues_that_no_program_reads_and_those_that_grow(
    nova: Nova, amqp_url: str, amqp_cell: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nova.declare()
    topic = f"topic-{amqp_cell}"
    address = f"{amqp_url}?exchange={nova.exchange}&topics={topic}"
    cell = Cell(amqp_cell, "east", CellKind.NOVA_DB, "sqlite://", address)

    def problems() -> dict[str, str]:
        found = bus_check([cell], BusSettings()).run()
        return {each.about.removeprefix("queue "): each.evidence for each in found if each.state is State.WRONG}

    assert problems() == {}
    theirs, ours = f"{topic}.info", work_queue_name(amqp_cell)
    with closing(Receiver(amqp_url, amqp_cell, 1, binding=Binding(nova.exchange, (topic,)))) as receiver:
        receiver.receive(1, 1, 0.01)
        with bare_channel(amqp_url, BusSettings()) as channel:
            channel.queue_declare(theirs, durable=True, auto_delete=False)
            channel.queue_bind(theirs, nova.exchange, routing_key=theirs)
        for _ in range(3):
            nova.send(theirs, b"news")
        monkeypatch.setattr("fleetlight.cli.doctor.checks.MOST_WAITING", 10)
        wait_until(lambda: len(problems()) == 2)
        assert problems() == {
            theirs: "3 messages wait that no program reads",
            ours: "2 messages wait, of at most 10, and then the oldest go, and are read from the cell",
        }
    wait_until(lambda: problems()[ours] == "3 messages wait, and no indexer reads them")
    with bare_channel(amqp_url, BusSettings()) as channel:
        channel.queue_delete(theirs)


def test_doctor_names_an_exchange_that_is_not_there(nova: Nova, amqp_url: str) -> None:
    cell = Cell("uuid", "nova1", CellKind.NOVA_DB, "", f"{amqp_url}?exchange={nova.exchange}")
    check = bus_check([cell], BusSettings())
    with pytest.raises(BusUnavailableError, match=f"there is no exchange '{nova.exchange}' yet"):
        check.run()
    nova.declare()
    assert [finding.state for finding in check.run()] == [State.OK]


def test_exchange_is_made_if_the_address_says_as_what(nova: Nova, amqp_url: str, amqp_cell: str) -> None:
    binding = Binding(nova.exchange, durable=True)
    with closing(Receiver(amqp_url, amqp_cell, 10, binding=binding)) as receiver:
        receiver.receive(1, 1, 0.01)
        nova.declare(durable=True)
        nova.send(INFO, b"one")
        assert receive(receiver, 1)[0].body == b"one"


def test_exchange_that_is_something_else_than_the_address_says_is_named(
    nova: Nova, amqp_url: str, amqp_cell: str
) -> None:
    nova.declare(durable=False)
    binding = Binding(nova.exchange, durable=True)
    with (
        closing(Receiver(amqp_url, amqp_cell, 10, binding=binding)) as receiver,
        pytest.raises(BusError, match=f"'{nova.exchange}' exists and is not what the address says with durable=true"),
    ):
        receiver.receive(1, 1, 0.01)


def test_other_topics_are_bound_if_the_address_names_them(nova: Nova, amqp_url: str, amqp_cell: str) -> None:
    nova.declare()
    binding = Binding(nova.exchange, ("fleetlight",))
    with closing(Receiver(amqp_url, amqp_cell, 10, binding=binding)) as receiver:
        receiver.receive(1, 1, 0.01)
        nova.send(INFO, b"for others")
        nova.send("fleetlight.info", b"for us")
        assert receive(receiver, 1)[0].body == b"for us"


def test_indexer_that_reconnects_before_it_leaves_a_disabled_cell_does_not_leave_its_queue_behind(
    nova: Nova, amqp_url: str, amqp_cell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nova.declare()
    binding, address = Binding(nova.exchange), f"{amqp_url}?exchange={nova.exchange}"
    database = f"sqlite:///{tmp_path}/fleet.db"
    engine = create_database_engine(database)
    upgrade_fleet(engine)
    waits = Event()
    monkeypatch.setattr("fleetlight.cli.cells.cell.print_notice", lambda _: waits.set())
    config = tmp_path / "fleetlight.toml"
    config.write_text(f'[fleet]\ndatabase_url = "{database}"\n')
    with (
        closing(Fleet(engine)) as fleet,
        closing(CellLeases(fleet.open_leases("an indexer"))) as leases,
        ThreadPoolExecutor(1) as threads,
    ):
        fleet.add_cell("one", CellKind.NOVA_DB, f"sqlite:///{tmp_path}/nova.db", address, uuid=amqp_cell)
        assert leases.follow(amqp_cell)
        try:
            disabling = threads.submit(CliRunner().invoke, app, ["cell", "disable", "one", "--config", str(config)])
            wait_until(lambda: waits.is_set() or disabling.done())
            with closing(Receiver(amqp_url, amqp_cell, 10, binding=binding)) as reconnected:
                reconnected.receive(1, 1, 0.01)
        finally:
            leases.leave(amqp_cell)
        assert disabling.result(60).exit_code == 0
        assert fleet.cell("one").disabled
    nova.send(INFO, b"nobody wants it")
    with closing(Receiver(amqp_url, amqp_cell, 10, binding=binding)) as receiver:
        found = receiver.receive(1, 1, 0.01)
        nova.send(INFO, b"one")
        found += receive(receiver, 1)
    assert [delivery.body for delivery in found] == [b"one"]


def test_disabled_native_cell_leaves_no_queue_either(amqp_url: str, amqp_cell: str, tmp_path: Path) -> None:
    fleet_database, cell_database = (f"sqlite:///{tmp_path}/{name}.db" for name in ("fleet", "cell"))
    upgrade_fleet(create_database_engine(fleet_database))
    upgrade_cell(create_database_engine(cell_database))
    config = tmp_path / "fleetlight.toml"
    config.write_text(f'[fleet]\ndatabase_url = "{fleet_database}"\n')
    with closing(Fleet(create_database_engine(fleet_database))) as fleet:
        fleet.add_cell("one", CellKind.NATIVE, cell_database, amqp_url, uuid=amqp_cell)
    with closing(Publisher(amqp_url, amqp_cell)) as relay:
        relay.publish([Message(b"what no indexer has read", INFO, {})])
    queues = [work_queue_name(amqp_cell)]
    assert [queue.messages for queue in queue_states(amqp_url, queues, BusSettings())] == [1]
    assert CliRunner().invoke(app, ["cell", "disable", "one", "--config", str(config)]).exit_code == 0
    assert queue_states(amqp_url, queues, BusSettings()) == []


def test_queue_of_a_cell_that_is_not_followed_is_gone_until_it_is_made_again(
    nova: Nova, amqp_url: str, amqp_cell: str
) -> None:
    nova.declare()
    binding, address = Binding(nova.exchange), f"{amqp_url}?exchange={nova.exchange}"
    with closing(Receiver(amqp_url, amqp_cell, 10, binding=binding)) as receiver:
        receiver.receive(1, 1, 0.01)
    for _ in range(2):
        remove_work_queue(address, amqp_cell)
    nova.send(INFO, b"nobody wants it")
    with closing(Receiver(amqp_url, amqp_cell, 10, binding=binding)) as receiver:
        assert receiver.receive(1, 1, 0.01) == []
        nova.send(INFO, b"one")
        assert receive(receiver, 1)[0].body == b"one"
    remove_bus(address, amqp_cell)
    remove_bus(address, amqp_cell)
    with bare_channel(address, BusSettings()) as channel:
        # The exchange is Nova's.
        channel.exchange_declare(nova.exchange, "topic", passive=True)
