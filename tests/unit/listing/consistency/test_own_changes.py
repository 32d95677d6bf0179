"""What is remembered of a project's own changes, for whom, and how long."""

from typing import Any

import pytest

from fleetlight.cells.model import InstanceRow
from fleetlight.listing.consistency import own_changes
from fleetlight.listing.consistency.own_changes import OwnChanges

KEPT_S = 10
DEMO, OTHER = "demo", "other"


class Clock:
    now = 1_000_000_000_000

    def __call__(self) -> int:
        return self.now

    def pass_s(self, seconds: float) -> None:
        self.now += round(seconds * 1e6)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def changes(clock: Clock) -> OwnChanges:
    return OwnChanges(KEPT_S, clock)


def row(clock: Clock, uuid: str = "a", revision: int = 1, **values: Any) -> InstanceRow:
    record = {"uuid": uuid, "created_at": 1, "updated_at": clock.now} | values
    return InstanceRow("cell", revision, record)


def noted(changes: OwnChanges, reader: str = DEMO) -> list[str]:
    return [str(change.token) for change in changes.of(reader)]


def test_change_counts_for_its_reader_and_no_other(changes: OwnChanges, clock: Clock) -> None:
    changes.note(DEMO, row(clock))
    assert (noted(changes), noted(changes, OTHER), noted(changes, "eve")) == (["a:1"], [], [])
    changes.note("eve", row(clock, "b"))
    assert (noted(changes), noted(changes, OTHER), noted(changes, "eve")) == (["a:1"], [], ["b:1"])


def test_newest_state_of_each_instance_is_kept_and_the_newest_is_the_last(changes: OwnChanges, clock: Clock) -> None:
    for uuid, revision in (("a", 1), ("b", 1), ("a", 2)):
        changes.note(DEMO, row(clock, uuid, revision))
    assert noted(changes) == ["b:1", "a:2"]


def test_older_state_that_is_told_later_does_not_take_the_place_of_a_newer_one(
    changes: OwnChanges, clock: Clock
) -> None:
    changes.note(DEMO, row(clock, "a", 3))
    [newest] = changes.of(DEMO)
    for revision in (2, 3):
        changes.note(DEMO, row(clock, "a", revision))
    assert changes.of(DEMO) == [newest]


@pytest.mark.parametrize("revision", [2, 3])
def test_change_of_a_restored_cell_counts_though_its_revision_was_there_before(
    changes: OwnChanges, clock: Clock, revision: int
) -> None:
    lost = changes.note(DEMO, row(clock, "a", 3))
    assert lost is not None
    lost.is_indexed = True
    clock.pass_s(1)
    new = changes.note(DEMO, row(clock, "a", revision))
    assert changes.of(DEMO) == [new]
    assert changes.note(DEMO, row(clock, "a", revision)) is new, "seen again"
    clock.pass_s(1)
    changes.note(DEMO, row(clock, "a", 4))
    assert noted(changes) == ["a:4"]
    clock.pass_s(KEPT_S + 1)
    assert noted(changes) == []


def test_newer_state_by_a_clock_that_is_behind_counts(changes: OwnChanges, clock: Clock) -> None:
    """The processes that change an instance need not be on one machine."""
    changes.note(DEMO, row(clock, "a", 1))
    changes.note(DEMO, row(clock, "a", 2, updated_at=clock.now - 1000))
    assert noted(changes) == ["a:1", "a:2"]
    clock.pass_s(KEPT_S + 1)
    assert noted(changes) == []


def test_change_is_forgotten_after_its_time(changes: OwnChanges, clock: Clock) -> None:
    changes.note(DEMO, row(clock, "a", 1))
    clock.pass_s(KEPT_S - 1)
    changes.note(DEMO, row(clock, "b", 1))
    changes.note(OTHER, row(clock, "c", 1))
    clock.pass_s(1)
    assert noted(changes) == ["a:1", "b:1"]
    clock.pass_s(0.5)
    assert noted(changes) == ["b:1"]
    clock.pass_s(KEPT_S)
    assert noted(changes) == noted(changes, OTHER) == []


def test_state_that_is_older_is_not_noted(changes: OwnChanges, clock: Clock) -> None:
    changes.note(DEMO, row(clock, updated_at=clock.now - KEPT_S * 1_000_000 - 1))
    assert noted(changes) == []
    changes.note(OTHER, row(clock, updated_at=clock.now - KEPT_S * 1_000_000))
    assert noted(changes, OTHER) == ["a:1"]
    changes.note(DEMO, row(clock, updated_at=None))
    assert noted(changes) == []
    changes.note(DEMO, row(clock, updated_at=None, created_at=clock.now))
    assert noted(changes) == ["a:1"]


def test_what_the_index_knows_counts_no_more_but_what_came_after_it_does(changes: OwnChanges, clock: Clock) -> None:
    changes.note(DEMO, row(clock, "a", 1))
    [first] = changes.of(DEMO)
    changes.note(DEMO, row(clock, "a", 2))
    first.is_indexed = True
    assert noted(changes) == ["a:2"]
    changes.of(DEMO)[0].is_indexed = True
    assert noted(changes) == []
    changes.note(DEMO, row(clock, "a", 2))
    assert noted(changes) == [], "seen again"
    changes.note(DEMO, row(clock, "a", 3))
    assert noted(changes) == ["a:3"]


def test_memory_is_bounded(changes: OwnChanges, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_changes, "_MAX_NOTES", 3)
    for number in range(6):
        changes.note(DEMO, row(clock, f"instance-{number}"))
    assert noted(changes)[-3:] == [f"instance-{number}:1" for number in (3, 4, 5)]
    assert len(noted(changes)) <= 4
