from collections.abc import Callable, Iterable, Sequence
from threading import Event

import pytest
from msgspec.structs import replace

from fleetlight.cells.model import InstanceRow
from fleetlight.indexer.backends.base import CellProgress, Document, WriteResult
from fleetlight.indexer.errors import IndexUnavailableError
from fleetlight.indexer.reconcile.fill import CellRows, sync_cell
from fleetlight.indexer.reconcile.recorded_sync import sync_and_record
from fleetlight.indexer.transform.documents import to_document
from fleetlight.indexer.writing.checkpoints import FROM_CELLS, Checkpoints, forget_checkpoints
from fleetlight.query.page import PageRequest
from tests.support.memory.memory_cell import CELL_UUID, MemoryCell
from tests.support.memory.memory_index import MemoryIndex, versions


@pytest.mark.parametrize("batch_size", [1, 3, 10, 11])
def test_every_row_is_written_once_deleted_ones_too(batch_size: int) -> None:
    cell, index = MemoryCell(instances=10), MemoryIndex()
    cell.delete(next(iter(cell.rows)))
    steps: list[int] = []
    result = sync_cell(cell, index, batch_size=batch_size, on_progress=steps.append)
    assert versions(index) == cell.versions()
    assert (result.rows, result.sequence) == (10, 11)
    assert steps[-1] == 10
    assert sum(index.writes) == 10


def test_syncing_again_changes_nothing() -> None:
    cell, index = MemoryCell(instances=10), MemoryIndex()
    sync_cell(cell, index, batch_size=3)
    before = dict(index.documents)
    sync_cell(cell, index, batch_size=3)
    assert index.documents == before


def test_old_page_never_overwrites_a_newer_change() -> None:
    class ChangingCell(MemoryCell):
        """Each row changes, and the change reaches the index, after its page was read and before it is written."""

        def read_page(self, request: PageRequest) -> Sequence[InstanceRow]:
            page = super().read_page(request)
            for row in page:
                self.update(row.uuid, host="newer")
                newer = self.rows[row.uuid]
                index.write([to_document(CELL_UUID, newer.revision, newer.record)])
            return page

    index, cell = MemoryIndex(), ChangingCell()
    for _ in range(10):
        cell.create(host="older")
    result = sync_cell(cell, index, batch_size=4)
    assert versions(index) == cell.versions()
    assert {document.record["host"] for document in index.documents.values()} == {"newer"}
    assert result.sequence == 10, "later changes are not promised: they come from the changelog"


def test_progress_is_saved_only_after_everything_can_be_found() -> None:
    cell, index = MemoryCell(instances=10), MemoryIndex()
    sync_and_record(CELL_UUID, CellRows(cell, batch_size=3), index)
    assert index.searchable == index.documents
    assert index.saved == {CELL_UUID: CellProgress(CELL_UUID, 10, 0, is_complete=True)}


def test_progress_that_is_further_is_kept() -> None:
    cell, index = MemoryCell(instances=10), MemoryIndex()

    def go_on(_rows: int) -> None:
        cell.create()
        index.saved[CELL_UUID] = CellProgress(CELL_UUID, 12, 77, is_complete=False)

    sync_and_record(CELL_UUID, CellRows(cell, batch_size=20), index, on_progress=go_on)
    assert index.saved[CELL_UUID] == CellProgress(CELL_UUID, 12, 77, is_complete=True)


def test_cell_with_a_rejected_row_is_not_complete() -> None:
    cell, index = MemoryCell(instances=10), MemoryIndex()
    index.refused[next(iter(cell.rows))] = "too long"
    result = sync_and_record(CELL_UUID, CellRows(cell, batch_size=3), index)
    assert list(result.rejected.values()) == ["too long"]
    assert not index.saved[CELL_UUID].is_complete
    assert len(index.documents) == 9


def test_row_that_cannot_be_rendered_is_named_and_the_others_are_written() -> None:
    cell, index = MemoryCell(instances=10), MemoryIndex()
    broken = next(iter(cell.rows.values()))
    cell.rows[broken.uuid] = replace(broken, record={**broken.record, "created_at": "yesterday"})
    result = sync_cell(cell, index, batch_size=3)
    assert list(result.rejected) == [broken.uuid]
    assert index.documents.keys() == cell.rows.keys() - {broken.uuid}


class CutOffError(Exception):
    """Somebody stops a sync in the middle."""


def cut_off_after(rows: int) -> Callable[[int], None]:
    def on_progress(done: int) -> None:
        if done >= rows:
            raise CutOffError

    return on_progress


def checkpoints_in(index: MemoryIndex) -> Checkpoints:
    return Checkpoints(index, CELL_UUID, FROM_CELLS)


def cut_off_sync(cell: MemoryCell, index: MemoryIndex, *, rows: int) -> None:
    with pytest.raises(CutOffError):
        sync_cell(cell, index, batch_size=2, checkpoints=checkpoints_in(index), on_progress=cut_off_after(rows))


def test_sync_that_was_cut_off_goes_on_where_it_was_and_promises_no_more_than_at_its_start() -> None:
    cell, index = MemoryCell(instances=20), MemoryIndex()
    cut_off_sync(cell, index, rows=10)
    written = versions(index)
    assert 10 <= len(written) < 20
    for uuid in written:
        cell.update(uuid, host="newer")
    cell.pages_read = 0
    result = sync_cell(cell, index, batch_size=2, checkpoints=checkpoints_in(index))
    assert (result.rows, result.sequence) == (20, 20)
    assert cell.pages_read < 10, "what was read before is not read again"
    assert index.documents.keys() == cell.rows.keys()
    assert index.state["sync"] == {}, "a sync that is done leaves nothing to go on from"


def test_row_that_was_rejected_before_the_cut_is_not_forgotten_after_it() -> None:
    cell, index = MemoryCell(instances=20), MemoryIndex()
    first = min(cell.rows)
    index.refused[first] = "too long"
    cut_off_sync(cell, index, rows=10)
    assert sync_cell(cell, index, batch_size=2, checkpoints=checkpoints_in(index)).rejected == {first: "too long"}


@pytest.mark.parametrize("what", ["changes are gone", "older copy", "another program", "cell was removed"])
def test_sync_starts_again_when_what_was_read_before_is_worth_nothing(what: str) -> None:
    cell, index = MemoryCell(instances=20), MemoryIndex()
    cut_off_sync(cell, index, rows=10)
    match what:
        case "changes are gone":
            cell.create()
            cell.create()
            cell.prune(21)
        case "older copy":
            cell.changes, cell.last_sequence = cell.changes[:15], 15
        case "another program":
            index.state["sync"] = {name: {"other": "shape"} for name in index.state["sync"]}
        case "cell was removed":
            forget_checkpoints(index, cell_uuid=CELL_UUID)
    index.documents.clear()
    sync_cell(cell, index, batch_size=2, checkpoints=checkpoints_in(index))
    assert index.documents.keys() == cell.rows.keys()


def test_page_that_was_not_written_is_read_again_although_a_later_one_was() -> None:
    class FailingOnce(MemoryIndex):
        """The page with the first row fails, and not before the page after it is written."""

        later_is_written = Event()

        def write(self, documents: Iterable[Document]) -> WriteResult:
            documents = list(documents)
            if min(cell.rows) not in {document.id for document in documents}:
                result = super().write(documents)
                self.later_is_written.set()
                return result
            assert self.later_is_written.wait(60)
            raise IndexUnavailableError("away")

    cell, index = MemoryCell(instances=20), FailingOnce()
    with pytest.raises(IndexUnavailableError):
        sync_cell(cell, index, batch_size=2, checkpoints=checkpoints_in(index))
    healthy = MemoryIndex(documents=index.documents, state=index.state)
    sync_cell(cell, healthy, batch_size=2, checkpoints=checkpoints_in(healthy))
    assert healthy.documents.keys() == cell.rows.keys()


def test_next_page_is_read_while_one_is_written() -> None:
    read = [Event() for _ in range(3)]

    class WatchedCell(MemoryCell):
        def read_page(self, request: PageRequest) -> Sequence[InstanceRow]:
            page = super().read_page(request)
            read[min(self.pages_read, 3) - 1].set()
            return page

    cell = WatchedCell(instances=6)
    index = MemoryIndex(before_write=lambda: read[1].wait(60) or pytest.fail("nobody reads while this is written"))
    sync_cell(cell, index, batch_size=3)
    assert index.documents.keys() == cell.rows.keys()
