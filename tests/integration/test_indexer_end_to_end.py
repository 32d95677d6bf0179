"""From an operation to the index: cell, relay, bus, indexer and index are the real ones, on either bus and index."""

import random
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import kombu
from sqlalchemy import delete

from fleetlight.bus.bus import Message, Publisher, Receiver, dead_letters
from fleetlight.bus.memory_transport import MemoryTransport
from fleetlight.bus.topology import RESOURCE_HEADER, REVISION_HEADER, SEQUENCE_HEADER, work_queue_name
from fleetlight.cells.database.engines import create_database_engine, writing
from fleetlight.cells.errors import InstanceNotFoundError, InvalidTransitionError
from fleetlight.cells.fleet.adoption import map_instances
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.native.outbox import append_external
from fleetlight.cells.kinds.native.registration import register_native_cell, remember_cell
from fleetlight.cells.kinds.opening import open_changelog_adapter
from fleetlight.cells.migrations import upgrade_fleet
from fleetlight.cells.tables import changes
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.manager.operations.simulation.simulated_instances import new_instance, new_metadata
from fleetlight.notifications.envelope import Notification, encode, read_sample
from tests.support.fleets.changing_nodes import ChangingNodes
from tests.support.fleets.indexer_worlds import World
from tests.support.fleets.instance_operations import InstanceOperations
from tests.support.played.producers import announcement, let_announce
from tests.support.traced import RecordedTraces, times
from tests.support.waiting import wait_until

NOW = 1_790_000_000_000_000
ROUTING_KEY = "versioned_notifications.info"
SAMPLE = Path(__file__).parents[2] / "notifications" / "samples" / "instance.create.end.json"


def operate(operations: InstanceOperations, count: int, seed: int = 1) -> None:
    """Operations as people do them, some of which the state of the instance forbids."""
    chance = random.Random(seed)
    uuids: list[str] = []
    for _ in range(count):
        if len(uuids) < 5 or chance.random() < 0.3:
            uuids.append(operations.create(new_instance(chance, "one", created_at=NOW)).uuid)
            continue
        uuid = chance.choice(uuids)
        try:
            match chance.randrange(5):
                case 0:
                    operations.update(uuid, {"metadata": new_metadata(chance)})
                case 1:
                    operations.stop(uuid)
                case 2:
                    operations.start(uuid)
                case 3:
                    operations.move(uuid, f"host-{chance.randrange(5)}")
                case _:
                    operations.delete(uuid)
        except (InvalidTransitionError, InstanceNotFoundError):
            continue


def drop_waiting_messages(world: World) -> None:
    """What a bus does that loses its memory."""
    transport = MemoryTransport if world.cell.transport_url.startswith("memory") else None
    with kombu.Connection(world.cell.transport_url, transport=transport) as connection, connection.channel() as channel:
        channel.queue_purge(work_queue_name(world.cell.uuid))


def test_index_equals_the_cell_while_operations_go_on(world: World) -> None:
    operate(world.operations, 40, seed=1)
    with world.relaying(), world.indexing():
        operate(world.operations, 120, seed=2)
        wait_until(world.index_equals_cell)
        progress = world.progress()
        assert progress is not None
        wait_until(lambda: (world.progress() or progress).fresh_as_of > progress.fresh_as_of)


def test_trace_goes_on_over_the_bus_and_ends_where_searches_find_the_change(world: World) -> None:
    recorded = RecordedTraces()
    request = "req-46f4d8ac-e61c-452d-926b-b508626a50af"
    asked_for = Notification("service.update", {}, "nova-compute:h", "INFO", datetime.now(UTC), "an-id", request)
    with world.relaying(traces=recorded.traces), world.indexing(traces=recorded.traces):
        append_external(world.engine, world.cell, encode(asked_for), ROUTING_KEY)
        wait_until(lambda: len(recorded.spans) == 2)
    publish, index = recorded.spans
    assert (publish.name, index.name) == ("publish", "index")
    assert publish.context is not None
    assert index.parent is not None
    assert (index.parent.trace_id, index.parent.span_id) == (publish.context.trace_id, publish.context.span_id)
    assert times(publish)[0] < times(index)[0] < times(index)[1]


def test_what_the_bus_forgot_while_the_indexer_was_down_is_caught_up_with(world: World) -> None:
    with world.relaying():
        with world.indexing():
            operate(world.operations, 30, seed=1)
            wait_until(world.index_equals_cell)
        operate(world.operations, 60, seed=2)
        wait_until(world.has_published_everything)
    drop_waiting_messages(world)
    with world.indexing():
        wait_until(world.index_equals_cell)


def test_what_the_bus_loses_under_the_running_indexer_is_caught_up_with(world: World) -> None:
    chance = random.Random(7)
    with world.relaying(loses=lambda _: chance.random() < 0.2), world.indexing():
        operate(world.operations, 100, seed=1)
        wait_until(world.index_equals_cell)


def test_nodes_are_followed_as_instances_are(world: World) -> None:
    """Also those of whose joining nobody was told, and what the bus loses."""
    chance = random.Random(5)
    nodes = ChangingNodes(world.engine, world.fleet, world.cell, ("host1", "host2"))
    with writing(world.engine) as connection:
        # As a program of the version before adds hosts.
        connection.execute(delete(changes))
    with world.relaying(loses=lambda _: chance.random() < 0.3):
        with world.indexing():
            wait_until(world.index_has_the_items)
            nodes.add("host3")
            for number in range(12):
                nodes.disable(f"host{chance.randrange(3) + 1}", disabled=bool(number % 2))
            nodes.remove("host2")
            operate(world.operations, 5)
            wait_until(world.index_has_the_items)
            wait_until(world.index_equals_cell)
        with closing(open_writer(world.index)) as writer:
            # Somebody damages the index while no indexer runs.
            writer.mark_items("node", world.cell.uuid, are_whole=False)
            uuids = list(writer.items("node", world.cell.uuid))
            writer.remove_items("node", world.cell.uuid, dict.fromkeys(uuids, 1_000))
        nodes.force_down("host1", forced_down=True)
        with world.indexing():
            wait_until(world.index_has_the_items)


def test_poison_on_the_bus_disturbs_nothing_else_and_is_kept_with_its_reason(world: World) -> None:
    publisher = Publisher(world.cell.transport_url, world.cell.uuid)
    with world.relaying(), world.indexing():
        operate(world.operations, 20, seed=1)
        publisher.publish([Message(body, ROUTING_KEY, {}) for body in (b"{", b"[", b"{")])
        operate(world.operations, 20, seed=2)
        wait_until(world.index_equals_cell)
        wait_until(lambda: sorted(_failed(world)) == [(b"[", "malformed", 1), (b"{", "malformed", 2)], 60)
    publisher.close()


def _failed(world: World) -> list[tuple[bytes, str, int]]:
    """Of each failure of the fleet the body, the reason, and how often it happened."""
    store = world.fleet.failures
    found = store.find([summary.id for summary in store.summaries([world.cell.uuid])])
    return [(failure.body, failure.summary.reason, failure.summary.times) for failure in found]


def test_dead_letters_that_are_on_the_bus_are_taken_over(world: World) -> None:
    """The fleet database was away when they came, or the broker has given up on them."""
    receiver = Receiver(world.cell.transport_url, world.cell.uuid, 1)
    receiver.dead_letter(Message(b"{", ROUTING_KEY, {}), "malformed", "it is not JSON")
    receiver.close()
    wait_until(lambda: dead_letters(world.cell.transport_url, world.cell.uuid) == 1, 60)
    with world.indexing():
        wait_until(lambda: _failed(world) == [(b"{", "malformed", 1)], 60)
    wait_until(lambda: dead_letters(world.cell.transport_url, world.cell.uuid) == 0, 60)


def test_instance_of_a_poisoned_change_is_read_again_from_the_cell(world: World) -> None:
    """The message is damaged on its way: the cell knows better."""
    uuid = world.operations.create({}).uuid
    with world.relaying():
        wait_until(world.has_published_everything)
    publisher = Publisher(world.cell.transport_url, world.cell.uuid)
    with world.indexing():
        wait_until(world.index_equals_cell)
        world.operations.update(uuid, {"display_name": "renamed"})
        publisher.publish([Message(b"{", ROUTING_KEY, {SEQUENCE_HEADER: 2, REVISION_HEADER: 2, RESOURCE_HEADER: uuid})])
        wait_until(lambda: world.documents([uuid])[uuid].record["display_name"] == "renamed")
    publisher.close()


def another_index(world: World, folder: Path) -> IndexSettings:
    """An empty one of the same kind."""
    if world.index.backend == "sqlite":
        return IndexSettings(path=folder / "another.db")
    return world.index.model_copy(update={"prefix": f"{world.index.prefix}-another"})


def test_index_that_was_thrown_away_is_filled_again(world: World, tmp_path: Path) -> None:
    with world.relaying(), world.indexing():
        operate(world.operations, 60, seed=1)
        wait_until(world.index_equals_cell)
    world.index = another_index(world, tmp_path)
    with world.indexing():
        wait_until(world.index_equals_cell)


def test_lost_index_gets_back_what_only_notifications_have_told_and_a_lost_journal_too(
    world: World, tmp_path: Path
) -> None:
    created = read_sample(SAMPLE.read_bytes(), datetime.now(UTC))
    uuid = str(created.payload["nova_object.data"]["uuid"])
    let_announce(world.fleet, world.cell)
    with world.indexing(), closing(Publisher(world.cell.transport_url, world.cell.uuid)) as publisher:
        publisher.publish([announcement(Message(encode(created), ROUTING_KEY, {}), world.cell.uuid)])
        before = wait_until(lambda: world.documents([uuid]).get(uuid))
    assert before is not None
    assert before.extra is not None
    assert before.extra.values == {"announced_by": "rack-agent"}
    world.index = another_index(world, tmp_path)
    with world.indexing():
        assert wait_until(lambda: world.documents([uuid]).get(uuid)) == before
    announced = world.fleet.journals.announced
    announced.forget(world.cell.uuid, [uuid])
    with world.indexing():
        wait_until(lambda: announced.versions(world.cell.uuid).keys() == {uuid})


def test_cell_in_a_new_fleet_database_is_followed_on_from_where_the_index_is(world: World, tmp_path: Path) -> None:
    with world.relaying(), world.indexing():
        operate(world.operations, 30, seed=1)
        wait_until(world.index_equals_cell)
    before = world.progress()
    remember_cell(world.engine, world.cell)
    fleet_url = f"sqlite:///{tmp_path}/new-fleet.db"
    engine = create_database_engine(fleet_url)
    upgrade_fleet(engine)
    with closing(Fleet(engine)) as fleet:
        cell = register_native_cell(fleet, world.engine, "again", world.cell.database_url, world.cell.transport_url)
        with closing(open_changelog_adapter(cell)) as adapter:
            map_instances(adapter, fleet)
        operations = InstanceOperations(world.engine, fleet, cell)
        later = World(fleet_url, fleet, cell, world.engine, operations, world.index)
        assert (cell.uuid, later.progress()) == (world.cell.uuid, before)
        with later.relaying(), later.indexing():
            operate(operations, 30, seed=2)
            wait_until(later.index_equals_cell)
            assert fleet.failures.counts() == {}
