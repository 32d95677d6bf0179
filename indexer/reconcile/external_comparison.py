"""Making the index equal to a cell that counts no revisions, by looking at all of its rows; safe while changes arrive.

Completeness of such a cell cannot be proven by counting, so it is as of the moment before the last comparison began
(docs/architecture.md, "External notifications"). As in indexer.reconcile.verify the cell is right: a live document
whose row is gone is removed. One that is marked deleted stays, since Nova archives its deleted rows, and
`index.deleted_retention` is about them.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from cells.batched import batched
from cells.model import CellAdapter, InstanceRow
from indexer.backends.base import Document, Rejection
from indexer.transform.external_rows import settle
from indexer.writing.compared_index import ComparedIndex
from indexer.writing.rereading import rows_of
from indexer.writing.retrying_writer import WritesAndReads
from query.page import PageRequest
from query.retention import remembered
from query.sort import SortOrder
from resources.clock import Clock, system_clock
from resources.instance import INSTANCE_FIELDS

_BY_UUID = SortOrder.of(INSTANCE_FIELDS, ())
# What the index has is looked at by the beginnings of uuids, so that no cell is in memory whole.
_RANGE_LENGTH = 2
_DOCUMENTS_AT_ONCE = 5000
_CONFIRMED_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class Compared:
    """What came of it. began_at: microseconds; the index has everything that the cell had by then.

    written: rows that differed. removed: documents without a row. rejected: uuid -> why the index does not take it.
    """

    began_at: int
    rows: int
    written: int
    removed: int
    rejected: Mapping[str, str]


class ExternalRows:
    """Documents of the rows of one cell that counts no revisions; raises what adapter and writer raise."""

    def __init__(self, adapter: CellAdapter, writer: WritesAndReads) -> None:
        self._adapter = adapter
        self._writer = writer
        self._cell_uuid = adapter.cell.uuid
        self._kept = adapter.cell.can.unknown_fields

    def documents(self, rows: Collection[InstanceRow]) -> tuple[list[Document], list[Rejection]]:
        """The documents that are to be written; a row that this program fails on is a rejection."""
        existing = self._writer.read([row.uuid for row in rows])
        overtaken = [row.uuid for row in rows if row.uuid in existing and existing[row.uuid].version >= row.revision]
        # Somebody else has written them since the rows were read, or the clock of a host is ahead.
        again = rows_of(self._adapter, overtaken)
        documents: list[Document] = []
        rejected: list[Rejection] = []
        for row in rows:
            newest = again.get(row.uuid, row)
            try:
                document = settle(self._cell_uuid, existing.get(row.uuid), newest, kept=self._kept)
            except Exception as error:  # noqa: BLE001  # it is about this row
                without_view = Document(self._cell_uuid, row.revision, row.record, ())
                rejected.append(Rejection(without_view, f"{type(error).__name__}: {error}"))
            else:
                if document is not None:
                    documents.append(document)
        return documents, rejected


def ignore_progress(_rows: int) -> None:
    """For callers who do not want to see how far it is."""


def compare_cell(
    adapter: CellAdapter,
    writer: ComparedIndex,
    *,
    batch_size: int,
    horizon: int = 0,
    on_progress: Callable[[int], None] = ignore_progress,
    clock: Clock = system_clock,
) -> Compared:
    """Write what differs, remove what the cell does not have.

    horizon: of the cell (indexer.reconcile.retention). on_progress: called with the number of rows so far, after each
    page; what it raises ends the comparison. Raises CellUnreachableError, and what the writer raises; what was repaired
    until then stays and does no harm.
    """
    began_at = clock()
    external_rows = ExternalRows(adapter, writer)
    ranges = _Ranges(adapter, writer, horizon)
    count = written = 0
    rejected: dict[str, str] = {}
    after: tuple[str, ...] | None = None
    while True:
        rows = adapter.read_page(PageRequest(remembered(horizon), _BY_UUID, batch_size, after))
        documents, refused = external_rows.documents(rows)
        if documents:
            result = writer.write(documents)
            written += result.applied
            refused += result.rejected
        rejected |= {rejection.document.id: rejection.reason for rejection in refused}
        count += len(rows)
        is_last = len(rows) < batch_size
        ranges.saw([row.uuid for row in rows], is_last=is_last)
        on_progress(count)
        if is_last:
            writer.make_searchable()
            return Compared(began_at, count, written, ranges.removed, rejected)
        after = (rows[-1].uuid,)


class _Ranges:
    """What the index had of each range of uuids, looked at when all rows of the range have been seen."""

    def __init__(self, adapter: CellAdapter, writer: ComparedIndex, horizon: int) -> None:
        self._adapter = adapter
        self._writer = writer
        self._horizon = horizon
        writer.make_searchable()
        digests = writer.digests(adapter.cell.uuid, [""], _RANGE_LENGTH, horizon=horizon, external=True)
        self._open = sorted((prefix, digest.count) for prefix, digest in digests.items())
        self._seen: set[str] = set()
        self.removed = 0

    def saw(self, uuids: Sequence[str], *, is_last: bool) -> None:
        """uuids: of the next rows in order; is_last: there are no more."""
        begun = None if is_last else uuids[-1][:_RANGE_LENGTH]
        self._seen.update(uuids)
        done: list[str] = []
        documents = 0
        while self._open and (begun is None or self._open[0][0] < begun):
            prefix, count = self._open.pop(0)
            if done and documents + count > _DOCUMENTS_AT_ONCE:
                self._close(done)
                done, documents = [], 0
            done.append(prefix)
            documents += count
        if done:
            self._close(done)
        if begun is not None:
            self._seen = {uuid for uuid in self._seen if uuid >= begun}

    def _close(self, prefixes: Sequence[str]) -> None:
        known = self._writer.revisions(self._adapter.cell.uuid, prefixes, horizon=self._horizon, external=True)
        unknown = sorted(known.keys() - self._seen)
        for batch in batched(unknown, _CONFIRMED_AT_ONCE):
            self._confirm(batch)

    def _confirm(self, uuids: Sequence[str]) -> None:
        """Remove what is live in the index and has no row; what was made since its range was read has one."""
        documents = self._writer.read(uuids)
        live = [
            uuid
            for uuid, document in documents.items()
            # What has moved to another cell meanwhile is that one's.
            if not document.record["deleted"] and document.cell_uuid == self._adapter.cell.uuid
        ]
        rows = rows_of(self._adapter, live)
        gone = {uuid: documents[uuid].version for uuid in live if uuid not in rows}
        if gone:
            self._writer.remove(gone)
            self.removed += len(gone)
