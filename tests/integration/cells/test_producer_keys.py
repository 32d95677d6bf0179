"""The keys that producers sign with, on each kind of database: who is believed where, and for how long."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from fleetlight.bus.bus import Message
from fleetlight.bus.signatures import ProducerKey, SigningKey, signed_by_producer
from fleetlight.bus.topology import CELL_HEADER, PRODUCER_HEADER, REVISION_HEADER, SEQUENCE_HEADER, SIGNATURE_HEADER
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.fleet.cell_keys import Keyring, new_key
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.fleet.producer_keys import ProducerKeyring, RefusedAnnouncement
from fleetlight.cells.model import Cell
from tests.support.played.producers import PRODUCER_KEY, let_announce

HOUR = 3_600_000_000
MESSAGE = Message(b"body", "versioned_notifications.info", {})


@pytest.fixture
def ring(fleet: Fleet, cell: Cell) -> ProducerKeyring:
    let_announce(fleet, cell)
    return ProducerKeyring(fleet.producer_keys)


def announcer(ring: ProducerKeyring, cell: Cell, message: Message) -> str:
    """Who is believed to have made it; otherwise why nobody is."""
    found = ring.announcer(cell.uuid, message.headers, message.body)
    return f"refused: {found.why}" if isinstance(found, RefusedAnnouncement) else found


def with_headers(message: Message, **headers: int | str) -> Message:
    return replace(message, headers={**message.headers, **headers})


def test_cell_takes_announcements_only_if_it_is_let_to_and_goes_on_so(fleet: Fleet, cell: Cell) -> None:
    assert not fleet.cell(cell.uuid).takes_announcements
    fleet.set_takes_announcements(cell.uuid, True)
    fleet.add_cell(cell.name, cell.kind, "sqlite:///elsewhere.db", cell.transport_url)
    assert fleet.cell(cell.uuid).takes_announcements
    fleet.set_takes_announcements(cell.uuid, False)
    assert not fleet.cell(cell.uuid).takes_announcements


def test_what_a_producer_has_signed_for_a_cell_is_its_own(ring: ProducerKeyring, cell: Cell) -> None:
    assert announcer(ring, cell, signed_by_producer(MESSAGE, cell.uuid, PRODUCER_KEY)) == "rack-agent"


def test_captured_message_is_nobodys_on_the_bus_of_another_cell(
    fleet: Fleet, cell: Cell, ring: ProducerKeyring
) -> None:
    other = fleet.add_cell("two", CellKind.NATIVE, "sqlite:///two.db", "memory://")
    let_announce(fleet, other)
    captured = signed_by_producer(MESSAGE, cell.uuid, PRODUCER_KEY)
    assert "has to be signed for" in announcer(ring, other, captured)
    moved = replace(captured, headers={**captured.headers, CELL_HEADER: other.uuid})
    assert "the signature is not that of producer 'rack-agent'" in announcer(ring, other, moved)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (lambda message: MESSAGE, "has to name its producer"),
        (lambda message: replace(message, body=b"Body"), "the signature is not that"),
        (lambda message: with_headers(message, **{SEQUENCE_HEADER: 1}), "the signature is not that"),
        (lambda message: with_headers(message, **{REVISION_HEADER: 7}), "the signature is not that"),
        (lambda message: with_headers(message, **{PRODUCER_HEADER: "other"}), "producer 'other' has no key '0123abcd'"),
        (lambda message: with_headers(message, **{PRODUCER_HEADER: 7}), "has to name its producer"),
        (lambda message: with_headers(message, **{SIGNATURE_HEADER: "0123abcd:"}), "the signature is not that"),
        (lambda message: with_headers(message, **{SIGNATURE_HEADER: "ä"}), "has no key 'ä'"),
        (lambda message: with_headers(message, **{SIGNATURE_HEADER: 1}), "has to be signed"),
    ],
)
def test_message_that_was_changed_is_nobodys(
    ring: ProducerKeyring, cell: Cell, changed: Callable[[Message], Message], why: str
) -> None:
    found = announcer(ring, cell, changed(signed_by_producer(MESSAGE, cell.uuid, PRODUCER_KEY)))
    assert found.startswith("refused: ")
    assert why in found


def test_relays_and_producers_cannot_speak_as_each_other(fleet: Fleet, cell: Cell, ring: ProducerKeyring) -> None:
    relay = Keyring(fleet.cell_keys)
    of_relay = relay.sign(cell.uuid, replace(MESSAGE, headers={CELL_HEADER: cell.uuid}))
    assert "has to name its producer" in announcer(ring, cell, of_relay)
    headers: dict[str, int | str] = {CELL_HEADER: cell.uuid, PRODUCER_HEADER: "rack-agent"}
    as_producer = relay.sign(cell.uuid, replace(MESSAGE, headers=headers))
    assert "has no key" in announcer(ring, cell, as_producer)
    of_producer = signed_by_producer(MESSAGE, cell.uuid, PRODUCER_KEY)
    assert not relay.is_of_relay(cell.uuid, of_producer.headers, of_producer.body)


def test_new_key_is_believed_at_once_and_the_old_one_for_a_while(
    fleet: Fleet, cell: Cell, clock: Callable[[], int]
) -> None:
    let_announce(fleet, cell)
    now = clock()
    times = [now]
    ring = ProducerKeyring(fleet.producer_keys, lambda: times[0])
    ring.refresh()
    newer = ProducerKey("rack-agent", new_key())
    assert fleet.producer_keys.accept(newer, [], now=now, accepted_until=now + HOUR) == [cell.uuid]
    old, new = (signed_by_producer(MESSAGE, cell.uuid, key) for key in (PRODUCER_KEY, newer))
    # The indexer has not looked since.
    assert [announcer(ring, cell, each) for each in (new, old)] == ["rack-agent"] * 2
    times[0] = now + HOUR
    assert announcer(ring, cell, new) == "rack-agent"
    assert "is not accepted any more" in announcer(ring, cell, old)
    assert fleet.producer_keys.is_current(newer)
    assert not fleet.producer_keys.is_current(PRODUCER_KEY)
    fleet.producer_keys.accept(newer, [], now=now + HOUR, accepted_until=now + HOUR)
    assert [each.key for each in fleet.producer_keys.all()] == [newer.key], "what is not believed is forgotten"


def test_producer_that_is_revoked_in_one_cell_or_in_all_is_nobody_there(fleet: Fleet, cell: Cell) -> None:
    other = fleet.add_cell("two", CellKind.NATIVE, "sqlite:///two.db", "memory://")
    let_announce(fleet, cell)
    let_announce(fleet, other)
    ring = ProducerKeyring(fleet.producer_keys)
    ring.refresh()
    assert fleet.producer_keys.revoke("rack-agent", [other.uuid]) == [other.uuid]
    ring.refresh()
    here, there = (signed_by_producer(MESSAGE, each.uuid, PRODUCER_KEY) for each in (cell, other))
    assert announcer(ring, cell, here) == "rack-agent"
    assert "has no key '0123abcd' in this cell (any more)" in announcer(ring, other, there)
    assert fleet.producer_keys.revoke("rack-agent") == [cell.uuid]
    ring.refresh()
    assert "has no key" in announcer(ring, cell, here)
    assert not fleet.producer_keys.is_current(PRODUCER_KEY)
    assert fleet.producer_keys.revoke("rack-agent") == []


def test_key_of_the_same_name_with_another_secret_is_not_current(fleet: Fleet, cell: Cell) -> None:
    let_announce(fleet, cell)
    assert fleet.producer_keys.is_current(PRODUCER_KEY)
    assert not fleet.producer_keys.is_current(ProducerKey("rack-agent", SigningKey(PRODUCER_KEY.key.id, bytes(32))))


def test_removed_cell_has_no_producers_any_more(fleet: Fleet, cell: Cell) -> None:
    let_announce(fleet, cell)
    fleet.set_disabled(cell.uuid, True)
    fleet.remove_cell(cell)
    assert fleet.producer_keys.all() == []
