"""What API processes tell each other through the fleet database, and what becomes of lists when that fails."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.fleet.recent_changes import RecentChange, RecentChanges
from fleetlight.cells.migrations import upgrade_fleet
from fleetlight.cells.model import InstanceRow
from fleetlight.listing.consistency import shared_changes
from fleetlight.listing.consistency.shared_changes import SharedChanges
from fleetlight.resources.clock import system_clock

KEPT_S = 60


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RecentChanges]:
    engine = create_database_engine(f"sqlite:///{tmp_path}/fleet.db")
    upgrade_fleet(engine)
    yield Fleet(engine).recent_changes
    engine.dispose()


def process(store: RecentChanges) -> SharedChanges:
    return SharedChanges(store, KEPT_S, system_clock)


def row(uuid: str = "a", revision: int = 1) -> InstanceRow:
    return InstanceRow("cell", revision, {"uuid": uuid, "created_at": 1, "updated_at": system_clock()})


async def noted(changes: SharedChanges, reader: str = "demo") -> list[str]:
    return [str(change.token) for change in await changes.of(reader)]


def test_what_one_process_tells_every_other_one_includes_at_once(store: RecentChanges) -> None:
    async def scenario() -> None:
        first, second, third = (process(store) for _ in range(3))
        for revision in range(1, 5):
            await first.share({"demo", "operators"}, row(revision=revision))
            for other in (second, third):
                assert await noted(other) == await noted(other, "operators") == [f"a:{revision}"]
        assert await noted(third, "others") == []
        await second.share({"demo"}, row("b"))
        assert await noted(first) == ["a:4", "b:1"]

    asyncio.run(scenario())


def test_process_that_starts_learns_what_was_told_before(store: RecentChanges) -> None:
    async def scenario() -> None:
        await process(store).share({"demo"}, row())
        assert await noted(process(store)) == ["a:1"]

    asyncio.run(scenario())


def test_change_waits_for_other_processes_only_when_one_of_them_lists(store: RecentChanges) -> None:
    change = RecentChange("demo", "cell", "a", 1)
    store.listen("me")
    assert not store.add("me", [change])
    store.listen("other")
    assert store.add("me", [change])

    async def scenario() -> None:
        began = time.monotonic()
        await process(store).share({"demo"}, row())
        assert time.monotonic() - began >= shared_changes._READ_AGAIN_S

    asyncio.run(scenario())


def test_who_is_shown_a_state_while_it_is_being_told_waits_too(store: RecentChanges) -> None:
    async def scenario() -> None:
        first, second = process(store), process(store)
        await noted(second)
        state = row()
        await asyncio.gather(first.share({"demo"}, state), first.share({"demo"}, state))
        assert await noted(second) == ["a:1"]
        assert len(store.newer_than(KEPT_S, "me")) == 1, "told once"

    asyncio.run(scenario())


def test_what_the_index_has_is_not_noted_again(store: RecentChanges, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_changes, "_READ_AGAIN_S", 0)

    async def scenario() -> None:
        first, second = process(store), process(store)
        await first.share({"demo"}, row())
        [change] = await second.of("demo")
        change.is_indexed = True
        assert await noted(second) == []
        await first.share({"demo"}, row(revision=2))
        assert await noted(second) == ["a:2"]

    asyncio.run(scenario())


@pytest.mark.parametrize("revision", [2, 3])
def test_change_of_a_restored_cell_is_shared_though_its_revision_was_there_before(
    store: RecentChanges, monkeypatch: pytest.MonkeyPatch, revision: int
) -> None:
    monkeypatch.setattr(shared_changes, "_READ_AGAIN_S", 0)

    async def scenario() -> None:
        first, second = process(store), process(store)
        await first.share({"demo"}, row(revision=3))
        for changes in (first, second):
            [change] = await changes.of("demo")
            change.is_indexed = True
        await first.share({"demo"}, row(revision=revision))
        assert await noted(first) == await noted(second) == [f"a:{revision}"]

    asyncio.run(scenario())


def test_state_that_another_process_has_shared_is_not_shared_again(store: RecentChanges) -> None:
    async def scenario() -> None:
        first, second = process(store), process(store)
        state = row()
        await first.share({"demo"}, state)
        assert await noted(second) == ["a:1"]
        await second.share({"demo"}, state)
        assert len(store.newer_than(KEPT_S, "me")) == 1

    asyncio.run(scenario())


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
            await first.share({"demo"}, row(revision=revision))
        monkeypatch.setattr(shared_changes, "_FORGET_AGAIN_S", -1.0)
        await first.share({"demo"}, row(revision=3))

    asyncio.run(scenario())
    assert limits == [KEPT_S, None, KEPT_S]


def test_old_changes_and_processes_that_ended_are_removed(store: RecentChanges) -> None:
    change = RecentChange("demo", "cell", "a", 1)
    store.listen("gone")
    assert store.add("me", [change])
    store.add("me", [change], forget_after_s=-1)
    assert store.newer_than(KEPT_S, "other") == []


class _Broken(RecentChanges):
    def __init__(self) -> None:
        """It has no database."""

    def add(self, process: str, changes: Sequence[RecentChange], forget_after_s: float | None = None) -> bool:
        raise FleetUnreachableError("away")

    def listen(self, process: str) -> None:
        raise FleetUnreachableError("away")


def test_fleet_database_that_fails_leaves_what_this_process_knows() -> None:
    async def scenario() -> None:
        alone = process(_Broken())
        await alone.share({"demo"}, row())
        assert await noted(alone) == ["a:1"]

    asyncio.run(scenario())
