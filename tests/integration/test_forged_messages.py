"""Who can reach the bus of one cell speaks for no other cell, and not as its relay or its producers.

So whatever a program publishes there that may not announce anything becomes no server.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from uuid import UUID, uuid4

import pytest

from fleetlight.bus.bus import Headers, Message, Publisher
from fleetlight.bus.signatures import ProducerKey, SigningKey, is_signed
from fleetlight.bus.topology import (
    CELL_HEADER,
    EPOCH_HEADER,
    PRODUCER_HEADER,
    RESOURCE_HEADER,
    REVISION_HEADER,
    SEQUENCE_HEADER,
    SIGNATURE_HEADER,
)
from fleetlight.cells.batched import batched
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fleet.cell_keys import Keyring, new_key
from fleetlight.cells.fleet.failures import FailureSummary
from fleetlight.cells.kinds.native.outbox import heartbeat_message
from fleetlight.cells.migrations import upgrade_cell
from fleetlight.cells.model import Cell
from fleetlight.indexer.backends.base import OLDEST_TIME_VERSION
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.errors import DeadLetterReason, MalformedMessageError
from fleetlight.indexer.transform.documents import ExternalChange
from fleetlight.indexer.transform.messages import interpret
from fleetlight.indexer.writing.dead_letters import DeadLetter, to_failure
from fleetlight.resources.clock import system_clock
from tests.support.fleets.indexer_worlds import World, new_world
from tests.support.memory.memory_cell import ROUTING_KEY, MemoryCell
from tests.support.played.producers import PRODUCER_KEY, announcement, let_announce
from tests.support.waiting import wait_until

pytestmark = pytest.mark.no_rerun

ONE, TWO = "5a1c6f0e-8c8e-4d6f-9a52-0a3a1d2f7c01", "5a1c6f0e-8c8e-4d6f-9a52-0a3a1d2f7c02"
LAST = "00000000-0000-4000-8000-00000000000a"
SECOND_LAST = "00000000-0000-4000-8000-00000000000b"
HUGE = OLDEST_TIME_VERSION - 1
MUTATIONS = 300
_UUID = re.compile(rb"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TIMESTAMP = re.compile(rb'(timestamp[\\\\": ]+)[0-9-]{10} [0-9:.]{8,15}')
_HEADERS = (
    CELL_HEADER,
    EPOCH_HEADER,
    PRODUCER_HEADER,
    RESOURCE_HEADER,
    REVISION_HEADER,
    SEQUENCE_HEADER,
    SIGNATURE_HEADER,
)


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

    def announced(self, uuid: str, key: ProducerKey = PRODUCER_KEY, cell_uuid: str = TWO) -> Message:
        """The same as a producer signs it."""
        return announcement(self.message(uuid, {}), cell_uuid, key)

    def last(self) -> Message:
        """What a producer of the second cell announces, to see that all before it is dealt with."""
        return self.announced(LAST)

    def servers(self) -> dict[str, int]:
        """The documents of the second cell that only announcements tell of, with their versions."""
        with closing(open_writer(self.world.index)) as reader:
            reader.make_searchable()
            return dict(reader.revisions(TWO, [""], external=True))

    def dead_letters(self) -> dict[str, FailureSummary]:
        failures = self.world.fleet.failures
        return {each.id: each for each in failures.summaries([TWO])}

    def refuses_a_new_one(self) -> bool:
        """Publish one more announcement of a producer, and see whether one was refused: the indexer has looked then."""
        self.publish(self.announced(str(uuid4())))
        return bool(self.dead_letters())

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
        let_announce(world.fleet, second)
        let_announce(world.fleet, world.cell)
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
        attack.publish(forged, attack.last())
        # The messages of a cell are dealt with in their order.
        wait_until(lambda: LAST in world.documents([LAST]))
        assert attack.owner_of(uuid) == (ONE, "right")
        world.operations.update(uuid, {"display_name": "changed"})
        wait_until(lambda: attack.owner_of(uuid) == (ONE, "changed"))


def test_announcement_of_another_cells_instance_that_is_not_indexed_yet_takes_nothing(attack: Attack) -> None:
    world = attack.world
    uuid = world.operations.create({"display_name": "right"}).uuid
    with world.indexing():
        attack.publish(attack.message(uuid, {}), attack.last())
        wait_until(lambda: LAST in world.documents([LAST]))
        assert world.documents([uuid]).get(uuid) is None or attack.owner_of(uuid) == (ONE, "right")
        with world.relaying():
            wait_until(lambda: world.documents([uuid]) and attack.owner_of(uuid) == (ONE, "right"))


def test_forged_heartbeat_makes_no_cell_fresh(attack: Attack) -> None:
    world = attack.world
    with world.indexing():
        with closing(Publisher(world.cell.transport_url, ONE)) as publisher:
            heartbeat = heartbeat_message(world.cell, 0, system_clock())
            publisher.publish([heartbeat, attack.announced(LAST, cell_uuid=ONE)])
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


def test_program_that_can_only_publish_makes_no_server(attack: Attack) -> None:
    stranger = ProducerKey("stranger", SigningKey("0123abcd", bytes(32)))
    impostor = ProducerKey("rack-agent", SigningKey("0123abcd", bytes(32)))
    uuids = [str(uuid4()) for _ in range(5)]
    unsigned, unknown, forged, moved, relayed = uuids
    with attack.world.indexing():
        attack.publish(
            attack.message(unsigned, {}),
            attack.announced(unknown, stranger),
            attack.announced(forged, impostor),
            attack.announced(moved, cell_uuid=ONE),
            attack.message(relayed, headers_of(attack, relayed, revision=1)),
            attack.last(),
        )
        wait_until(lambda: LAST in attack.servers())
        assert attack.servers().keys() == {LAST}
    reasons = {each.instance_uuid: (each.reason, each.detail) for each in attack.dead_letters().values()}
    assert {uuid: reason for uuid, (reason, _) in reasons.items()} == {
        unsigned: "refused",
        unknown: "refused",
        forged: "refused",
        moved: "malformed",
        relayed: "refused",
    }
    assert "has to name its producer" in reasons[unsigned][1]
    assert "producer 'stranger' has no key" in reasons[unknown][1]
    assert "the signature is not that of producer 'rack-agent'" in reasons[forged][1]


def test_cell_that_takes_none_any_more_keeps_what_it_has_and_says_why_it_takes_no_more(attack: Attack) -> None:
    late = str(uuid4())
    with attack.world.indexing():
        attack.publish(attack.last())
        wait_until(lambda: LAST in attack.servers())
        attack.world.fleet.set_takes_announcements(TWO, False)
        wait_until(attack.refuses_a_new_one)
        before = attack.servers()
        assert LAST in before
        attack.publish(attack.announced(late))
        wait_until(lambda: late in {each.instance_uuid for each in attack.dead_letters().values()})
        assert attack.servers() == before
    assert {(each.reason, each.detail) for each in attack.dead_letters().values()} == {
        ("refused", "cell two takes no announcements: `fleetlight cell set two --announcements` lets it")
    }


def test_revoked_producer_announces_nothing_more(attack: Attack) -> None:
    late = str(uuid4())
    other = ProducerKey("other", new_key())
    let_announce(attack.world.fleet, attack.second, other)
    with attack.world.indexing():
        attack.publish(attack.last())
        wait_until(lambda: LAST in attack.servers())
        attack.world.fleet.producer_keys.revoke(PRODUCER_KEY.producer)
        wait_until(attack.refuses_a_new_one)
        before = attack.servers().keys()
        attack.publish(attack.announced(late), attack.announced(SECOND_LAST, other))
        wait_until(lambda: SECOND_LAST in attack.servers())
        assert attack.servers().keys() == before | {SECOND_LAST}


@pytest.mark.parametrize("seed", range(3))
def test_mutated_messages_make_no_server_and_are_dead_letters_or_harmless(attack: Attack, seed: int) -> None:
    """Of 4,013 some 210 became servers when anybody could announce."""
    world, generator = attack.world, Random(seed)
    known = str(uuid4())
    before, base = attack.announced(known), attack.announced(known)
    relayed = Keyring(world.fleet.cell_keys).sign(TWO, attack.message(known, headers_of(attack, known, revision=1)))
    captured = [
        base,
        attack.message(known, {}),
        relayed,
        attack.announced(known, ProducerKey("stranger", new_key())),
        attack.announced(known, cell_uuid=ONE),
    ]
    mutated = [mutate(generator, generator.choice(captured), captured) for _ in range(MUTATIONS)]
    with world.indexing():
        attack.publish(before)
        wait_until(lambda: known in attack.servers())
        first = attack.servers()
        attack.publish(base)
        wait_until(lambda: attack.servers()[known] > first[known])
        wait_until(lambda: attack.owner_of(known) == (TWO, "forged"))
        document = world.documents([known])[known]
        for messages in batched(mutated, 50):
            attack.publish(*messages)
        attack.publish(attack.last())
        wait_until(lambda: LAST in attack.servers())
        assert attack.servers().keys() == {known, LAST}
        assert world.documents([known])[known] == document
    letters = attack.dead_letters()
    silent = [each for each in mutated if letter_id(each) not in letters]
    assert {letter.reason for letter in letters.values()} >= {"malformed", "refused"}
    assert all(letter.detail for letter in letters.values())
    assert len(silent) < MUTATIONS / 2
    relays = Keyring(world.fleet.cell_keys)
    for message in silent:
        assert is_harmless(message, base, relays), message


def letter_id(message: Message) -> str:
    error = MalformedMessageError(DeadLetterReason.MALFORMED, "")
    return to_failure(TWO, DeadLetter.of(message, error), 0).id


def is_harmless(message: Message, base: Message, relays: Keyring) -> bool:
    """Whether it is a replay, of what is there already, or says nothing of any instance."""
    if message.body == base.body and is_signed(message.headers, message.body, PRODUCER_KEY.key):
        return True
    if relays.is_of_relay(TWO, message.headers, message.body):
        return True
    try:
        return not isinstance(interpret(message.body, None), ExternalChange)
    except MalformedMessageError:
        return False


def mutate(generator: Random, message: Message, others: Sequence[Message]) -> Message:
    """The message with some of what somebody might try who has captured it."""
    for _ in range(generator.randint(1, 3)):
        body, headers = message.body, dict(message.headers)
        match generator.randrange(9):
            case 0:
                place = generator.randrange(len(body))
                body = body[:place] + bytes([body[place] ^ 1 << generator.randrange(7)]) + body[place + 1 :]
            case 1:
                uuid = str(UUID(int=generator.getrandbits(128), version=4))
                body = _UUID.sub(uuid.encode(), body)
            case 2:
                body = body.replace(b"another", generator.choice([b"root", b"", b"\\u0000", b"demo"]))
            case 3:
                body = body[: generator.randrange(len(body))]
            case 4:
                headers.pop(generator.choice(sorted(headers)), None) if headers else None
            case 5:
                headers |= generator.choice(others).headers
            case 6:
                name = generator.choice(_HEADERS)
                values: Sequence[int | str] = (0, 1, HUGE, -1, "", "rack-agent", ONE, TWO, "ä", "0123abcd:x")
                headers[name] = generator.choice(values)
            case 7:
                event = generator.choice([b"instance.delete.end", b"instance.create.end", b"cell.heartbeat", b"x.y"])
                body = body.replace(b"instance.update", event)
            case _:
                moment = f"20{generator.randint(10, 60)}-01-01 00:00:00.000001".encode()
                body = _TIMESTAMP.sub(b"\\1" + moment, body)
        message = Message(body, message.routing_key, headers)
    return message
