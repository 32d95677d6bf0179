"""The keys that relays sign with, on each kind of database."""

from collections.abc import Callable

from fleetlight.bus.bus import Message
from fleetlight.bus.topology import CELL_HEADER
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.fleet.cell_keys import Keyring
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.model import Cell

HOUR = 3_600_000_000


def message(cell: Cell) -> Message:
    return Message(b"body", "versioned_notifications.info", {CELL_HEADER: cell.uuid})


def test_native_cell_gets_a_key_when_it_joins_and_keeps_it(fleet: Fleet, cell: Cell) -> None:
    before = fleet.cell_keys.of_cells()
    fleet.add_cell(cell.name, cell.kind, "sqlite:///elsewhere.db", cell.transport_url)
    assert fleet.cell_keys.of_cells() == before
    assert [len(keys) for keys in before.values()] == [1]
    assert len(before[cell.uuid][0].key.secret) == 32


def test_cell_of_somebody_else_has_none_and_a_removed_one_none_any_more(fleet: Fleet, cell: Cell) -> None:
    fleet.add_cell("nova", CellKind.NOVA_DB, "mysql://nova", "")
    assert fleet.cell_keys.of_cells().keys() == {cell.uuid}
    fleet.set_disabled(cell.uuid, True)
    fleet.remove_cell(cell)
    assert not fleet.cell_keys.of_cells()


def test_each_cell_is_believed_with_its_own_key_only(fleet: Fleet, cell: Cell) -> None:
    other = fleet.add_cell("two", CellKind.NATIVE, "sqlite:///two.db", "memory://")
    keys = Keyring(fleet.cell_keys)
    forged = keys.sign(other.uuid, message(cell))
    assert keys.is_of_relay(other.uuid, forged.headers, forged.body)
    assert not keys.is_of_relay(cell.uuid, forged.headers, forged.body)
    assert not keys.is_of_relay(cell.uuid, message(cell).headers, b"body")


def test_old_key_is_believed_for_a_while_and_the_new_one_at_once(
    fleet: Fleet, cell: Cell, clock: Callable[[], int]
) -> None:
    now = clock()
    times = [now]
    relay, indexer = Keyring(fleet.cell_keys, lambda: times[0]), Keyring(fleet.cell_keys, lambda: times[0])
    indexer.refresh()
    old = relay.sign(cell.uuid, message(cell))
    fleet.cell_keys.rotate(cell.uuid, now=now, accepted_until=now + HOUR)
    relay.refresh()
    new = relay.sign(cell.uuid, message(cell))
    assert new.headers != old.headers
    # The indexer has not looked since.
    assert indexer.is_of_relay(cell.uuid, new.headers, new.body)
    assert indexer.is_of_relay(cell.uuid, old.headers, old.body)
    times[0] = now + HOUR
    assert indexer.is_of_relay(cell.uuid, new.headers, new.body)
    assert not indexer.is_of_relay(cell.uuid, old.headers, old.body)
    fleet.cell_keys.rotate(cell.uuid, now=now + HOUR, accepted_until=now + 2 * HOUR)
    assert len(fleet.cell_keys.of_cells()[cell.uuid]) == 2, "what is not believed any more is forgotten"
