"""Bulk changes in the fleet database: an item is taken once, by the run that is the last one."""

import pytest

from fleetlight.cells.errors import ResourceNotFoundError
from fleetlight.cells.fleet.bulk_changes import (
    IN_DOUBT,
    BulkState,
    FrozenInstance,
    ItemState,
    NewBulk,
    Outcome,
)
from fleetlight.cells.fleet.fleet import Fleet

LEFT_OUT = {"cell": "east", "instances": 2, "age_s": 1.5}
CONTENT = NewBulk("ada", None, "stop", "", 5, is_complete=False, left_out=[LEFT_OUT])
SUBMITTING, DONE = Outcome(ItemState.SUBMITTING), Outcome(ItemState.DONE)


def added(fleet: Fleet, count: int = 2) -> str:
    frozen = [FrozenInstance(f"uuid-{number}", number or None, "web", "red", "north") for number in range(count)]
    return fleet.bulk_changes.add(CONTENT, frozen, 10)


def outcomes(fleet: Fleet, bulk_id: str) -> list[Outcome]:
    items = sorted(fleet.bulk_changes.last_items(bulk_id), key=lambda item: item.position)
    return [item.outcome for item in items]


def test_preview_is_kept_as_it_was_frozen(fleet: Fleet) -> None:
    bulk_id = added(fleet)
    bulk = fleet.bulk_changes.find(bulk_id, "ada", None, 11)
    assert (bulk.content, bulk.state, bulk.run) == (CONTENT, BulkState.PREVIEWED, 0)
    assert bulk.counts == {("red", "north", ItemState.WAITING): 2}
    assert [item.instance.revision for item in fleet.bulk_changes.items_of(bulk_id, ItemState.WAITING)] == [None, 1]
    with pytest.raises(ResourceNotFoundError):
        fleet.bulk_changes.find(bulk_id, "ada", "red", 11)


def test_item_is_taken_once(fleet: Fleet) -> None:
    store, bulk_id = fleet.bulk_changes, added(fleet)
    assert not store.leave_waiting(bulk_id, 0, 0, SUBMITTING, 11)
    run = store.begin(bulk_id, 11)
    assert store.leave_waiting(bulk_id, run, 0, SUBMITTING, 12)
    assert not store.leave_waiting(bulk_id, run, 0, SUBMITTING, 12)
    assert store.is_running(bulk_id, run)


def test_run_that_another_one_has_followed_takes_and_ends_nothing(fleet: Fleet) -> None:
    """As of a process that hung, lost its lease, and woke up."""
    store, bulk_id = fleet.bulk_changes, added(fleet)
    hung = store.begin(bulk_id, 11)
    assert store.leave_waiting(bulk_id, hung, 0, SUBMITTING, 12)
    run = store.begin(bulk_id, 13)
    assert outcomes(fleet, bulk_id)[0] == Outcome(ItemState.UNKNOWN, IN_DOUBT)
    assert not store.leave_waiting(bulk_id, hung, 1, SUBMITTING, 14)
    assert not store.is_running(bulk_id, hung)
    store.end(bulk_id, hung, "it woke up")
    bulk = store.find(bulk_id, "ada", None, 14)
    assert (bulk.state, bulk.reason, bulk.run) == (BulkState.RUNNING, None, run)
    store.record(bulk_id, 0, DONE, 15)
    assert outcomes(fleet, bulk_id) == [DONE, Outcome(ItemState.WAITING)]


def test_what_was_not_submitted_is_not_recorded_as_if_it_were(fleet: Fleet) -> None:
    store, bulk_id = fleet.bulk_changes, added(fleet)
    store.record(bulk_id, 0, DONE, 11)
    assert outcomes(fleet, bulk_id) == [Outcome(ItemState.WAITING)] * 2


def test_stopped_run_takes_nothing_and_ends_as_done_when_nothing_waits(fleet: Fleet) -> None:
    store, bulk_id = fleet.bulk_changes, added(fleet, 1)
    store.stop(bulk_id)
    assert store.find(bulk_id, "ada", None, 11).state is BulkState.PREVIEWED
    run = store.begin(bulk_id, 11)
    store.stop(bulk_id)
    assert not store.leave_waiting(bulk_id, run, 0, SUBMITTING, 12)
    store.end(bulk_id, run, None)
    assert store.find(bulk_id, "ada", None, 12).state is BulkState.STOPPED
    run = store.begin(bulk_id, 13)
    assert store.leave_waiting(bulk_id, run, 0, Outcome(ItemState.SKIPPED, "gone\0"), 14)
    store.end(bulk_id, run, None)
    assert store.find(bulk_id, "ada", None, 15).state is BulkState.DONE
    assert outcomes(fleet, bulk_id) == [Outcome(ItemState.SKIPPED, "gone\\x00")]


def test_items_that_something_was_done_with_come_first(fleet: Fleet) -> None:
    store, bulk_id = fleet.bulk_changes, added(fleet, 120)
    run = store.begin(bulk_id, 11)
    assert store.leave_waiting(bulk_id, run, 115, SUBMITTING, 12)
    shown = [item.position for item in store.last_items(bulk_id)]
    assert shown == [115, *range(99)]
