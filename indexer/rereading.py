"""Instances whose newest state could not be indexed: read again from their cell, which has the truth.

Until that has worked the cell does not count as complete, so lists ask the cell itself: no answer lacks the instance.
"""

from collections.abc import Callable

import structlog

from cells.errors import CellUnreachableError
from cells.model import InstanceRow
from indexer.documents import to_document
from indexer.progress import ProgressTracker
from indexer.writing import WritesDocuments

_log = structlog.get_logger(__name__)

_RETRY_INTERVAL_S = 5.0


class Rereader:
    """Reads instances of one cell again, at once, and every few seconds while the cell cannot be reached."""

    def __init__(
        self,
        cell_uuid: str,
        find: Callable[[str], InstanceRow | None],
        writer: WritesDocuments,
        tracker: ProgressTracker,
    ) -> None:
        self._cell_uuid = cell_uuid
        self._find = find
        self._writer = writer
        self._tracker = tracker
        self._waiting: set[str] = set()
        self._due_s = 0.0

    def add(self, instance_uuid: str) -> None:
        """The newest known state of this instance could not be indexed."""
        self._tracker.mark_unindexed(instance_uuid)
        self._waiting.add(instance_uuid)
        self._due_s = 0.0

    def work(self, now_s: float) -> None:
        """Read again what is due; `now_s`: a monotonic clock. Raises what the writer raises."""
        if not self._waiting or now_s < self._due_s:
            return
        for instance_uuid in sorted(self._waiting):
            try:
                row = self._find(instance_uuid)
            except CellUnreachableError as error:
                _log.warning("indexer.reread_postponed", cell=self._cell_uuid, reason=error.reason)
                self._due_s = now_s + _RETRY_INTERVAL_S
                return
            self._waiting.discard(instance_uuid)
            self._index(instance_uuid, row)

    def _index(self, instance_uuid: str, row: InstanceRow | None) -> None:
        if row is not None:
            result = self._writer.write([to_document(self._cell_uuid, row.revision, row.record)])
            if result.rejected:
                _log.error(
                    "indexer.row_rejected",
                    cell=self._cell_uuid,
                    instance=instance_uuid,
                    reason=result.rejected[0].reason,
                )
                return
        self._tracker.mark_indexed([instance_uuid])
