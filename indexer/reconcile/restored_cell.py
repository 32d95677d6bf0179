"""A cell that was restored from a backup: the index forgets the future that the cell lost (docs/decisions/0001)."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from fleetlight.indexer.backends.base import IndexWriter
from fleetlight.indexer.reconcile.fill import CellRows, SyncResult
from fleetlight.indexer.reconcile.native_cell import NativeComparison
from fleetlight.indexer.reconcile.reconcile import verify
from fleetlight.indexer.reconcile.retention import LISTS_DELAY_S
from fleetlight.indexer.writing.checkpoints import forget_checkpoints
from fleetlight.indexer.writing.epoch_history import History
from fleetlight.indexer.writing.ownership import KnowsOwners
from fleetlight.resources.indexed_items import INDEXED_ITEMS


@dataclass(frozen=True, slots=True)
class RestoreResult:
    """result: that of a sync, since each row was compared with what the index says. differences: how many differed."""

    result: SyncResult
    differences: int


def forget_lost_future(
    source: CellRows,
    writer: IndexWriter,
    history: History,
    *,
    take_back: Callable[[], None],
    pause: Callable[[float], object],
    on_step: Callable[[], None],
    owners: KnowsOwners | None,
    lists_delay_s: float = LISTS_DELAY_S,
) -> RestoreResult:
    """Remove from the index what the cell does not have any more, and repair the rest: the index equals the cell then.

    Revisions do not show everything: a row that has reached a revision again may say something else than it did in the
    lost future. So each row is compared with what the index says, and none has to be synced afterwards.
    take_back: saves, as the progress of the cell, that nothing is promised. pause: waits that many seconds, what is
    left of `lists_delay_s` when the first document has to make place. on_step: called between two requests; what it
    raises ends this, and the next one begins anew. owners: as of
    fleetlight.indexer.reconcile.native_cell.NativeComparison.
    """
    cell_uuid = source.adapter.cell.uuid
    history.begin_reconcile()
    for item_type in INDEXED_ITEMS:
        writer.mark_items(item_type, cell_uuid, are_whole=False)
    forget_checkpoints(writer, cell_uuid=cell_uuid)
    # At once: to what the cell is called by afterwards, the old watermark would be that of another history.
    take_back()
    writer.make_searchable()
    warned_at_s = time.monotonic()
    # Before the first row is read: whatever is announced from now on has a higher sequence.
    source.forget_lost_future()
    sequence = source.start(0)

    def wait_for_lists(_seconds: float) -> None:
        # They are warned since then: finding what differs and waiting for them take the longer of both times.
        pause(max(0.0, warned_at_s + lists_delay_s - time.monotonic()))

    def on_progress(_steps: int, _differences: int) -> None:
        source.look_now_and_then()
        on_step()

    comparison = NativeComparison(
        source.adapter,
        writer,
        catch_up_timeout_s=0,
        owners=owners,
        contents_at_once=source.batch_size,
        pause=wait_for_lists,
    )
    found = verify(comparison, repair=True, on_progress=on_progress)
    on_step()
    source.look()
    # Again: a process that had looked whether it may save an old watermark just before has saved it by now.
    take_back()
    history.end_reconcile()
    rejected = {each.uuid: each.problem or "" for each in found.differences if each.is_wrong}
    result = SyncResult(found.rows, comparison.seen.deleted, sequence, rejected, source.seen, source.has_gone_back)
    return RestoreResult(result, len(found.differences))
