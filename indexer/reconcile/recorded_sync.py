"""A sync of a native cell outside the indexer, which records itself how far the index follows the cell afterwards."""

import time
from collections.abc import Callable

from fleetlight.indexer.backends.base import CellProgress, IndexWriter
from fleetlight.indexer.errors import CellRestoredError
from fleetlight.indexer.reconcile.fill import CellRows, SyncResult, sync
from fleetlight.indexer.reconcile.ranges import ignore
from fleetlight.indexer.reconcile.restored_cell import forget_lost_future
from fleetlight.indexer.writing.checkpoints import Checkpoints
from fleetlight.indexer.writing.epoch_history import History
from fleetlight.indexer.writing.kept_extras import keeping_extras
from fleetlight.indexer.writing.ownership import KnowsOwners, OwnWriter
from fleetlight.indexer.writing.retrying_writer import WritesAndReads

_ATTEMPTS = 3


def sync_and_record(
    cell_uuid: str,
    source: CellRows,
    writer: IndexWriter,
    *,
    checkpoints: Checkpoints | None = None,
    on_progress: Callable[[int], None] = ignore,
    pause: Callable[[float], object] = time.sleep,
    owners: KnowsOwners | None = None,
) -> SyncResult:
    """Sync a cell, make its rows searchable, and save the progress; the cell is complete unless a row was rejected.

    If the cell was restored from a backup, before or meanwhile, the index first forgets the lost future, as when an
    indexer follows the cell back (docs/decisions/0001). pause: waits that many seconds, so that lists notice before.
    owners: knows the cell of each instance; None if all rows are the cell's own. Raises what `sync` raises, and
    CellRestoredError if the cell is restored at each attempt.
    """

    nothing = CellProgress(cell_uuid, 0, 0, is_complete=False)

    def saved() -> CellProgress:
        return writer.load_progress().get(cell_uuid, nothing)

    own: WritesAndReads = writer if owners is None else OwnWriter(writer, cell_uuid, owners)
    for _ in range(_ATTEMPTS):
        history = History(source.adapter, writer, lambda: saved().watermark)
        if history.was_restored():
            result = forget_lost_future(
                source,
                writer,
                history,
                take_back=lambda: writer.save_progress([nothing]),
                pause=pause,
                on_step=lambda: on_progress(0),
                owners=owners,
            ).result
        else:
            result = sync(
                source,
                keeping_extras(own, own, writer),
                watermark=saved().watermark,
                checkpoints=checkpoints,
                on_progress=on_progress,
            )
        if _is_of_present(history, result):
            writer.make_searchable()
            if _is_recorded(writer, cell_uuid, result):
                return result
        history.begin_reconcile()
    raise CellRestoredError(source.adapter.cell.name)


def _is_of_present(history: History, result: SyncResult) -> bool:
    """Whether every row that was read is part of the cell's past; if so, save the epoch that the index follows."""
    history.seen = result.seen
    try:
        history.has_read_on()
    except CellRestoredError:
        return False
    return not result.has_gone_back


def _is_recorded(writer: IndexWriter, cell_uuid: str, result: SyncResult) -> bool:
    """Save the progress; False if an indexer that follows the cell has just taken back what the index had of it."""
    was_complete = False
    while True:
        loaded = writer.load_progress()
        known = loaded.get(cell_uuid, CellProgress(cell_uuid, 0, 0, is_complete=False))
        if was_complete and not known.is_complete:
            return False
        was_complete, watermark = known.is_complete, max(known.watermark, result.sequence)
        reached = CellProgress(cell_uuid, watermark, known.fresh_as_of, is_complete=not result.rejected)
        if not writer.save_progress([reached], loaded):
            return True
