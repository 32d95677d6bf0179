"""Who can reach the bus of one cell speaks for no other cell, and not as the relay of that one (issue J, point 3)."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fleetlight.bus.bus import Headers, Message, Publisher
from fleetlight.bus.topology import CELL_HEADER, RESOURCE_HEADER, REVISION_HEADER, SEQUENCE_HEADER
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fleet.cell_keys import Keyring
from fleetlight.cells.kinds.native.outbox import heartbeat_message
from fleetlight.cells.migrations import upgrade_cell
from fleetlight.cells.model import Cell
from fleetlight.indexer.backends.base import OLDEST_TIME_VERSION
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.resources.clock import system_clock
from tests.support.indexer_worlds import World, new_world
from tests.support.memory_cell import ROUTING_KEY, MemoryCell
from tests.support.waiting import wait_until

ONE, TWO = "5a1c6f0e-8c8e-4d6f-9a52-0a3a1d2f7c01", "5a1c6f0e-8c8e-4d6f-9a52-0a3a1d2f7c02"
LAST = "00000000-0000-4000-8000-00000000000a"
HUGE = OLDEST_TIME_VERSION - 1


class Attack:
    """A fleet of two native cells, and somebody who can publish on the bus of the second one."""

    def __init__(self, world: World, second: Cell) -> None:
        self.world = world
        self.second = second
        self.stranger = MemoryCell(second.uuid)

    def message(self, uuid: str, headers: Headers) -> Message:
        """What the second cell might say of an instance, with these headers besides."""
        if uuid not in self.stranger.rows:
            self.stranger.create(uuid=uuid)
        said = self.stranger.update(uuid, display_name="forged", project_id="another")
        return Message(said.body, ROUTING_KEY, headers)

    def publish(self, *messages: Message) -> None:
        with closing(Publisher(self.second.transport_url, self.second.uuid)) as publisher:
            publisher.publish(messages)

    def owner_of(self, uuid: str) -> tuple[str, str]:
        document = self.world.documents([uuid])[uuid]
        return document.cell_uuid, str(document.record["display_name"])


@pytest.fixture
def attack(tmp_path: Path) -> Iterator[Attack]:
    index = IndexSettings(path=tmp_path / "index.db")
    with new_world(tmp_path, "memory://", ONE, index) as world:
        second = world.fleet.add_cell("two", CellKind.NATIVE, f"sqlite:///{tmp_path}/two.db", "memory://", uuid=TWO)
        engine = create_database_engine(second.database_url)
        upgrade_cell(engine)
        yield Attack(world, second)
        engine.dispose()


def headers_of(attack: Attack, uuid: str, *, revision: int = HUGE, sequence: int = 1) -> Headers:
    return {
        CELL_HEADER: attack.second.uuid,
        SEQUENCE_HEADER: sequence,
        REVISION_HEADER: revision,
        RESOURCE_HEADER: uuid,
    }


@pytest.mark.parametrize("names_its_cell", [True, False])
@pytest.mark.parametrize("is_signed", [True, False])
def test_message_on_the_bus_of_one_cell_does_not_replace_the_instance_of_another(
    attack: Attack, *, is_signed: bool, names_its_cell: bool
) -> None:
    world = attack.world
    with world.relaying(), world.indexing():
        uuid = world.operations.create({"display_name": "right"}).uuid
        wait_until(lambda: world.documents([uuid]))
        headers = headers_of(attack, uuid)
        if not names_its_cell:
            del headers[CELL_HEADER]
        forged = attack.message(uuid, headers)
        if is_signed:
            forged = Keyring(world.fleet.cell_keys).sign(TWO, forged)
        attack.publish(forged, attack.message(LAST, {}))
        # The messages of a cell are dealt with in their order.
        wait_until(lambda: LAST in world.documents([LAST]))
        assert attack.owner_of(uuid) == (ONE, "right")
        world.operations.update(uuid, {"display_name": "changed"})
        wait_until(lambda: attack.owner_of(uuid) == (ONE, "changed"))


def test_announcement_of_another_cells_instance_that_is_not_indexed_yet_takes_nothing(attack: Attack) -> None:
    world = attack.world
    uuid = world.operations.create({"display_name": "right"}).uuid
    with world.indexing():
        attack.publish(attack.message(uuid, {}), attack.message(LAST, {}))
        wait_until(lambda: LAST in world.documents([LAST]))
        assert world.documents([uuid]).get(uuid) is None or attack.owner_of(uuid) == (ONE, "right")
        with world.relaying():
            wait_until(lambda: world.documents([uuid]) and attack.owner_of(uuid) == (ONE, "right"))


def test_forged_heartbeat_makes_no_cell_fresh(attack: Attack) -> None:
    world = attack.world
    with world.indexing():
        with closing(Publisher(world.cell.transport_url, ONE)) as publisher:
            heartbeat = heartbeat_message(world.cell, 0, system_clock())
            publisher.publish([heartbeat, attack.message(LAST, {})])
        wait_until(lambda: LAST in world.documents([LAST]))
    # What it has reached is saved at its end.
    progress = world.progress()
    assert progress is not None
    assert progress.fresh_as_of == 0


def test_what_the_relay_has_published_without_a_signature_is_repaired_from_the_changelog(attack: Attack) -> None:
    """As before an upgrade; what is in the queue then is not lost."""
    world = attack.world
    with world.indexing():
        with world.relaying(signs=False):
            uuid = world.operations.create({"display_name": "first"}).uuid
            wait_until(world.has_published_everything)
            world.operations.update(uuid, {"display_name": "second"})
            wait_until(world.has_published_everything)
        with world.relaying():
            wait_until(lambda: world.documents([uuid]) and attack.owner_of(uuid) == (ONE, "second"))
            wait_until(world.index_equals_cell)


def test_keys_change_while_messages_are_on_their_way(attack: Attack) -> None:
    world = attack.world
    with world.relaying(), world.indexing():
        for number in range(3):
            uuid = world.operations.create({"display_name": str(number)}).uuid
            now = system_clock()
            world.fleet.cell_keys.rotate(ONE, now=now, accepted_until=now + 60_000_000)
            wait_until(lambda: world.documents([uuid]))  # noqa: B023
        wait_until(world.index_equals_cell)
