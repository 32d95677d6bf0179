"""What the bus lost, from the cell's changelog: at the start, and when a hole does not close."""

from collections.abc import Callable, Sequence

import structlog

from cells.model import Change, ChangelogAdapter
from indexer.batches import Batch
from indexer.errors import MalformedMessageError
from indexer.messages import interpret
from indexer.progress import ProgressTracker
from indexer.rereading import Rereader
from indexer.writing import WritesDocuments

_log = structlog.get_logger(__name__)


def catch_up(
    adapter: ChangelogAdapter,
    writer: WritesDocuments,
    tracker: ProgressTracker,
    rereader: Rereader,
    *,
    batch_size: int,
    on_batch: Callable[[], None],
) -> bool:
    """Write every change after the watermark, and move it.

    on_batch: called after each batch. Returns False when the changelog no longer reaches back to the watermark, or does
    not know it: then the cell has to be synced. Raises CellUnreachableError, and what the writer raises.
    """
    if adapter.published_sequence() < tracker.watermark:
        # The database is an older copy of itself, which will give the same numbers to other changes.
        return False
    if adapter.oldest_kept_sequence() > tracker.watermark + 1:
        return False
    while True:
        changes = adapter.changes_after(tracker.watermark, batch_size)
        if changes:
            if changes[0].sequence != tracker.watermark + 1:
                return False
            _write(adapter.cell.uuid, changes, writer, tracker, rereader)
            tracker.advance_to(changes[-1].sequence)
            on_batch()
        if len(changes) < batch_size:
            return True


def reaches_back_to_the_beginning(adapter: ChangelogAdapter) -> bool:
    """Whether every row of the cell has come from a change that the changelog still has."""
    return adapter.oldest_kept_sequence() == 1 and adapter.published_sequence() > 0


def _write(
    cell_uuid: str,
    changes: Sequence[Change],
    writer: WritesDocuments,
    tracker: ProgressTracker,
    rereader: Rereader,
) -> None:
    batch = Batch(cell_uuid)
    unindexed: set[str] = set()
    for change in changes:
        try:
            batch.add(interpret(change.message, change.revision))
        except MalformedMessageError as error:
            _log.error("indexer.change_malformed", cell=cell_uuid, sequence=change.sequence, reason=str(error))
            unindexed.add(change.instance_uuid)
    documents = batch.documents(lambda _: {})
    unindexed.update(rejection.document.id for rejection in writer.write(documents).rejected)
    tracker.mark_indexed(document.id for document in documents)
    for instance_uuid in unindexed:
        rereader.add(instance_uuid)
