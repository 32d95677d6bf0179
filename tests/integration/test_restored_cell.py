"""A cell's database goes back to a backup: the index forgets the future that the cell does not have any more."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Event, Lock, current_thread
from typing import Any, Never
from uuid import uuid4

import pytest
from sqlalchemy import delete
from structlog.testing import capture_logs

from fleetlight.cells.database.engines import writing
from fleetlight.cells.tables import changes
from fleetlight.indexer.backends.base import BEING_RECONCILED, EPOCHS, CellProgress
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.backends.sqlite.writer import SqliteWriter
from fleetlight.indexer.reconcile.differences import Verification
from fleetlight.indexer.reconcile.fill import SyncResult, sync_cell
from fleetlight.indexer.reconcile.rebuild import RebuildPhase, rebuild_index
from fleetlight.indexer.reconcile.reconcile import verify
from fleetlight.indexer.reconcile.restored_cell import RestoreResult, forget_lost_future
from fleetlight.indexer.stream.service import IndexerService
from fleetlight.indexer.writing.catch_up import catch_up
from fleetlight.indexer.writing.epoch_history import History
from tests.support.fleets.indexer_worlds import World, new_world
from tests.support.fleets.rebuilding import Silent, open_parts
from tests.support.servers.backups import Backup
from tests.support.waiting import wait_until

pytestmark = pytest.mark.no_rerun


@pytest.fixture(
    params=["sqlite", pytest.param("postgresql", marks=[pytest.mark.postgresql, pytest.mark.rabbitmq])],
    ids=["embedded", "on servers"],
)
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    bus, uuid, cell_url = "memory://", str(uuid4()), None
    if request.param == "postgresql":
        bus, uuid, cell_url = map(request.getfixturevalue, ("amqp_url", "amqp_cell", "postgresql_database"))
    with new_world(tmp_path, bus, uuid, IndexSettings(path=tmp_path / "index.db"), cell_url) as world:
        yield world


def wait_until_index_equals_cell(world: World) -> None:
    wait_until(lambda: world.has_published_everything() and world.index_equals_cell(), timeout_s=60)


def as_if_it_had_moved_on(service: IndexerService) -> None:
    """The next look finds something new to save."""
    for uuid, saved in service._saved._saved.items():
        service._saved._saved[uuid] = replace(saved, fresh_as_of=0)


class Story:
    """What happens in a cell before the backup, between backup and restore, and after the restore."""

    def __init__(self, world: World, folder: Path) -> None:
        self._world = world
        self._operations = world.operations
        self._folder = folder
        self.kept = self._operations.create({"display_name": "kept"}).uuid
        self.deleted = self._operations.create({"display_name": "deleted after the backup"}).uuid
        self.created: list[str] = []

    def back_up(self) -> None:
        self._backup = Backup(self._world.engine, self._folder)

    def go_on(self) -> None:
        """The future that will not have happened."""
        for number in range(5):
            self.created.append(self._operations.create({"display_name": f"created after the backup {number}"}).uuid)
            self._operations.update(self.kept, {"display_name": f"renamed {number}"})
        self._operations.delete(self.deleted)

    def index_what_will_be_lost(self) -> None:
        """Back up what is in the index, and bring what follows into it."""
        wait_until_index_equals_cell(self._world)
        self.back_up()
        self.go_on()
        wait_until_index_equals_cell(self._world)

    def restore(self) -> None:
        self._backup.restore()

    def go_on_differently(self, changes: int) -> None:
        """The numbers of the lost future are given to other changes."""
        for number in range(changes):
            self._operations.update(self.kept, {"display_name": f"otherwise {number}"})

    def lost_future_in_the_index(self) -> list[str]:
        with closing(open_writer(self._world.index)) as index:
            return sorted(index.read(self.created))


@pytest.fixture
def story(world: World, tmp_path: Path) -> Story:
    return Story(world, tmp_path)


def forget_changes(world: World) -> None:
    """The changelog of the cell is old, and its relay has removed it."""
    with writing(world.engine) as connection:
        connection.execute(delete(changes))


def hear_of_everything(world: World, *services: IndexerService) -> None:
    """The one that stands by has heard of all that too."""
    for service in services:
        follower = service._running[world.cell.uuid].follower
        follower._tracker.advance_to(world.published_sequence())
        follower._tracker.mark_synced()
        follower._publish_progress()


@pytest.mark.parametrize(
    "changes", [0, 1, 5, 30], ids=["nothing new", "fewer changes than were lost", "as many changes", "more changes"]
)
def test_index_follows_a_cell_back_to_its_backup(world: World, story: Story, changes: int) -> None:
    with world.indexing():
        with world.relaying():
            story.index_what_will_be_lost()
            assert story.lost_future_in_the_index() == sorted(story.created)
        story.restore()
        story.go_on_differently(changes)
        with world.relaying():
            wait_until_index_equals_cell(world)
    assert story.lost_future_in_the_index() == []
    assert world.documents([story.deleted])[story.deleted].record["deleted"] is False
    restored = world.fleet.restored_cells
    found = restored.all()[world.cell.uuid]
    assert found.watermark > 0
    assert f"to change {found.watermark}, its log ended at {found.last_sequence}" in found.evidence
    assert restored.acknowledge(world.cell.uuid)
    assert restored.all() == {}


@pytest.mark.parametrize("changes", [0, 1], ids=["nothing new", "a change"])
def test_restore_under_a_running_relay_is_noticed(world: World, story: Story, changes: int) -> None:
    with world.indexing(), world.relaying():
        story.index_what_will_be_lost()
        story.restore()
        story.go_on_differently(changes)
        wait_until(lambda: story.lost_future_in_the_index() == [], timeout_s=60)
        wait_until_index_equals_cell(world)


def test_messages_of_the_lost_future_that_still_wait_on_the_bus_change_nothing(world: World, story: Story) -> None:
    with world.indexing(), world.relaying():
        wait_until_index_equals_cell(world)
    story.back_up()
    with world.relaying():
        story.go_on()
        wait_until(world.has_published_everything, timeout_s=60)
    story.restore()
    story.go_on_differently(3)
    with world.relaying(), world.indexing():
        wait_until_index_equals_cell(world)
        assert story.lost_future_in_the_index() == []


def test_repairing_that_was_cut_off_begins_again(world: World, story: Story) -> None:
    with world.indexing(), world.relaying():
        story.index_what_will_be_lost()
    story.restore()
    with closing(open_writer(world.index)) as index:
        index.save_state(EPOCHS, {world.cell.uuid: BEING_RECONCILED})
    with world.relaying(), world.indexing():
        wait_until_index_equals_cell(world)
        assert story.lost_future_in_the_index() == []


def test_old_watermark_is_gone_before_the_index_calls_its_history_that_of_the_cell(
    world: World, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, bool]] = []

    class Watched(History):
        def end_reconcile(self) -> None:
            progress = world.progress()
            assert progress is not None
            seen.append((progress.watermark, progress.is_complete))
            super().end_reconcile()

    monkeypatch.setattr("fleetlight.indexer.stream.native_follower.History", Watched)
    with world.indexing(), world.relaying():
        story.index_what_will_be_lost()
        story.restore()
        wait_until(lambda: seen, timeout_s=60)
    assert set(seen) == {(0, False)}


def test_relay_that_starts_while_the_changelog_is_read_is_no_restore(
    world: World, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    reconciled: list[None] = []
    read: list[int] = []

    class Watched(History):
        def begin_reconcile(self) -> None:
            reconciled.append(None)
            super().begin_reconcile()

    def while_another_relay_starts(*args: Any, **options: Any) -> bool:
        if len(read) == 1:
            with world.relaying():
                story.go_on_differently(3)
                wait_until(world.has_published_everything, timeout_s=60)
        read.append(world.published_sequence())
        return catch_up(*args, **options)

    monkeypatch.setattr("fleetlight.indexer.stream.native_follower.History", Watched)
    monkeypatch.setattr("fleetlight.indexer.stream.native_follower.catch_up", while_another_relay_starts)
    with world.relaying():
        story.go_on()
        wait_until(world.has_published_everything, timeout_s=60)
    with world.indexing():
        wait_until_index_equals_cell(world)
    with world.indexing():
        wait_until(lambda: len(read) == 2, timeout_s=60)
        with world.relaying():
            story.go_on_differently(3)
            wait_until_index_equals_cell(world)
    assert not reconciled


def test_way_back_to_an_index_that_has_seen_the_lost_future_leads_to_none_of_it(world: World, story: Story) -> None:
    with world.indexing(), world.relaying():
        story.index_what_will_be_lost()
    with open_parts(world.index, world.fleet) as parts:
        rebuild_index(parts, Silent(), back=False)
    story.restore()
    # As often as before, so that the row has the same revision again.
    story.go_on_differently(5)
    with world.relaying(), world.indexing():
        wait_until_index_equals_cell(world)
    with open_parts(world.index, world.fleet) as parts:
        rebuild_index(parts, Silent(), back=True)
    with world.indexing():
        wait_until_index_equals_cell(world)
    assert world.documents([story.kept])[story.kept].record["display_name"] == "otherwise 4"
    assert story.lost_future_in_the_index() == []


def test_way_back_in_the_same_history_reads_no_rows_but_those_that_differ(
    world: World, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_all(*_args: object, **_options: object) -> Never:
        raise AssertionError("there is no need to read all rows")

    with world.indexing(), world.relaying():
        story.go_on()
        wait_until_index_equals_cell(world)
    with open_parts(world.index, world.fleet) as parts:
        rebuild_index(parts, Silent(), back=False)
    with world.relaying(), world.indexing():
        story.go_on_differently(3)
        wait_until_index_equals_cell(world)
    monkeypatch.setattr("fleetlight.indexer.reconcile.native_cell.beside_rows", read_all)
    with open_parts(world.index, world.fleet) as parts:
        rebuild_index(parts, Silent(), back=True)
    with world.indexing():
        wait_until_index_equals_cell(world)


def test_progress_that_was_looked_at_before_the_restore_is_not_saved_after_it(
    world: World, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked, refreshed = Event(), Event()
    is_restored = Event()
    seen: list[CellProgress | None] = []
    refresh, make_searchable = IndexerService._refresh, SqliteWriter.make_searchable

    def refresh_once_more(service: IndexerService) -> None:
        if is_restored.is_set() and not looked.is_set():
            as_if_it_had_moved_on(service)
        refresh(service)
        if looked.is_set():
            refreshed.set()

    def wait_for_the_follower(writer: SqliteWriter) -> None:
        make_searchable(writer)
        if is_restored.is_set() and not looked.is_set() and not current_thread().name.startswith("indexer-"):
            looked.set()
            wait_until(lambda: not is_complete(), timeout_s=60)

    def is_complete() -> bool:
        progress = world.progress()
        return progress is not None and progress.is_complete

    def see_what_is_promised(*args: Any, **options: Any) -> Verification:
        assert refreshed.wait(60)
        seen.append(world.progress())
        return verify(*args, **options)

    monkeypatch.setattr(IndexerService, "_refresh", refresh_once_more)
    monkeypatch.setattr(SqliteWriter, "make_searchable", wait_for_the_follower)
    monkeypatch.setattr("fleetlight.indexer.reconcile.restored_cell.verify", see_what_is_promised)
    with world.indexing():
        with world.relaying():
            story.index_what_will_be_lost()
            is_restored.set()
            assert looked.wait(60)
        story.restore()
        with world.relaying():
            wait_until(lambda: seen, timeout_s=60)
            wait_until_index_equals_cell(world)
    assert seen[0] is not None
    assert (seen[0].watermark, seen[0].is_complete) == (0, False)


def test_withdrawal_that_was_looked_at_before_the_end_of_the_repair_is_not_saved_after_it(
    world: World, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lists went live again for a moment, and another indexer could begin to sync the cell."""
    is_restored, looked, repaired = Event(), Event(), Event()
    seen: list[CellProgress | None] = []
    refresh, make_searchable = IndexerService._refresh, SqliteWriter.make_searchable

    def is_complete() -> bool:
        progress = world.progress()
        return progress is not None and progress.is_complete

    def look_and_refresh(service: IndexerService) -> None:
        if is_restored.is_set() and not is_complete():
            looked.set()
        refresh(service)
        if repaired.is_set():
            seen.append(world.progress())

    def wait_for_the_repair(writer: SqliteWriter) -> None:
        make_searchable(writer)
        if looked.is_set() and not repaired.is_set() and not current_thread().name.startswith("indexer-"):
            wait_until(is_complete, timeout_s=60)
            repaired.set()

    def repair_once_it_has_looked(*args: Any, **options: Any) -> Verification:
        assert looked.wait(60)
        return verify(*args, **options)

    monkeypatch.setattr(IndexerService, "_refresh", look_and_refresh)
    monkeypatch.setattr(SqliteWriter, "make_searchable", wait_for_the_repair)
    monkeypatch.setattr("fleetlight.indexer.reconcile.restored_cell.verify", repair_once_it_has_looked)
    with world.indexing():
        with world.relaying():
            story.index_what_will_be_lost()
        story.restore()
        is_restored.set()
        with world.relaying():
            wait_until(lambda: seen, timeout_s=60)
    assert seen[0] is not None
    assert seen[0].is_complete


def test_rebuild_that_goes_on_after_a_restore_brings_nothing_of_the_lost_future(world: World, story: Story) -> None:
    class Killed(Silent):
        def on_phase(self, phase: RebuildPhase) -> None:
            if phase is RebuildPhase.VERIFYING:
                raise KeyboardInterrupt

    with world.indexing(), world.relaying():
        story.index_what_will_be_lost()
    with open_parts(world.index, world.fleet) as parts, pytest.raises(KeyboardInterrupt):
        rebuild_index(parts, Killed(), back=False)
    story.restore()
    # So that its row has the revision again that the next index has of it, and the changelog is longer than before.
    story.go_on_differently(5)
    for _ in range(10):
        world.operations.create({"display_name": "created after the restore"})
    with world.relaying(), world.indexing():
        wait_until_index_equals_cell(world)
    with open_parts(world.index, world.fleet) as parts:
        rebuild_index(parts, Silent(), back=False)
    with world.indexing():
        wait_until_index_equals_cell(world)
    assert world.documents([story.kept])[story.kept].record["display_name"] == "otherwise 4"


def test_restore_during_the_first_sync_of_a_cell_is_noticed(
    world: World, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_restored = Event()

    def sync_until_it_is_restored(*args: Any, on_progress: Callable[[int], None], **options: Any) -> SyncResult:
        def restore_once(rows: int) -> None:
            on_progress(rows)
            if not is_restored.is_set():
                is_restored.set()
                story.restore()
                story.go_on_differently(30)
                with world.relaying():
                    wait_until(world.has_published_everything, timeout_s=60)

        return sync_cell(*args, on_progress=restore_once, **options)

    with world.relaying():
        wait_until(world.has_published_everything, timeout_s=60)
        story.back_up()
        story.go_on()
        wait_until(world.has_published_everything, timeout_s=60)
    forget_changes(world)
    monkeypatch.setattr("fleetlight.indexer.stream.native_follower.sync_cell", sync_until_it_is_restored)
    with world.indexing():
        wait_until(is_restored.is_set, timeout_s=60)
        wait_until_index_equals_cell(world)
        assert story.lost_future_in_the_index() == []


def test_indexer_that_has_not_noticed_the_restore_saves_no_old_watermark_after_the_repairing(
    world: World, story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A list would take the index for complete up to a change of the lost future."""
    refreshes: Counter[IndexerService] = Counter()
    seen: list[CellProgress | None] = []
    refresh = IndexerService._refresh

    def counted(service: IndexerService) -> None:
        refresh(service)
        refreshes[service] += 1

    def see_what_is_promised(*args: Any, **options: Any) -> RestoreResult:
        followed = forget_lost_future(*args, **options)
        if seen:
            return followed
        for service in (one, other):
            running = service._running.get(world.cell.uuid)
            if running is not None and running.follower.progress.is_complete:
                as_if_it_had_moved_on(service)
        refreshes.clear()
        wait_until(lambda: all(refreshes[service] >= 2 for service in (one, other)), timeout_s=60)
        seen.append(world.progress())
        return followed

    with world.indexing() as one, world.indexing() as other, world.relaying():
        story.index_what_will_be_lost()
        hear_of_everything(world, one, other)
        monkeypatch.setattr(IndexerService, "_refresh", counted)
        monkeypatch.setattr("fleetlight.indexer.stream.native_follower.forget_lost_future", see_what_is_promised)
        story.restore()
        forget_changes(world)
        story.go_on_differently(1)
        wait_until(lambda: seen, timeout_s=60)
        wait_until_index_equals_cell(world)
    assert seen[0] is not None
    assert not seen[0].is_complete
    assert story.lost_future_in_the_index() == []


def test_one_indexer_repairs_a_restored_cell_and_the_other_goes_on_from_there(world: World, story: Story) -> None:
    """Each did so, one after the other, and took back what the one before had finished."""
    with capture_logs() as logs, world.indexing() as one, world.indexing() as other, world.relaying():
        story.index_what_will_be_lost()
        hear_of_everything(world, one, other)
        syncs = _counted(logs, "indexer.sync_started")
        story.restore()
        forget_changes(world)
        story.go_on_differently(1)
        wait_until(lambda: story.lost_future_in_the_index() == [], timeout_s=60)

        def have_both_gone_on() -> bool:
            # A service whose progress was taken back meanwhile has begun to follow the cell anew.
            running = [service._running.get(world.cell.uuid) for service in (one, other)]
            if None in running:
                return False
            followers = [each.follower for each in running if each is not None]
            for follower in followers:
                # As the messages of the new relay have it do, which go on coming.
                follower._tracker.heard(world.published_sequence() + 1000, 1)
            last = world.published_sequence()
            return all(each.progress.is_complete and each.progress.watermark == last for each in followers)

        wait_until(have_both_gone_on, timeout_s=60)
        wait_until_index_equals_cell(world)
        syncs = _counted(logs, "indexer.sync_started") - syncs
    assert (_counted(logs, "indexer.cell_reconciled"), syncs) == (1, 0)
    assert world.documents([story.deleted])[story.deleted].record["deleted"] is False


def _counted(logs: Sequence[Mapping[str, Any]], event: str) -> int:
    return sum(entry["event"] == event for entry in logs)


def test_indexer_completes_a_cell_again_that_another_process_has_begun_anew_and_left(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It promised everything with its next change, and never noticed that the rows were gone."""
    saving, refresh = Lock(), IndexerService._refresh

    def refresh_alone(service: IndexerService) -> None:
        # It looks and then writes, in two steps; this is not about what another process does between them.
        with saving:
            refresh(service)

    monkeypatch.setattr(IndexerService, "_refresh", refresh_alone)
    with world.indexing(), world.relaying():
        world.operations.create({"display_name": "never changed"})
        uuid = world.operations.create({"display_name": "kept"}).uuid
        wait_until_index_equals_cell(world)
        with saving, closing(open_writer(world.index)) as killed:
            killed.remove_cell(world.cell.uuid, lambda _: None)
            killed.save_progress([CellProgress(world.cell.uuid, 0, 0, is_complete=False)])
        world.operations.update(uuid, {"display_name": "renamed"})
        wait_until_index_equals_cell(world)
        wait_until(lambda: (progress := world.progress()) is not None and progress.is_complete, timeout_s=60)
