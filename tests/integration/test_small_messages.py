"""A broker whose `max_message_size` was lowered, with messages that are over it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from fleetlight.bus.bus import Message, Publisher, Receiver
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.notifications.errors import MessageRefusedError
from scripts.servers.private import private_server
from scripts.servers.rabbitmq import RabbitMQ
from tests.support.fleets.indexer_worlds import new_world
from tests.support.memory.memory_cell import CELL_UUID
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.night, pytest.mark.own_servers, pytest.mark.rabbitmq, pytest.mark.timeout(300)]

LARGEST = 20_000


class SmallRabbitMQ(RabbitMQ):
    def _configuration(self, folder: Path, port: int) -> list[str]:
        return [*super()._configuration(folder, port), f"max_message_size = {LARGEST}"]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with private_server(SmallRabbitMQ()) as broker:
        yield broker.url


def test_changes_that_the_broker_refuses_reach_the_index_and_hold_up_no_others(url: str, tmp_path: Path) -> None:
    """The relay tried the same batch for ever."""
    index = IndexSettings(path=tmp_path / "index.db")
    with new_world(tmp_path, url, CELL_UUID, index) as world, world.relaying(), world.indexing():
        for number in range(6):
            world.operations.create({"display_description": "x" * (30_000 if number % 2 else 10)})
        wait_until(lambda: world.has_published_everything() and world.index_equals_cell())


def test_message_that_the_broker_refuses_fails_by_that_name_and_the_next_one_arrives(url: str) -> None:
    publisher = Publisher(url, "00000000-0000-4000-8000-00000000000a")
    receiver = Receiver(url, "00000000-0000-4000-8000-00000000000a", prefetch=10)
    with pytest.raises(MessageRefusedError, match="is larger than configured max size"):
        publisher.publish([Message(b"x" * size, "versioned_notifications.INFO", {}) for size in (1, LARGEST + 1)])
    publisher.publish([Message(b"next", "versioned_notifications.INFO", {})])
    received = {delivery.body for _ in range(3) for delivery in receiver.receive(10, 1_000_000, wait_s=1)}
    assert b"next" in received
    publisher.close()
    receiver.close()
