"""What is remembered of a project's own changes, for whom, and how long; what API processes tell each other of it."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.fleet.recent_changes import RecentChange, RecentChanges
from fleetlight.cells.migrations import upgrade_fleet
from fleetlight.cells.model import InstanceRow
from fleetlight.listing.consistency import read_your_writes
from fleetlight.listing.consistency.read_your_writes import OwnChanges, SharedChanges
from fleetlight.resources.clock import system_clock

KEPT_S = 10
SHARED_KEPT_S = 60
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
    monkeypatch.setattr(read_your_writes, "_MAX_NOTES", 3)
    for number in range(6):
        changes.note(DEMO, row(clock, f"instance-{number}"))
    assert noted(changes)[-3:] == [f"instance-{number}:1" for number in (3, 4, 5)]
    assert len(noted(changes)) <= 4


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RecentChanges]:
    engine = create_database_engine(f"sqlite:///{tmp_path}/fleet.db")
    upgrade_fleet(engine)
    yield Fleet(engine).recent_changes
    engine.dispose()


def process(store: RecentChanges) -> SharedChanges:
    return SharedChanges(store, SHARED_KEPT_S, system_clock)


def new_row(uuid: str = "a", revision: int = 1) -> InstanceRow:
    return InstanceRow("cell", revision, {"uuid": uuid, "created_at": 1, "updated_at": system_clock()})


async def included(changes: SharedChanges, reader: str = "demo") -> list[str]:
    return [str(change.token) for change in await changes.of(reader)]


async def test_what_one_process_tells_every_other_one_includes_at_once(store: RecentChanges) -> None:
    first, second, third = (process(store) for _ in range(3))
    for revision in range(1, 5):
        await first.share({"demo", "operators"}, new_row(revision=revision))
        for other in (second, third):
            assert await included(other) == await included(other, "operators") == [f"a:{revision}"]
    assert await included(third, "others") == []
    await second.share({"demo"}, new_row("b"))
    assert await included(first) == ["a:4", "b:1"]


async def test_process_that_starts_learns_what_was_told_before(store: RecentChanges) -> None:
    await process(store).share({"demo"}, new_row())
    assert await included(process(store)) == ["a:1"]


async def test_change_waits_for_other_processes_only_when_one_of_them_lists(store: RecentChanges) -> None:
    change = RecentChange("demo", "cell", "a", 1)
    store.listen("me")
    assert not store.add("me", [change])
    store.listen("other")
    assert store.add("me", [change])

    began = time.monotonic()
    await process(store).share({"demo"}, new_row())
    assert time.monotonic() - began >= read_your_writes._READ_AGAIN_S


async def test_who_is_shown_a_state_while_it_is_being_told_waits_too(store: RecentChanges) -> None:
    first, second = process(store), process(store)
    await included(second)
    state = new_row()
    await asyncio.gather(first.share({"demo"}, state), first.share({"demo"}, state))
    assert await included(second) == ["a:1"]
    assert len(store.newer_than(SHARED_KEPT_S, "me")) == 1, "told once"


async def test_what_the_index_has_is_not_noted_again(store: RecentChanges, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_your_writes, "_READ_AGAIN_S", 0)

    first, second = process(store), process(store)
    await first.share({"demo"}, new_row())
    [change] = await second.of("demo")
    change.is_indexed = True
    assert await included(second) == []
    await first.share({"demo"}, new_row(revision=2))
    assert await included(second) == ["a:2"]


@pytest.mark.parametrize("revision", [2, 3])
async def test_change_of_a_restored_cell_is_shared_though_its_revision_was_there_before(
    store: RecentChanges, monkeypatch: pytest.MonkeyPatch, revision: int
) -> None:
    monkeypatch.setattr(read_your_writes, "_READ_AGAIN_S", 0)

    first, second = process(store), process(store)
    await first.share({"demo"}, new_row(revision=3))
    for changes in (first, second):
        [change] = await changes.of("demo")
        change.is_indexed = True
    await first.share({"demo"}, new_row(revision=revision))
    assert await included(first) == await included(second) == [f"a:{revision}"]


async def test_state_that_another_process_has_shared_is_not_shared_again(store: RecentChanges) -> None:
    first, second = process(store), process(store)
    state = new_row()
    await first.share({"demo"}, state)
    assert await included(second) == ["a:1"]
    await second.share({"demo"}, state)
    assert len(store.newer_than(SHARED_KEPT_S, "me")) == 1


def test_process_has_old_changes_forgotten_now_and_then(store: RecentChanges, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[float | None] = []
    add = store.add

    def noting(process: str, changes: Sequence[RecentChange], forget_after_s: float | None = None) -> bool:
        limits.append(forget_after_s)
        return add(process, changes, forget_after_s)

    monkeypatch.setattr(store, "add", noting)

    async def scenario() -> None:
        first = process(store)
        for revision in (1, 2):
            await first.share({"demo"}, new_row(revision=revision))
        monkeypatch.setattr(read_your_writes, "_FORGET_AGAIN_S", -1.0)
        await first.share({"demo"}, new_row(revision=3))

    asyncio.run(scenario())
    assert limits == [SHARED_KEPT_S, None, SHARED_KEPT_S]


def test_old_changes_and_processes_that_ended_are_removed(store: RecentChanges) -> None:
    change = RecentChange("demo", "cell", "a", 1)
    store.listen("gone")
    assert store.add("me", [change])
    store.add("me", [change], forget_after_s=-1)
    assert store.newer_than(SHARED_KEPT_S, "other") == []


class _Broken(RecentChanges):
    def __init__(self) -> None:
        """It has no database."""

    def add(self, process: str, changes: Sequence[RecentChange], forget_after_s: float | None = None) -> bool:
        raise FleetUnreachableError("away")

    def listen(self, process: str) -> None:
        raise FleetUnreachableError("away")


async def test_fleet_database_that_fails_leaves_what_this_process_knows() -> None:
    alone = process(_Broken())
    await alone.share({"demo"}, new_row())
    assert await included(alone) == ["a:1"]
