"""Reads instances whose newest state could not be indexed again from their cell.

Until this succeeds the cell is incomplete, so lists ask the cell itself, and no answer lacks the instance.
"""

from collections.abc import Callable, Collection, Iterable, Iterator

import structlog

from fleetlight.cells.batched import batched
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.model import CellAdapter, InstanceRow
from fleetlight.indexer.backends.base import Document, Rejection
from fleetlight.indexer.transform.batches import ReadsRows
from fleetlight.indexer.transform.documents import to_document
from fleetlight.indexer.writing.progress import ProgressTracker
from fleetlight.indexer.writing.retrying_writer import WritesDocuments
from fleetlight.query.filters import In
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import INSTANCES_BY_UUID

_log = structlog.get_logger(__name__)

_BATCH = 500
_UNREACHABLE_RETRY_S = 5.0
# The index most likely rejects a row again until an operator intervenes.
_REJECTED_RETRY_S = 60.0

RendersRows = Callable[[Collection[InstanceRow]], tuple[list[Document], list[Rejection]]]


def rows_of(adapter: CellAdapter, uuids: Collection[str]) -> dict[str, InstanceRow]:
    """Read the existing rows among `uuids`, including deleted ones, in one request. Raises CellUnreachableError."""
    if not uuids:
        return {}
    request = PageRequest(In("uuid", tuple(sorted(uuids))), INSTANCES_BY_UUID, len(uuids))
    return {row.uuid: row for row in adapter.read_page(request)}


class RenderedRows:
    """The documents of rows, each made during the iteration, so that it is written while in the processor's caches.

    rejected: the rows on which this program failed so far, by uuid; it skips them.
    """

    def __init__(self, rows: Iterable[InstanceRow]) -> None:
        self._rows = rows
        self.rejected: dict[str, Rejection] = {}
        self._deleted = 0

    def __iter__(self) -> Iterator[Document]:
        self._deleted = 0
        for row in self._rows:
            try:
                document = to_document(row.cell_uuid, row.revision, row.record)
            except Exception as error:  # noqa: BLE001  # it is about this row
                unreadable = Document(row.cell_uuid, row.revision, {"uuid": row.uuid}, ())
                self.rejected[row.uuid] = Rejection(unreadable, f"{type(error).__name__}: {error}")
            else:
                self._deleted += bool(row.record["deleted"])
                yield document

    def count_deleted(self) -> int:
        """The number of deleted instances in the last iteration."""
        return self._deleted


def render_rows(rows: Iterable[InstanceRow]) -> tuple[list[Document], list[Rejection]]:
    """The documents of rows, and the rows on which this program failed."""
    rendered = RenderedRows(rows)
    return list(rendered), list(rendered.rejected.values())


class Rereader:
    """Reads instances of one cell again: at once, then every few seconds until it succeeds.

    read_rows: returns the existing rows among some uuids; raises CellUnreachableError. render: makes their documents.
    on_reread: called with the uuids whose rows are in the index now.
    """

    def __init__(
        self,
        cell_uuid: str,
        read_rows: ReadsRows,
        writer: WritesDocuments,
        tracker: ProgressTracker,
        *,
        on_reread: Callable[[Collection[str]], None],
        render: RendersRows = render_rows,
    ) -> None:
        self._cell_uuid = cell_uuid
        self._read_rows = read_rows
        self._writer = writer
        self._tracker = tracker
        self._on_reread = on_reread
        self._render = render
        self._due: dict[str, float] = {}
        self._next_due_s = 0.0

    def add(self, instance_uuid: str) -> None:
        """Add an instance whose newest known state could not be indexed."""
        self._tracker.mark_unindexed(instance_uuid)
        self._due[instance_uuid] = self._next_due_s = 0.0

    def work(self, now_s: float) -> None:
        """Read the instances that are due. now_s: on a monotonic clock. Raises what the writer raises."""
        if not self._due or now_s < self._next_due_s:
            return
        due = [uuid for uuid, due_s in self._due.items() if due_s <= now_s]
        for batch in batched(due, _BATCH):
            # A message that arrived meanwhile may have brought the newest state.
            solved = [uuid for uuid in batch if uuid not in self._tracker.unindexed]
            for uuid in solved:
                del self._due[uuid]
            try:
                self._reread([uuid for uuid in batch if uuid in self._due], now_s)
            except CellUnreachableError as error:
                _log.warning("indexer.reread_postponed", cell=self._cell_uuid, reason=error.reason)
                self._next_due_s = now_s + _UNREACHABLE_RETRY_S
                return
        self._next_due_s = min(self._due.values(), default=0.0)

    def _reread(self, uuids: Collection[str], now_s: float) -> None:
        rows = self._read_rows(uuids)
        documents, rejected = self._render(rows.values())
        if documents:
            rejected += self._writer.write(documents).rejected
        reasons = {rejection.document.id: rejection.reason for rejection in rejected}
        for uuid, reason in reasons.items():
            _log.error("indexer.row_rejected", cell=self._cell_uuid, instance=uuid, reason=reason)
            self._due[uuid] = now_s + _REJECTED_RETRY_S
        solved = [uuid for uuid in uuids if uuid not in reasons]
        for uuid in solved:
            del self._due[uuid]
        self._tracker.mark_indexed(solved)
        if indexed := rows.keys() - reasons.keys():
            self._on_reread(indexed)
