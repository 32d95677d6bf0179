"""Deleted instances leave the index after a while, and come back by no way."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from threading import Event

import pytest
from msgspec.structs import replace

from fleetlight.bus.bus import Message
from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.cells.model import Cell
from fleetlight.indexer.backends.base import HORIZONS, OLDEST_TIME_VERSION, CellProgress
from fleetlight.indexer.errors import DeadLetterReason, LeaseHeldError
from fleetlight.indexer.reconcile.dead_letter_retries import retry
from fleetlight.indexer.reconcile.fill import CellRows
from fleetlight.indexer.reconcile.native_cell import NativeComparison
from fleetlight.indexer.reconcile.reconcile import verify
from fleetlight.indexer.reconcile.recorded_sync import sync_and_record
from fleetlight.indexer.reconcile.retention import Purger, announce, has_forgotten, load_horizons, purge_cell
from fleetlight.indexer.transform.announcers import no_producers
from fleetlight.indexer.writing.dead_letters import DeadLetter, to_failure
from fleetlight.indexer.writing.leases import CellLeases
from tests.support.fleets.documents import make_document
from tests.support.fleets.indexer_worlds import in_thread
from tests.support.memory.memory_cell import CELL_UUID, NOW, ROUTING_KEY, MemoryCell
from tests.support.memory.memory_fleet import MemoryFailures, MemoryJournals, MemoryLeases, MemoryOwners
from tests.support.memory.memory_index import MemoryIndex
from tests.support.waiting import wait_until

DAY = 86_400_000_000
RETENTION_S = 30 * 86_400


class World:
    """A cell, all of it in the index: one live instance, one deleted yesterday, and one deleted 40 days ago."""

    def __init__(self) -> None:
        self.cell = MemoryCell()
        self.index = MemoryIndex()
        self.leases = MemoryLeases()
        for _ in range(3):
            self.cell.create()
        self.live, self.recent, self.old = self.cell.rows
        for uuid, days in ((self.recent, 1), (self.old, 40)):
            moment = NOW - days * DAY
            self.cell.update(uuid, deleted=True, deleted_at=moment, updated_at=moment, vm_state="deleted")
        self.sync()

    def sync(self) -> None:
        horizon = load_horizons(self.index).get(CELL_UUID, 0)
        sync_and_record(CELL_UUID, CellRows(self.cell, batch_size=2, horizon=horizon), self.index)

    def sync_without_horizon(self) -> None:
        """As somebody who has not noticed yet."""
        sync_and_record(CELL_UUID, CellRows(self.cell, batch_size=2), self.index)

    def purge(self) -> int:
        horizons = announce(self.index, [CELL_UUID], RETENTION_S, NOW)
        return purge_cell(self.index, CellLeases(self.leases), self.cell.cell, horizons[CELL_UUID], lambda _: None)

    def purger(self, cells: Callable[[], Sequence[Cell]] | None = None) -> Purger:
        return Purger(
            cells or (lambda: [self.cell.cell]),
            self.index,
            CellLeases(self.leases),
            retention_s=RETENTION_S,
            removal_delay_s=0.01,
            interval_s=0.01,
            clock=lambda: NOW,
        )


@pytest.fixture
def world() -> World:
    return World()


def test_only_what_was_deleted_longer_ago_than_the_retention_leaves(world: World) -> None:
    assert world.purge() == 1
    assert world.index.searchable.keys() == {world.live, world.recent}
    assert load_horizons(world.index) == {CELL_UUID: NOW - 30 * DAY}


@pytest.mark.parametrize("version", [2, OLDEST_TIME_VERSION], ids=["of the cell", "from outside"])
def test_index_tells_whether_something_is_forgotten(world: World, version: int) -> None:
    moment = NOW - 40 * DAY
    world.purge()
    assert not has_forgotten(world.index, CELL_UUID, NOW - 30 * DAY)
    world.index.write(
        [make_document(1, cell_uuid=CELL_UUID, version=version, deleted=True, deleted_at=moment, updated_at=moment)]
    )
    world.index.make_searchable()
    assert has_forgotten(world.index, CELL_UUID, NOW - 30 * DAY)
    assert not has_forgotten(world.index, CELL_UUID, NOW - 50 * DAY)


def test_horizon_never_goes_back(world: World) -> None:
    world.purge()
    assert announce(world.index, [CELL_UUID], 90 * 86_400, NOW) == {CELL_UUID: NOW - 30 * DAY}
    assert announce(world.index, [CELL_UUID], RETENTION_S, NOW + DAY) == {CELL_UUID: NOW - 29 * DAY}


def test_nothing_leaves_that_lists_still_rely_on_when_two_announce_at_once(world: World) -> None:
    """Both have looked before one of them said anything, and who keeps rows for longer had the last word."""
    [looked, said] = (Event(), Event())
    save = world.index.save_state

    def say_later(kind: str, values: Mapping[str, object | None]) -> None:
        looked.set()
        assert said.wait(60)
        save(kind, values)

    def announce_longer(_: Event) -> None:
        slow = copy(world.index)
        slow.save_state = say_later  # type: ignore[method-assign]
        announce(slow, [CELL_UUID], RETENTION_S, NOW)

    with in_thread(announce_longer):
        assert looked.wait(60)
        horizons = announce(world.index, [CELL_UUID], 3600, NOW)
        said.set()
    purge_cell(world.index, CellLeases(world.leases), world.cell.cell, horizons[CELL_UUID], lambda _: None)
    assert load_horizons(world.index)[CELL_UUID] == NOW - 30 * DAY
    assert world.index.searchable.keys() == {world.live, world.recent}


def test_verify_finds_no_difference_before_and_after_a_purge(world: World) -> None:
    def differences() -> int:
        return len(verify(NativeComparison(world.cell, world.index, catch_up_timeout_s=0), repair=False).differences)

    announce(world.index, [CELL_UUID], RETENTION_S, NOW)
    assert differences() == 0
    world.purge()
    assert differences() == 0
    del world.index.documents[world.recent]
    world.index.make_searchable()
    assert differences() == 1


def test_verify_repairs_a_deletion_that_the_index_has_missed_for_that_long(world: World) -> None:
    row = world.cell.rows[world.old]
    document = world.index.documents[world.old]
    world.index.documents[world.old] = replace(
        document, version=row.revision - 1, record={**document.record, "deleted": False, "deleted_at": None}
    )
    world.index.make_searchable()
    announce(world.index, [CELL_UUID], RETENTION_S, NOW)
    verification = verify(NativeComparison(world.cell, world.index, catch_up_timeout_s=0), repair=True)
    assert [difference.uuid for difference in verification.differences] == [world.old]
    assert verification.remaining == ()
    assert world.index.searchable[world.old].record["deleted"]


def test_sync_does_not_bring_back_what_was_purged(world: World) -> None:
    world.purge()
    world.sync()
    assert world.index.documents.keys() == {world.live, world.recent}


def test_late_message_about_a_purged_instance_of_somebody_else_does_not_bring_it_back(world: World) -> None:
    elsewhere = MemoryCell("5a1c6f0e-8c8e-4d6f-9a52-0a3a1d2f7b22")
    change = elsewhere.create()
    [external] = elsewhere.rows
    sent_at = NOW  # about; MemoryCell takes the time of the machine
    world.index.save_state(HORIZONS, {CELL_UUID: sent_at * 2})
    failures = MemoryFailures()
    letter = DeadLetter(Message(change.body, ROUTING_KEY, {}), DeadLetterReason.REJECTED, "once too long")
    failures.add([to_failure(CELL_UUID, letter, NOW)])
    [result] = retry(
        list(failures.kept.values()),
        world.cell,
        world.index,
        failures,
        MemoryJournals(),
        owners=MemoryOwners(),
        announcer=lambda *_: "rack-agent",
    )
    assert result.is_solved
    assert external not in world.index.documents
    assert sent_at > OLDEST_TIME_VERSION


def test_late_message_about_a_purged_row_does_not_bring_it_back_alive(world: World) -> None:
    created = world.cell.message_of(next(each for each in world.cell.changes if each.instance_uuid == world.old))
    world.purge()
    failures = MemoryFailures()
    failures.add([to_failure(CELL_UUID, DeadLetter(created, DeadLetterReason.REJECTED, "once too long"), NOW)])
    retry(
        list(failures.kept.values()),
        world.cell,
        world.index,
        failures,
        MemoryJournals(),
        owners=MemoryOwners(),
        announcer=no_producers,
    )
    found = world.index.documents.get(world.old)
    assert found is None or found.record["deleted"]
    world.purge()
    assert world.old not in world.index.documents


def test_purge_waits_for_nobody_who_works_on_the_cell(world: World) -> None:
    world.leases.taken[f"index-bulk-{CELL_UUID}"] = "index verify"
    with pytest.raises(LeaseHeldError, match="index verify"):
        world.purge()
    assert world.old in world.index.documents


def test_purger_purges_as_soon_as_it_can_and_again(world: World) -> None:
    world.leases.taken[f"index-bulk-{CELL_UUID}"] = "index verify"
    with in_thread(world.purger().run):
        wait_until(lambda: load_horizons(world.index))
        assert world.old in world.index.documents
        world.leases.taken.clear()
        wait_until(lambda: world.old not in world.index.documents, 60)
        world.sync_without_horizon()
        wait_until(lambda: world.old not in world.index.documents, 60)
    assert world.leases.held == set()


def test_purger_outlives_what_is_away(world: World) -> None:
    is_away = Event()
    is_away.set()

    def cells() -> Sequence[Cell]:
        if is_away.is_set():
            raise FleetUnreachableError("it is away")
        return [world.cell.cell]

    with in_thread(world.purger(cells).run):
        world.index.failures = 3
        wait_until(lambda: world.index.failures == 0, 60)
        is_away.clear()
        wait_until(lambda: world.old not in world.index.documents, 60)


def test_cell_that_the_index_does_not_know_gets_no_horizon(world: World) -> None:
    world.index.saved.clear()
    with in_thread(world.purger().run):
        world.index.save_progress([CellProgress("another", 0, 0, is_complete=True)])
    assert load_horizons(world.index) == {}
