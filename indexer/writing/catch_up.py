"""Reads changes that the bus lost from the cell's changelog: at the start, and when a hole does not close."""

from collections.abc import Callable, Sequence
from functools import partial

from fleetlight.cells.fleet.producer_keys import Announcer
from fleetlight.cells.model import NO_REVISION, Change, ChangelogAdapter
from fleetlight.indexer.errors import DeadLetterReason, MalformedMessageError
from fleetlight.indexer.transform.batches import Batch, without_known
from fleetlight.indexer.writing.progress import ProgressTracker
from fleetlight.indexer.writing.rereading import rows_of
from fleetlight.indexer.writing.retrying_writer import WritesAndReads
from fleetlight.resources.clock import Clock, system_clock

DeadLetterStore = Callable[[Sequence[tuple[Change, MalformedMessageError]]], None]


def catch_up(
    adapter: ChangelogAdapter,
    writer: WritesAndReads,
    tracker: ProgressTracker,
    *,
    announcer: Announcer,
    dead_letters: DeadLetterStore,
    batch_size: int,
    on_batch: Callable[[], None],
    horizon: int = 0,
    clock: Clock = system_clock,
) -> bool:
    """Write every change after the watermark, and move the watermark.

    announcer: producer of notifications in the outbox (fleetlight.indexer.transform.announcers). dead_letters: receives
    the changes of each batch that can never be indexed, with the error. on_batch: called after each batch. horizon: as
    for Batch. clock: of the fleet. Returns False if the changelog does not reach back to the watermark, or ends before
    it: then the cell needs a sync. Raises CellUnreachableError, and what writer and callbacks raise.
    """
    if adapter.published_sequence() < tracker.watermark:
        # The database was restored from an older copy, and will give the same sequences to other changes.
        return False
    if adapter.oldest_kept_sequence() > tracker.watermark + 1:
        return False
    own_rows = partial(rows_of, adapter)
    while True:
        changes = adapter.changes_after(tracker.watermark, batch_size)
        if changes:
            if changes[0].sequence != tracker.watermark + 1:
                return False
            batch = Batch(adapter.cell.uuid, horizon, own=own_rows, now=clock())
            dead = _write(batch, changes, writer, tracker, announcer)
            dead_letters(without_known(dead, own_rows))
            tracker.advance_to(changes[-1].sequence)
            on_batch()
        if len(changes) < batch_size:
            return True


def reaches_back_to_the_beginning(adapter: ChangelogAdapter) -> bool:
    """Whether the changelog still has every change of the cell. Raises CellUnreachableError."""
    return adapter.oldest_kept_sequence() == 1 and adapter.published_sequence() > 0


def _write(
    batch: Batch,
    changes: Sequence[Change],
    writer: WritesAndReads,
    tracker: ProgressTracker,
    announcer: Announcer,
) -> list[tuple[Change, MalformedMessageError]]:
    """Write the changes; returns those that can never be indexed, each with the error."""
    sources: dict[str, Change] = {}
    dead: list[tuple[Change, MalformedMessageError]] = []
    for change in changes:
        try:
            # A notification of another producer has no revision.
            about = batch.take(
                change.message,
                change.revision or None,
                change.instance_uuid or None,
                reports_progress=False,
                announcer=announcer,
            )
        except MalformedMessageError as error:
            dead.append((change, error))
            continue
        for instance_uuid in about:
            sources[instance_uuid] = change
    result = writer.write(batch.documents(writer.read))
    # A notification without a revision may be older than the state that could not be indexed.
    tracker.mark_indexed(uuid for uuid, change in sources.items() if change.revision != NO_REVISION)
    dead += [(sources[uuid], error) for uuid, error in batch.failed.items()]
    dead += [
        (sources[rejection.document.id], MalformedMessageError(DeadLetterReason.REJECTED, rejection.reason))
        for rejection in result.rejected
    ]
    return dead
