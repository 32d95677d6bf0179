"""A cell that was restored from a backup: the index forgets the future that the cell lost (docs/decisions/0018)."""

from collections.abc import Callable

from cells.model import ChangelogAdapter
from indexer.backends.base import IndexWriter
from indexer.reconcile.native_cell import NativeComparison
from indexer.reconcile.reconcile import verify
from indexer.reconcile.retention import LISTS_GRACE_S
from indexer.writing.checkpoints import forget_checkpoints
from indexer.writing.epoch_history import History
from indexer.writing.ownership import KnowsOwners
from resources.indexed_items import INDEXED_ITEMS


def forget_lost_future(
    adapter: ChangelogAdapter,
    writer: IndexWriter,
    history: History,
    *,
    take_back: Callable[[], None],
    batch_size: int,
    pause: Callable[[float], object],
    on_step: Callable[[], None],
    owners: KnowsOwners | None,
    grace_s: float = LISTS_GRACE_S,
) -> int:
    """Remove from the index what the cell does not have any more, and repair the rest; how many instances differed.

    Revisions do not tell everything: a row that has reached a revision again may say something else than it did in the
    lost future. So each row is compared with what the index says.
    take_back: saves, as the progress of the cell, that nothing is promised. pause: waits that many seconds (`grace_s`),
    so that lists know. on_step: called between two requests; what it raises ends this, and the next one begins anew.
    owners: as of indexer.reconcile.native_cell.NativeComparison.
    """
    history.begin_reconcile()
    for item_type in INDEXED_ITEMS:
        writer.mark_items(item_type, adapter.cell.uuid, are_whole=False)
    forget_checkpoints(writer, cell_uuid=adapter.cell.uuid)
    # At once: to what the cell is called by afterwards, the old watermark would be that of another history.
    take_back()
    writer.make_searchable()
    # A list that has begun, or remembers what the index said before, must not find rows gone and miss none.
    pause(grace_s)
    on_step()
    comparison = NativeComparison(adapter, writer, catch_up_timeout_s=0, owners=owners, contents_at_once=batch_size)
    reconciled = verify(comparison, repair=True, on_progress=lambda _steps, _differences: on_step())
    on_step()
    # Again: a process that had looked whether it may save an old watermark just before has saved it by now.
    take_back()
    history.end_reconcile()
    return len(reconciled.differences)
