"""When a rebuild must not put the next index in the place of the current one, and what it may not take as known."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import pytest

from fleetlight.cells.model import ChangelogAdapter, InstanceRow
from fleetlight.indexer.backends.base import EPOCHS, OLDEST_TIME_VERSION, CellProgress
from fleetlight.indexer.errors import LeaseLostError, RebuildError, RebuildRunningError
from fleetlight.indexer.reconcile.fill import SyncResult, sync_cell
from fleetlight.indexer.reconcile.rebuild import RebuildPhase
from fleetlight.indexer.reconcile.rebuild_cells import HISTORIES, RebuiltCell, open_cell
from fleetlight.indexer.transform.documents import to_document
from tests.support.fleets.documents import make_document
from tests.support.memory.memory_cell import CELL_UUID, MemoryCell
from tests.support.memory.memory_fleet import MemoryOwners
from tests.support.memory.memory_generations import MemoryGenerations
from tests.support.memory.memory_index import MemoryIndex, versions
from tests.unit.indexer.test_rebuild import Stage, StoppedError, Watcher


@dataclass
class WatchedGenerations(MemoryGenerations):
    """In which something happens just before the next index takes its place, and just after it."""

    before: Callable[[], object] = lambda: None
    after: Callable[[], object] = lambda: None

    def switch(self, finish: Callable[[], None]) -> None:
        self.before()
        super().switch(finish)
        self.after()


class RestoredStage(Stage):
    def __init__(self) -> None:
        super().__init__()
        self.cell.epochs.append(("first", 0))
        self.watched = self.generations = WatchedGenerations(self.index)
        self.index.save_state(EPOCHS, {CELL_UUID: "first"})

    @property
    def histories(self) -> dict[str, object]:
        return dict(self.index.load_state(HISTORIES))

    def spoil(self) -> str:
        """The previous index has a document of a future that the cell lost since, of the same revision as the row."""
        assert self.generations.previous is not None
        uuid, row = min(self.cell.rows.items())
        spoilt = to_document(CELL_UUID, row.revision, {**row.record, "host": "of a future that was lost"})
        self.generations.previous.documents[uuid] = spoilt
        self.generations.previous.searchable[uuid] = spoilt
        return uuid


def test_what_the_previous_index_has_followed_is_known_after_the_switch() -> None:
    stage = RestoredStage()
    stage.rebuild()
    assert stage.histories == {CELL_UUID: ["first", 10]}


def test_nothing_is_known_of_the_previous_index_when_the_end_of_the_switch_was_cut_off() -> None:
    stage = RestoredStage()
    stage.rebuild()

    def stop() -> None:
        raise StoppedError

    stage.watched.after = stop
    with pytest.raises(StoppedError):
        stage.rebuild()
    assert stage.histories == {}


def test_nothing_is_known_of_a_previous_index_that_began_another_epoch_during_the_switch() -> None:
    stage = RestoredStage()
    stage.watched.before = lambda: stage.index.save_state(EPOCHS, {CELL_UUID: "second"})
    stage.rebuild()
    assert stage.histories == {}


def test_way_back_takes_rows_as_they_are_where_the_previous_index_followed_a_future_that_was_lost() -> None:
    stage = RestoredStage()
    stage.rebuild()
    uuid = stage.spoil()
    stage.index.save_state(HISTORIES, {CELL_UUID: ["of nobody", 10]})
    stage.rebuild(back=True)
    assert stage.index.documents[uuid].record["host"] == stage.cell.rows[uuid].record["host"]


def test_way_back_reads_no_row_again_where_the_previous_index_followed_this_past() -> None:
    stage = RestoredStage()
    stage.rebuild()
    uuid = stage.spoil()
    stage.rebuild(back=True)
    # Nobody restored the cell, so nothing but this test can have made such a document.
    assert stage.index.documents[uuid].record["host"] == "of a future that was lost"


def test_rows_are_taken_as_they_are_when_the_cell_was_restored_while_the_index_was_filled() -> None:
    stage = RestoredStage()
    uuid, row = min(stage.cell.rows.items())

    def restore() -> None:
        record = {**row.record, "host": "of the past that was restored"}
        stage.cell.rows[uuid] = InstanceRow(CELL_UUID, row.revision, record)
        stage.cell.epochs.append(("second", 5))

    stage.rebuild(Watcher(on={RebuildPhase.VERIFYING: restore}))
    assert stage.index.documents[uuid].record["host"] == "of the past that was restored"


def test_announcement_that_came_last_is_in_the_new_index() -> None:
    stage = Stage()
    late = make_document(7, version=OLDEST_TIME_VERSION, cell_uuid=CELL_UUID)
    stage.rebuild(Watcher(on={RebuildPhase.SWITCHING: lambda: stage.index.write([late])}))
    assert late.id in stage.index.documents


def test_index_that_does_not_take_the_last_change_does_not_take_the_place_of_one_that_did() -> None:
    stage = Stage()

    def change() -> None:
        uuid = min(stage.cell.rows)
        stage.cell.update(uuid, host="newer")
        stage.write_rows()
        stage.generations.refused[uuid] = "too long"

    with pytest.raises(RebuildError, match="does not take 1 instances of cell 'one'"):
        stage.rebuild(Watcher(on={RebuildPhase.SWITCHING: change}))
    assert stage.generations.previous is None
    assert versions(stage.index) == stage.cell.versions()


@pytest.mark.parametrize(
    ("name", "error"), [("index-rebuild", RebuildRunningError), (f"index-bulk-{CELL_UUID}", LeaseLostError)]
)
@pytest.mark.parametrize("phase", [RebuildPhase.FILLING, RebuildPhase.SWITCHING])
def test_rebuild_that_lost_its_lease_stops_where_it_is(phase: RebuildPhase, name: str, error: type[Exception]) -> None:
    stage = Stage()
    watcher = Watcher(on={phase: lambda: stage.leases.held.discard(name)})
    with pytest.raises(error):
        stage.rebuild(watcher)
    assert watcher.phases[-1] is phase
    assert stage.generations.previous is None


def test_rebuild_that_begins_anew_fills_in_all_rows_although_one_before_it_came_far() -> None:
    stage = Stage(MemoryCell(instances=61))
    with pytest.raises(StoppedError):
        stage.rebuild(Watcher(stop_in=RebuildPhase.FILLING))
    stage.generations.next = None  # lost with what was in it, but for how far it came
    watcher = Watcher(stop_in=RebuildPhase.VERIFYING)
    with pytest.raises(StoppedError):
        stage.rebuild(watcher)
    assert stage.generations.next is not None
    assert versions(stage.generations.next) == stage.cell.versions()


def fill_rows(
    new: MemoryIndex, adapter: ChangelogAdapter, horizon: int, on_progress: Callable[[int], None]
) -> SyncResult:
    return sync_cell(adapter, new, batch_size=3, horizon=horizon, on_progress=on_progress)


@contextmanager
def followed_cell(cell: MemoryCell, current: MemoryIndex, new: MemoryIndex) -> Iterator[RebuiltCell]:
    """The cell of a rebuild after it was filled and compared."""
    opened = open_cell(
        cell.cell,
        current,
        new,
        unusable=None,
        open_adapter=lambda _: cell,
        owners=MemoryOwners(),
        batch_size=3,
        is_filled=False,
        on_notice=lambda _: None,
    )
    try:
        opened.fill(partial(fill_rows, new), lambda _: None)
        opened.follow()
        opened.verify(lambda: None)
        yield opened
    finally:
        opened.close()


@pytest.fixture
def cell() -> MemoryCell:
    return MemoryCell(instances=5)


@pytest.fixture
def current() -> MemoryIndex:
    return MemoryIndex(saved={CELL_UUID: CellProgress(CELL_UUID, 5, 0, is_complete=True)})


def test_changes_that_were_forgotten_after_the_comparison_keep_the_next_index_from_its_place(
    cell: MemoryCell, current: MemoryIndex
) -> None:
    with followed_cell(cell, current, MemoryIndex()) as opened:
        cell.update(min(cell.rows), host="newer")
        cell.prune(cell.last_sequence)
        opened.follow()
        with pytest.raises(RebuildError, match="has forgotten changes too early"):
            opened.finish()


def test_change_that_was_brought_over_last_and_taken_back_is_brought_over_again(
    cell: MemoryCell, current: MemoryIndex
) -> None:
    new = MemoryIndex()
    with followed_cell(cell, current, new) as opened:
        written = dict(new.documents)
        cell.update(min(cell.rows), host="newer")
        opened.finish()
        assert versions(new) == cell.versions()
        new.documents = written  # the switch failed
        opened.finish()
        assert versions(new) == cell.versions()
