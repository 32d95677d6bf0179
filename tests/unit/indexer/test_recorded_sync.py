"""A sync outside the indexer, of a cell whose database goes back to a backup meanwhile."""

from collections.abc import Callable, Sequence

import pytest
from msgspec.structs import replace

from fleetlight.cells.model import InstanceRow
from fleetlight.indexer.backends.base import EPOCHS, RECONCILIATIONS, CellProgress
from fleetlight.indexer.errors import CellRestoredError
from fleetlight.indexer.reconcile.fill import CellRows
from fleetlight.indexer.reconcile.recorded_sync import sync_and_record
from fleetlight.indexer.reconcile.retention import LISTS_DELAY_S
from fleetlight.indexer.writing.checkpoints import FROM_CELLS, Checkpoints
from fleetlight.query.filters import EVERYTHING
from fleetlight.query.page import PageRequest
from tests.support.memory.memory_cell import CELL_UUID, MemoryCell
from tests.support.memory.memory_fleet import MemoryOwners
from tests.support.memory.memory_index import MemoryIndex, versions

OTHER_UUID = "7d1a3c52-0000-4000-8000-00000000000b"


class RestorableCell(MemoryCell):
    """Somebody does something after some of its pages were read."""

    def __init__(self, *, instances: int) -> None:
        super().__init__(instances=instances)
        self.epochs.append(("first", 0))
        self._starts = 0
        self.after_page: dict[int, Callable[[], None]] = {}
        self.rows_listed = 0

    def back_up(self) -> None:
        self._backup = (dict(self.rows), list(self.changes), self.last_sequence, list(self.epochs))

    def restore(self) -> None:
        """The relay begins to number where the backup ends."""
        rows, changes, self.last_sequence, epochs = self._backup
        self.rows, self.changes, self.epochs = dict(rows), list(changes), list(epochs)
        self.restart_relay()

    def restart_relay(self) -> None:
        self._starts += 1
        self.epochs.append((f"start {self._starts}", self.last_sequence))

    def read_page(self, request: PageRequest) -> Sequence[InstanceRow]:
        page = super().read_page(request)
        if request.filter == EVERYTHING:
            self.rows_listed += len(page)
        if (act := self.after_page.pop(self.pages_read, None)) is not None:
            act()
        return page


@pytest.fixture
def index() -> MemoryIndex:
    return MemoryIndex()


@pytest.fixture
def cell() -> RestorableCell:
    """Ten rows are in its backup, and ten others in its present; a row has been changed since, too."""
    cell = RestorableCell(instances=10)
    cell.back_up()
    cell.create_many(10)
    cell.update(next(iter(cell.rows)), display_name="lost")
    return cell


def go_on_differently(cell: RestorableCell) -> None:
    """The numbers of the lost future are given to other changes, and the revision of the changed row to another one."""
    cell.restore()
    cell.update(next(iter(cell.rows)), display_name="kept")
    cell.create_many(20)


def assert_equal(cell: RestorableCell, index: MemoryIndex) -> None:
    assert versions(index) == cell.versions()
    names = {uuid: row.record["display_name"] for uuid, row in cell.rows.items()}
    assert {uuid: document.record["display_name"] for uuid, document in index.documents.items()} == names
    saved = index.saved[CELL_UUID]
    assert (saved.watermark, saved.is_complete) == (cell.last_sequence, True)
    assert index.load_state(EPOCHS) == {CELL_UUID: cell.epochs[-1][0]}


def sync(cell: RestorableCell, index: MemoryIndex, *, pauses: list[float] | None = None) -> None:
    checkpoints = Checkpoints(index, CELL_UUID, FROM_CELLS)
    waited: list[float] = [] if pauses is None else pauses
    sync_and_record(CELL_UUID, CellRows(cell, batch_size=2), index, checkpoints=checkpoints, pause=waited.append)


def test_cell_whose_promise_is_taken_back_while_a_sync_is_recorded_is_compared_before_it_is_promised_again(
    cell: RestorableCell, index: MemoryIndex
) -> None:
    index.save_progress([CellProgress(CELL_UUID, cell.last_sequence, 5, is_complete=True)])
    index.overtaken_by = lambda: index.save_progress([CellProgress(CELL_UUID, 0, 0, is_complete=False)])
    sync(cell, index)
    assert index.saved[CELL_UUID] == CellProgress(CELL_UUID, cell.last_sequence, 0, is_complete=True)
    assert index.load_state(RECONCILIATIONS) == {CELL_UUID: 1}


@pytest.mark.parametrize("page", [1, 5, 10])
def test_cell_that_is_restored_while_it_is_synced_for_the_first_time_leaves_nothing_of_its_lost_future(
    cell: RestorableCell, index: MemoryIndex, page: int
) -> None:
    cell.after_page[page] = lambda: go_on_differently(cell)
    sync(cell, index)
    assert_equal(cell, index)


def test_cell_that_was_restored_since_the_sync_that_was_cut_off_leaves_nothing_of_its_lost_future(
    cell: RestorableCell, index: MemoryIndex
) -> None:
    class CutOffError(Exception):
        pass

    def cut_off() -> None:
        raise CutOffError

    cell.after_page[8] = cut_off
    with pytest.raises(CutOffError):
        sync(cell, index)
    go_on_differently(cell)
    sync(cell, index)
    assert_equal(cell, index)


def test_cell_that_was_restored_since_it_was_synced_is_repaired_by_the_next_sync(
    cell: RestorableCell, index: MemoryIndex
) -> None:
    sync(cell, index)
    go_on_differently(cell)
    pauses: list[float] = []
    sync(cell, index, pauses=pauses)
    assert_equal(cell, index)
    # Since the row that was changed has to make place, and from when lists were told.
    assert pauses == [pytest.approx(LISTS_DELAY_S, abs=1)]


def test_rows_that_the_restored_cell_never_had_leave_the_index_without_a_wait_for_lists(
    cell: RestorableCell, index: MemoryIndex
) -> None:
    cell.restore()
    cell.back_up()
    sync(cell, index)
    cell.create_many(10)
    sync(cell, index)
    cell.restore()
    pauses: list[float] = []
    sync(cell, index, pauses=pauses)
    assert_equal(cell, index)
    assert not pauses


def test_all_rows_of_a_restored_cell_are_read_once(cell: RestorableCell, index: MemoryIndex) -> None:
    sync(cell, index)
    go_on_differently(cell)
    cell.rows_listed = 0
    sync(cell, index)
    assert cell.rows_listed == len(cell.rows) == 30


def assert_moved_one_stays(cell: RestorableCell, index: MemoryIndex, version_there: Callable[[str], int]) -> None:
    """An instance of the cell is another one's when the cell is restored. version_there: of it in that cell."""
    moved = next(iter(cell.rows))
    sync(cell, index)
    go_on_differently(cell)
    there = replace(index.documents[moved], cell_uuid=OTHER_UUID, version=version_there(moved))
    index.documents[moved] = there
    owners = MemoryOwners({moved: OTHER_UUID})
    sync_and_record(CELL_UUID, CellRows(cell, batch_size=2), index, pause=lambda _: None, owners=owners)
    assert index.documents[moved] == there


def test_instance_that_has_moved_stays_with_its_cell_when_the_one_before_is_restored(
    cell: RestorableCell, index: MemoryIndex
) -> None:
    assert_moved_one_stays(cell, index, lambda moved: index.documents[moved].version + 5)


def test_instance_that_has_moved_stays_with_its_cell_also_when_both_have_counted_as_far(
    cell: RestorableCell, index: MemoryIndex
) -> None:
    assert_moved_one_stays(cell, index, lambda moved: cell.rows[moved].revision)


def test_lists_know_that_the_cell_is_not_whole_before_rows_make_place(cell: RestorableCell, index: MemoryIndex) -> None:
    sync(cell, index)
    synced = versions(index)
    changed = next(iter(cell.rows))
    go_on_differently(cell)
    seen: list[tuple[CellProgress, bool]] = []
    sync_and_record(
        CELL_UUID,
        CellRows(cell, batch_size=2),
        index,
        pause=lambda _: seen.append((index.saved[CELL_UUID], versions(index)[changed] == synced[changed])),
    )
    assert seen == [(CellProgress(CELL_UUID, 0, 0, is_complete=False), True)]


def test_relay_that_starts_anew_meanwhile_is_no_restore(cell: RestorableCell, index: MemoryIndex) -> None:
    def go_on() -> None:
        cell.restart_relay()
        cell.create()

    cell.after_page[3] = go_on
    pauses: list[float] = []
    result = sync_and_record(CELL_UUID, CellRows(cell, batch_size=2), index, pause=pauses.append)
    assert not pauses
    assert result.sequence == index.saved[CELL_UUID].watermark == 21
    assert index.load_state(EPOCHS) == {CELL_UUID: "start 1"}
    sync(cell, index, pauses=pauses)
    assert not pauses
    assert_equal(cell, index)


def test_sync_of_a_cell_that_is_restored_again_and_again_ends(cell: RestorableCell, index: MemoryIndex) -> None:
    def restore() -> None:
        cell.restore()
        cell.create()
        cell.after_page[cell.pages_read + 1] = restore

    cell.after_page[1] = restore
    with pytest.raises(CellRestoredError):
        sync(cell, index)
    assert not index.saved[CELL_UUID].is_complete
