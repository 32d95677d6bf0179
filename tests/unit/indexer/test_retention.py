"""Deleted instances leave the index after a while, and come back by no way."""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from threading import Event

import pytest

from fleetlight.bus.bus import Message
from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.cells.model import Cell
from fleetlight.indexer.backends.base import HORIZONS, OLDEST_TIME_VERSION, CellProgress
from fleetlight.indexer.errors import LeaseHeldError
from fleetlight.indexer.reconcile.retention import Purger, announce, has_forgotten, load_horizons, purge_cell
from fleetlight.indexer.writing.leases import CellLeases
from tests.support.fleets.documents import make_document
from tests.support.fleets.indexer_worlds import in_thread
from tests.support.memory.memory_cell import CELL_UUID, NOW, ROUTING_KEY, MemoryCell
from tests.support.memory.stage import NativeStage
from tests.support.waiting import wait_until

DAY = 86_400_000_000
RETENTION_S = 30 * 86_400


class Stage(NativeStage[MemoryCell]):
    """A cell, all of it in the index: one live instance, one deleted yesterday, and one deleted 40 days ago."""

    def __init__(self) -> None:
        super().__init__(MemoryCell(instances=3))
        self.live, self.recent, self.old = self.cell.rows
        for uuid, days in ((self.recent, 1), (self.old, 40)):
            moment = NOW - days * DAY
            self.cell.update(uuid, deleted=True, deleted_at=moment, updated_at=moment, vm_state="deleted")
        self.sync()

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
def stage() -> Stage:
    return Stage()


def test_only_what_was_deleted_longer_ago_than_the_retention_leaves(stage: Stage) -> None:
    assert stage.purge() == 1
    assert stage.index.searchable.keys() == {stage.live, stage.recent}
    assert load_horizons(stage.index) == {CELL_UUID: NOW - 30 * DAY}


@pytest.mark.parametrize("version", [2, OLDEST_TIME_VERSION], ids=["of the cell", "from outside"])
def test_index_tells_whether_something_is_forgotten(stage: Stage, version: int) -> None:
    moment = NOW - 40 * DAY
    stage.purge()
    assert not has_forgotten(stage.index, CELL_UUID, NOW - 30 * DAY)
    stage.index.write(
        [make_document(1, cell_uuid=CELL_UUID, version=version, deleted=True, deleted_at=moment, updated_at=moment)]
    )
    stage.index.make_searchable()
    assert has_forgotten(stage.index, CELL_UUID, NOW - 30 * DAY)
    assert not has_forgotten(stage.index, CELL_UUID, NOW - 50 * DAY)


def test_horizon_never_goes_back(stage: Stage) -> None:
    stage.purge()
    assert announce(stage.index, [CELL_UUID], 90 * 86_400, NOW) == {CELL_UUID: NOW - 30 * DAY}
    assert announce(stage.index, [CELL_UUID], RETENTION_S, NOW + DAY) == {CELL_UUID: NOW - 29 * DAY}


def test_nothing_leaves_that_lists_still_rely_on_when_two_announce_at_once(stage: Stage) -> None:
    """Both have looked before one of them said anything, and who keeps rows for longer had the last word."""
    [looked, said] = (Event(), Event())
    save = stage.index.save_state

    def say_later(kind: str, values: Mapping[str, object | None]) -> None:
        looked.set()
        assert said.wait(60)
        save(kind, values)

    def announce_longer(_: Event) -> None:
        slow = copy(stage.index)
        slow.save_state = say_later  # type: ignore[method-assign]
        announce(slow, [CELL_UUID], RETENTION_S, NOW)

    with in_thread(announce_longer):
        assert looked.wait(60)
        horizons = announce(stage.index, [CELL_UUID], 3600, NOW)
        said.set()
    purge_cell(stage.index, CellLeases(stage.leases), stage.cell.cell, horizons[CELL_UUID], lambda _: None)
    assert load_horizons(stage.index)[CELL_UUID] == NOW - 30 * DAY
    assert stage.index.searchable.keys() == {stage.live, stage.recent}


def test_verify_finds_no_difference_before_and_after_a_purge(stage: Stage) -> None:
    def differences() -> int:
        return len(stage.verify(catch_up_timeout_s=0).differences)

    announce(stage.index, [CELL_UUID], RETENTION_S, NOW)
    assert differences() == 0
    stage.purge()
    assert differences() == 0
    stage.lose(stage.recent)
    assert differences() == 1


def test_verify_repairs_a_deletion_that_the_index_has_missed_for_that_long(stage: Stage) -> None:
    row = stage.cell.rows[stage.old]
    stage.alter(stage.old, version=row.revision - 1, record={**row.record, "deleted": False, "deleted_at": None})
    announce(stage.index, [CELL_UUID], RETENTION_S, NOW)
    verification = stage.verify(repair=True, catch_up_timeout_s=0)
    assert [difference.uuid for difference in verification.differences] == [stage.old]
    assert verification.remaining == ()
    assert stage.index.searchable[stage.old].record["deleted"]


def test_sync_does_not_bring_back_what_was_purged(stage: Stage) -> None:
    stage.purge()
    stage.sync(horizon=load_horizons(stage.index)[CELL_UUID])
    assert stage.index.documents.keys() == {stage.live, stage.recent}


def test_late_message_about_a_purged_instance_of_somebody_else_does_not_bring_it_back(stage: Stage) -> None:
    elsewhere = MemoryCell("5a1c6f0e-8c8e-4d6f-9a52-0a3a1d2f7b22")
    change = elsewhere.create()
    [external] = elsewhere.rows
    sent_at = NOW  # about; MemoryCell takes the time of the machine
    stage.index.save_state(HORIZONS, {CELL_UUID: sent_at * 2})
    stage.fail(Message(change.body, ROUTING_KEY, {}))
    [result] = stage.retry()
    assert result.is_solved
    assert external not in stage.index.documents
    assert sent_at > OLDEST_TIME_VERSION


def test_late_message_about_a_purged_row_does_not_bring_it_back_alive(stage: Stage) -> None:
    created = stage.cell.message_of(next(each for each in stage.cell.changes if each.instance_uuid == stage.old))
    stage.purge()
    stage.fail(created)
    stage.retry()
    found = stage.index.documents.get(stage.old)
    assert found is None or found.record["deleted"]
    stage.purge()
    assert stage.old not in stage.index.documents


def test_purge_waits_for_nobody_who_works_on_the_cell(stage: Stage) -> None:
    stage.leases.taken[f"index-bulk-{CELL_UUID}"] = "index verify"
    with pytest.raises(LeaseHeldError, match="index verify"):
        stage.purge()
    assert stage.old in stage.index.documents


def test_purger_purges_as_soon_as_it_can_and_again(stage: Stage) -> None:
    stage.leases.taken[f"index-bulk-{CELL_UUID}"] = "index verify"
    with in_thread(stage.purger().run):
        wait_until(lambda: load_horizons(stage.index))
        assert stage.old in stage.index.documents
        stage.leases.taken.clear()
        wait_until(lambda: stage.old not in stage.index.documents, 60)
        stage.sync()  # without the horizon, as somebody who has not noticed yet
        wait_until(lambda: stage.old not in stage.index.documents, 60)
    assert stage.leases.held == set()


def test_purger_outlives_what_is_away(stage: Stage) -> None:
    is_away = Event()
    is_away.set()

    def cells() -> Sequence[Cell]:
        if is_away.is_set():
            raise FleetUnreachableError("it is away")
        return [stage.cell.cell]

    with in_thread(stage.purger(cells).run):
        stage.index.failures = 3
        wait_until(lambda: stage.index.failures == 0, 60)
        is_away.clear()
        wait_until(lambda: stage.old not in stage.index.documents, 60)


def test_cell_that_the_index_does_not_know_gets_no_horizon(stage: Stage) -> None:
    stage.index.saved.clear()
    with in_thread(stage.purger().run):
        stage.index.save_progress([CellProgress("another", 0, 0, is_complete=True)])
    assert load_horizons(stage.index) == {}
