"""Nova's notifications go through the bus into the index, and can be found there with what they carry."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import pytest

from fleetlight.bus.bus import Message, Publisher
from fleetlight.bus.topology import routing_key
from fleetlight.cells.payloads.instance_payload import from_payload
from fleetlight.notifications.envelope import Notification, encode, read_sample
from fleetlight.notifications.registry import parse_payload
from fleetlight.resources.fields import Record
from tests.support.fleets.indexer_worlds import World
from tests.support.played.producers import announcement, let_announce
from tests.support.waiting import wait_until

START = datetime(2026, 11, 21, 10, 0, tzinfo=UTC)


@pytest.fixture
def world(world: World) -> World:
    """Its cell is one that announcements are believed of."""
    let_announce(world.fleet, world.cell)
    return world


@pytest.fixture
def samples(samples_dir: Path) -> list[tuple[str, bytes]]:
    files = sorted((samples_dir / "nova" / "notifications").glob("*.json"))
    assert files
    return [(path.name, path.read_bytes()) for path in files]


def _publish(world: World, notifications: list[Notification]) -> None:
    publisher = Publisher(world.cell.transport_url, world.cell.uuid)
    messages = [Message(encode(sent), routing_key(sent.priority), {}) for sent in notifications]
    publisher.publish([announcement(message, world.cell.uuid) for message in messages])
    publisher.close()


def _carried(notification: Notification) -> Record:
    return from_payload(parse_payload(notification.payload))


def test_every_sample_of_an_instance_can_be_found_with_what_it_carries(
    world: World, samples: list[tuple[str, bytes]]
) -> None:
    sent: dict[str, Notification] = {}
    for number, (_, text) in enumerate(samples):
        # An instance for each, since they all tell of the same one.
        uuid = str(UUID(int=number + 1, version=4))
        changed = json.loads(text)
        if "uuid" in changed["payload"]["nova_object.data"] and changed["event_type"].startswith("instance."):
            changed["payload"]["nova_object.data"]["uuid"] = uuid
            sent[uuid] = read_sample(json.dumps(changed).encode(), START)
    assert len(sent) > 30
    with world.indexing():
        _publish(world, list(sent.values()))
        documents = wait_until(lambda: (found := world.documents(list(sent))).keys() == sent.keys() and found, 30)
    assert documents
    for uuid, notification in sent.items():
        record = documents[uuid].record
        carried = dict(_carried(notification))
        is_deletion = notification.event_type == "instance.delete.end"
        assert record["deleted"] is is_deletion, notification.event_type
        if is_deletion:
            carried.pop("deleted_at")
            assert record["deleted_at"] is not None
        assert {name: record[name] for name in carried} == carried, notification.event_type
    assert world.fleet.failures.counts() == {}


def test_all_samples_of_one_instance_end_in_its_deletion(world: World, samples: list[tuple[str, bytes]]) -> None:
    notifications = [read_sample(text, START + timedelta(seconds=second)) for second, (_, text) in enumerate(samples)]
    of_instances = [sent for sent in notifications if sent.event_type.startswith("instance.")]
    uuid = str(of_instances[0].payload["nova_object.data"]["uuid"])
    last = replace(next(sent for sent in of_instances if sent.event_type == "instance.update"), timestamp=START)
    with world.indexing():
        _publish(world, [*notifications, replace(last, timestamp=START + timedelta(days=1))])
        document = wait_until(
            lambda: (found := world.documents([uuid]).get(uuid)) and found.record["deleted"] and found, 30
        )
    assert document
    assert document.record["deleted"] is True
    assert world.fleet.failures.counts() == {}
