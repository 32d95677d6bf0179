from collections.abc import Sequence

import pytest

from cells.model import InstanceRow
from indexer.backends.base import CellProgress
from indexer.bulk_sync import RESOURCE_TYPES, sync_and_record, sync_cell
from indexer.documents import to_document
from query.page import PageRequest
from tests.support.indexing import CELL_UUID, MemoryCell, MemoryIndex, versions


def filled_cell(count: int = 10) -> MemoryCell:
    cell = MemoryCell()
    for _ in range(count):
        cell.create()
    return cell


@pytest.mark.parametrize("batch_size", [1, 3, 10, 11])
def test_every_row_is_written_once_deleted_ones_too(batch_size: int) -> None:
    cell, index = filled_cell(), MemoryIndex()
    cell.delete(next(iter(cell.rows)))
    steps: list[int] = []
    result = sync_cell(cell, index, batch_size=batch_size, on_progress=steps.append)
    assert versions(index) == cell.versions()
    assert (result.rows, result.sequence) == (10, 11)
    assert steps[-1] == 10
    assert sum(index.writes) == 10


def test_syncing_again_changes_nothing() -> None:
    cell, index = filled_cell(), MemoryIndex()
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
    cell, index = filled_cell(), MemoryIndex()
    sync_and_record(cell, index, batch_size=3)
    assert index.searchable == index.documents
    assert index.saved == {CELL_UUID: CellProgress(CELL_UUID, 10, 0, is_complete=True)}


def test_progress_that_is_further_is_kept() -> None:
    cell, index = filled_cell(), MemoryIndex()
    index.saved[CELL_UUID] = CellProgress(CELL_UUID, 12, 77, is_complete=False)
    sync_and_record(cell, index, batch_size=3)
    assert index.saved[CELL_UUID] == CellProgress(CELL_UUID, 12, 77, is_complete=True)


def test_cell_with_a_rejected_row_is_not_complete() -> None:
    cell, index = filled_cell(), MemoryIndex()
    index.refused[next(iter(cell.rows))] = "too long"
    result = sync_and_record(cell, index, batch_size=3)
    assert [rejection.reason for rejection in result.rejected] == ["too long"]
    assert not index.saved[CELL_UUID].is_complete
    assert len(index.documents) == 9


def test_servers_can_be_synced() -> None:
    assert list(RESOURCE_TYPES) == ["OS::Nova::Server"]
