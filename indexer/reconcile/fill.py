"""Fills the index with all rows of a cell, while changes may arrive.

This is the case of fleetlight.indexer.reconcile.reconcile in which everything counts as different: it compares,
confirms and removes nothing. The index takes each row that has a newer revision than its document.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

from fleetlight.cells.epochs import Position
from fleetlight.cells.model import ChangelogAdapter
from fleetlight.indexer.backends.base import Document, Rejection, WriteResult
from fleetlight.indexer.errors import IndexerError
from fleetlight.indexer.reconcile.ranges import ignore, pages_of_rows
from fleetlight.indexer.writing.checkpoints import Checkpoint, Checkpoints
from fleetlight.indexer.writing.rereading import RenderedRows
from fleetlight.indexer.writing.retrying_writer import WritesDocuments
from fleetlight.query.filters import EVERYTHING
from fleetlight.query.page import PageRequest
from fleetlight.query.retention import remembered
from fleetlight.query.sort import INSTANCES_BY_UUID

# Two bulk requests keep Elasticsearch busy; more would only wait there (measured).
_IN_FLIGHT = 2
_IDLE_INTERVAL_S = 1.0
# The most that a killed sync has to read again. Each checkpoint forces a refresh, for which all writes of the cell
# wait.
_CHECKPOINT_INTERVAL_S = 5.0
_LOOK_INTERVAL_S = 1.0


@dataclass(frozen=True, slots=True)
class SyncResult:
    """rows: number read. deleted: number of deleted ones among them. sequence: the index now has all changes up to it.

    rejected: why the index refuses a row, by uuid. seen: the position that the cell had reached about at the end; None
    if it numbers nothing. has_gone_back: some rows are from a future that the cell lost meanwhile, when it was restored
    from a backup. is_unsettled: some of `rejected` may be settled once another cell is read.
    """

    rows: int
    deleted: int
    sequence: int
    rejected: Mapping[str, str] = field(default_factory=dict)
    seen: Position | None = None
    has_gone_back: bool = False
    is_unsettled: bool = False


@dataclass(frozen=True, slots=True)
class SourcePage:
    """Rows that were read together, as documents. position: of the last row, after which the source can continue.

    documents: can be iterated repeatedly. count_deleted: the number of deleted ones, and `rejected`: rows that could
    not be converted; both are known after an iteration. seen: see Checkpoint.
    """

    documents: Iterable[Document]
    position: list[str]
    rows: int
    count_deleted: Callable[[], int]
    rejected: Collection[Rejection] = ()
    seen: Position | None = None


class RowSource(Protocol):
    """The source of a cell's rows."""

    @property
    def has_gone_back(self) -> bool:
        """Whether some rows, now or before the checkpoint, came from a future that the cell has lost."""

    def start(self, watermark: int) -> int:
        """Called before the first row is read: returns a sequence up to which the rows will have every change."""

    def can_go_on(self, checkpoint: Checkpoint) -> bool:
        """Whether a sync can continue from that checkpoint."""

    def pages(self, position: list[str] | None) -> Iterator[SourcePage]:
        """Yield all rows, or those after `position`; runs in a thread of its own."""


def write_pages(
    pages: Iterator[SourcePage],
    writer: WritesDocuments,
    *,
    on_written: Callable[[SourcePage, WriteResult], None],
    on_idle: Callable[[], None],
) -> None:
    """Write all pages; return when they are written.

    The next page is read while two others are written: a writer that took one page after the other would leave the
    index idle while it reads, and be idle itself while the index works. pages: is iterated by another thread, one page
    ahead of the writes. on_written: called in the order of the pages, once everything up to that page is written.
    on_idle: called each second while nothing else happens. Both run in the caller's thread; an error that they raise
    ends the work. Raises what `pages` and the writer raise, after the writes under way have ended.
    """

    def finish(future: Future[Any]) -> None:
        while not wait([future], _IDLE_INTERVAL_S).done:
            on_idle()

    writing: deque[tuple[SourcePage, Future[WriteResult]]] = deque()

    def finish_oldest() -> None:
        page, write = writing.popleft()
        try:
            finish(write)
            on_written(page, write.result())
        except BaseException:
            # Pages after one that was not written must not count.
            writing.clear()
            raise

    with ThreadPoolExecutor(1 + _IN_FLIGHT, thread_name_prefix="index-pages") as threads:
        try:
            reading = threads.submit(next, pages, None)
            while True:
                finish(reading)
                page = reading.result()
                if page is None:
                    break
                reading = threads.submit(next, pages, None)
                if len(writing) == _IN_FLIGHT:
                    finish_oldest()
                writing.append((page, threads.submit(writer.write, page.documents)))
        finally:
            # Pages that were written count even if reading failed.
            while writing:
                finish_oldest()


class CellRows:
    """The rows of a cell with a changelog, from the cell itself; raises CellUnreachableError.

    horizon: leave out rows that are forgotten at it (fleetlight.indexer.reconcile.retention).
    """

    def __init__(
        self,
        adapter: ChangelogAdapter,
        *,
        batch_size: int,
        spend: Callable[[int], None] = ignore,
        horizon: int = 0,
    ) -> None:
        self._adapter = adapter
        self._filter = remembered(horizon)
        self._batch_size = batch_size
        self._spend = spend
        self._seen: Position | None = None
        self._look_due_s = 0.0
        self.has_gone_back = False

    @property
    def adapter(self) -> ChangelogAdapter:
        return self._adapter

    @property
    def batch_size(self) -> int:
        return self._batch_size

    @property
    def seen(self) -> Position | None:
        """The cell's position at the last look; None before the first."""
        return self._seen

    def forget_lost_future(self) -> None:
        """Called when the index has nothing of a lost future any more, or will not get it."""
        self._seen, self.has_gone_back = None, False

    def look(self) -> Position:
        """The cell's position now; also checks whether its previous position is still part of its past."""
        before, now = self._seen, self._adapter.position()
        if before is not None and before.epoch is not None:
            is_past = before.epoch == now.epoch or self._adapter.epoch_history().contains(before.epoch, before.sequence)
            if not is_past or now.sequence < before.sequence:
                self.has_gone_back = True
        self._seen, self._look_due_s = now, time.monotonic() + _LOOK_INTERVAL_S
        return now

    def look_now_and_then(self) -> None:
        """Look at most once a second, however often this is called."""
        # Otherwise a backup made and restored between two looks would go unnoticed.
        if time.monotonic() >= self._look_due_s:
            self.look()

    def start(self, watermark: int) -> int:
        """The cell's sequence, or the one before the first notification from outside after `watermark`."""
        sequence = self.look().sequence
        external = self._adapter.first_external_sequence(watermark)
        # A notification from outside is in no row, only in the changelog, which has to be read from there.
        return sequence if external is None else min(sequence, external - 1)

    def can_go_on(self, checkpoint: Checkpoint) -> bool:
        """Whether the changes since the checkpoint are still there, and the database is not an older copy."""
        self._seen = checkpoint.seen
        self.look()
        reaches_back = self._adapter.oldest_kept_sequence() <= checkpoint.sequence + 1
        return reaches_back and checkpoint.sequence <= self._adapter.published_sequence()

    def pages(self, position: list[str] | None) -> Iterator[SourcePage]:
        """Yield the rows by uuid, and look at the position of the cell now and then."""
        after = None if position is None else tuple(position)
        for rows, is_last in pages_of_rows(self._adapter.scan, self._filter, self._batch_size, after):
            if is_last:
                self.look()
            else:
                self.look_now_and_then()
            if rows:
                documents = RenderedRows(rows)
                yield SourcePage(
                    documents,
                    [rows[-1].uuid],
                    len(rows),
                    documents.count_deleted,
                    documents.rejected.values(),
                    self._seen,
                )
            if not is_last:
                self._spend(len(rows))


def sync(
    source: RowSource,
    writer: WritesDocuments,
    *,
    watermark: int = 0,
    checkpoints: Checkpoints | None = None,
    on_progress: Callable[[int], None] = ignore,
) -> SyncResult:
    """Write every row of the source, including deleted ones; repeating it changes nothing.

    watermark: the index already has every change up to this sequence.
    checkpoints: where an interrupted sync continues; forgotten at the end.
    on_progress: receives the number of rows so far, after each page and each second; an error it raises ends the sync.
    Raises what the source and the writer raise; rows written until then stay and do no harm.
    """
    found = done = checkpoints.load() if checkpoints else None
    if done is None or not source.can_go_on(done):
        # Read the sequence first: whatever is announced while rows are read then has a higher one.
        done = Checkpoint([], source.start(watermark), 0, 0, {})
    work = _Work(done, checkpoints, on_progress, has_checkpoint=found is not None)
    try:
        write_pages(source.pages(done.position or None), writer, on_written=work.on_written, on_idle=work.on_idle)
    except BaseException:
        # A writer that could not write rows cannot save a checkpoint either.
        with suppress(IndexerError):
            work.save()
        raise
    work.forget()
    done = work.done
    return SyncResult(done.rows, done.deleted, done.sequence, done.rejected, done.seen, source.has_gone_back)


class _Work:
    """The progress of one sync. done: everything up to it is written. has_checkpoint: one is saved already."""

    def __init__(
        self,
        done: Checkpoint,
        checkpoints: Checkpoints | None,
        on_progress: Callable[[int], None],
        *,
        has_checkpoint: bool,
    ) -> None:
        self.done = done
        self._has_checkpoint = has_checkpoint
        self._checkpoints = checkpoints
        self._on_progress = on_progress
        self._saved = done
        self._saved_at_s = time.monotonic()

    def on_written(self, page: SourcePage, result: WriteResult) -> None:
        done = self.done
        refused = (*page.rejected, *result.rejected)
        rejected = done.rejected | {rejection.document.id: rejection.reason for rejection in refused}
        self.done = Checkpoint(
            page.position,
            done.sequence,
            done.rows + page.rows,
            done.deleted + page.count_deleted(),
            rejected,
            page.seen,
        )
        if time.monotonic() - self._saved_at_s >= _CHECKPOINT_INTERVAL_S:
            self.save()
        self._on_progress(self.done.rows)

    def on_idle(self) -> None:
        self._on_progress(self.done.rows)

    def save(self) -> None:
        if self._checkpoints and self.done is not self._saved:
            self._has_checkpoint = True
            self._checkpoints.save(self.done)
            self._saved, self._saved_at_s = self.done, time.monotonic()

    def forget(self) -> None:
        """Forget the checkpoint. A sync of some seconds saves none, which avoids a refresh of the index."""
        if self._checkpoints and self._has_checkpoint:
            self._checkpoints.forget()


def sync_cell(
    adapter: ChangelogAdapter,
    writer: WritesDocuments,
    *,
    batch_size: int,
    horizon: int = 0,
    checkpoints: Checkpoints | None = None,
    on_progress: Callable[[int], None] = ignore,
) -> SyncResult:
    """`sync` for a cell of which the index has nothing yet, from the cell itself."""
    source = CellRows(adapter, batch_size=batch_size, horizon=horizon)
    return sync(source, writer, checkpoints=checkpoints, on_progress=on_progress)


def is_empty(adapter: ChangelogAdapter) -> bool:
    """Whether the cell has no rows at all, not even deleted ones. Raises CellUnreachableError."""
    return not adapter.read_page(PageRequest(EVERYTHING, INSTANCES_BY_UUID, 1, fields=("uuid",)))
