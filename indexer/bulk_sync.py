"""All rows of a cell into the index, also while changes arrive: the revision of a row decides, not who comes last."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cells.model import ChangelogAdapter
from indexer.backends.base import CellProgress, IndexWriter, Rejection
from indexer.documents import to_document
from indexer.writing import WritesDocuments
from query.filters import EVERYTHING
from query.instances import INSTANCE_FIELDS
from query.page import PageRequest
from query.sort import SortOrder

_BY_UUID = SortOrder.of(INSTANCE_FIELDS, ())


@dataclass(frozen=True, slots=True)
class SyncResult:
    """rows: how many were read, deleted ones among them. sequence: every change up to it is in the index now."""

    rows: int
    sequence: int
    rejected: tuple[Rejection, ...] = ()


def ignore_progress(_rows: int) -> None:
    """For callers who do not want to see how far a sync is."""


def sync_cell(
    adapter: ChangelogAdapter,
    writer: WritesDocuments,
    *,
    batch_size: int,
    watermark: int = 0,
    on_progress: Callable[[int], None] = ignore_progress,
) -> SyncResult:
    """Write every row of the cell, deleted ones too; repeating it changes nothing.

    watermark: every change up to this sequence is in the index already.
    on_progress: called after each batch with the number of rows so far.
    Raises CellUnreachableError, and what the writer raises; what was written until then stays and does no harm.
    """
    # Read first: whatever is announced while the rows are read has a higher sequence.
    sequence = adapter.published_sequence()
    foreign = adapter.first_foreign_sequence(watermark)
    if foreign is not None:
        # It is in no row, only in the changelog, which has to be read from there.
        sequence = min(sequence, foreign - 1)
    rows = 0
    rejected: list[Rejection] = []
    request = PageRequest(EVERYTHING, _BY_UUID, batch_size)
    while True:
        page = adapter.read_page(request)
        if page:
            documents = [to_document(row.cell_uuid, row.revision, row.record) for row in page]
            rejected += writer.write(documents).rejected
            rows += len(page)
            on_progress(rows)
        if len(page) < batch_size:
            return SyncResult(rows, sequence, tuple(rejected))
        request = PageRequest(EVERYTHING, _BY_UUID, batch_size, _BY_UUID.values(page[-1].record))


def is_empty(adapter: ChangelogAdapter) -> bool:
    """Whether the cell has no row at all, not even a deleted one; raises CellUnreachableError."""
    return not adapter.read_page(PageRequest(EVERYTHING, _BY_UUID, 1))


def sync_and_record(
    adapter: ChangelogAdapter,
    writer: IndexWriter,
    *,
    batch_size: int,
    on_progress: Callable[[int], None] = ignore_progress,
) -> SyncResult:
    """`sync_cell`, then make it searchable and save the progress: for those who sync outside the indexer.

    The cell is complete afterwards unless a row was rejected. Raises what `sync_cell` raises.
    """
    cell_uuid = adapter.cell.uuid
    saved = writer.load_progress().get(cell_uuid, CellProgress(cell_uuid, 0, 0, is_complete=False))
    result = sync_cell(adapter, writer, batch_size=batch_size, watermark=saved.watermark, on_progress=on_progress)
    writer.make_searchable()
    saved = writer.load_progress().get(cell_uuid, saved)
    writer.save_progress(
        [
            CellProgress(
                cell_uuid,
                max(saved.watermark, result.sequence),
                saved.fresh_as_of,
                is_complete=not result.rejected,
            )
        ]
    )
    return result


RESOURCE_TYPES: Mapping[str, Callable[..., SyncResult]] = {"OS::Nova::Server": sync_and_record}
"""What can be synced, by the name that users give it (Searchlight's, and Heat's)."""
