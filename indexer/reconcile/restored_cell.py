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
    """result: as of a sync, since every row was compared by content. differences: number of instances that differed."""

    result: SyncResult
    differences: int


def forget_lost_future(
    source: CellRows,
    writer: IndexWriter,
    history: History,
    *,
    take_back: Callable[[], object],
    pause: Callable[[float], object],
    on_step: Callable[[], None],
    owners: KnowsOwners | None,
    lists_delay_s: float = LISTS_DELAY_S,
) -> RestoreResult:
    """Make the index equal to a restored cell: remove what the cell lost, and repair the rest.

    A row that reaches a revision for the second time may differ from the one of the lost future. So every row is
    compared by content, and needs no sync afterwards. take_back: saves a progress of the cell that promises nothing.
    pause: waits that many seconds: the rest of `lists_delay_s` when the first document is removed for a row. on_step:
    called between two requests; an error that it raises ends the work, which begins anew when it is repeated. owners:
    as for fleetlight.indexer.reconcile.native_cell.NativeComparison. Raises CellUnreachableError, and what writer,
    history, owners and `on_step` raise.
    """
    cell_uuid = source.adapter.cell.uuid
    history.begin_reconcile()
    for item_type in INDEXED_ITEMS:
        writer.mark_items(item_type, cell_uuid, are_whole=False)
    forget_checkpoints(writer, cell_uuid=cell_uuid)
    # Before the new epoch is saved: under it, the old watermark would be that of another history.
    take_back()
    writer.make_searchable()
    warned_at_s = time.monotonic()
    # Read the sequence before the first row: each change that is announced from now on has a higher one.
    source.forget_lost_future()
    sequence = source.start(0)

    def wait_for_lists(_seconds: float) -> None:
        # Lists know since `warned_at_s`, so the search for differences counts as part of the wait.
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
    # Again: a process that checked the epoch just before has saved an old watermark by now.
    take_back()
    history.end_reconcile()
    rejected = {each.uuid: each.problem or "" for each in found.differences if each.is_wrong}
    result = SyncResult(found.rows, comparison.seen.deleted, sequence, rejected, source.seen, source.has_gone_back)
    return RestoreResult(result, len(found.differences))
