"""The epochs of a cell that the index has followed. They show whether the cell was restored from a backup, and which
messages belong to a future that it lost.

The index keeps, beside the progress, the epoch that was current when the progress was saved; this module compares it
with the epochs of the cell (fleetlight.cells.kinds.native.epochs).
"""

from collections.abc import Callable

from fleetlight.bus.bus import Headers
from fleetlight.bus.topology import EPOCH_HEADER, SEQUENCE_HEADER
from fleetlight.cells.epochs import EpochHistory, Position
from fleetlight.cells.model import ChangelogAdapter
from fleetlight.indexer.backends.base import BEING_RECONCILED, EPOCHS, RECONCILIATIONS, IndexWriter
from fleetlight.indexer.errors import CellRestoredError

# Unknown epochs in messages to remember, so that the cell is not queried for each message.
_STRANGERS_REMEMBERED = 1000
# No epoch is longer; a header can have a hundred kilobytes.
_LONGEST_NAME = 64


class History:
    """The history of one cell that the index has followed; not thread-safe.

    watermark: returns that of the cell's follower. followed_as: the epoch to which this watermark belongs, from an
        earlier History of this follower, since the saved epoch may be that of another indexer which has repaired the
        index; None if unknown. seen: the position in that epoch up to which the index may have rows beyond the
        watermark.
    reconciliations: the last known number of repairs of the index after restores.
    """

    def __init__(
        self,
        adapter: ChangelogAdapter,
        writer: IndexWriter,
        watermark: Callable[[], int],
        followed_as: str | None = None,
        seen: Position | None = None,
        *,
        reconciliations: int | None = None,
    ) -> None:
        self.followed_as = followed_as
        self.seen = seen
        self.reconciliations = reconciliations
        self._adapter = adapter
        self._writer = writer
        self._watermark = watermark
        self._cell = adapter.cell
        self._epoch_history = EpochHistory([])
        self._known: str | None = None
        self._vouched_for = 0
        # In the order of arrival.
        self._strangers: dict[str, None] = {}

    @property
    def epoch_history(self) -> EpochHistory:
        """The epochs of the cell, as last read."""
        return self._epoch_history

    def was_restored(self) -> bool:
        """Whether the index has followed the cell into a future that the cell lost. If not, save its current epoch.

        Raises CellUnreachableError, and what the writer raises.
        """
        self._strangers.clear()
        if self.reconciliations is None:
            # Count before reading the epochs, so that a repair by another indexer that ends later is noticed.
            self.reconciliations = self._count_reconciliations()
        self._epoch_history = self._adapter.epoch_history()
        found = self._writer.load_state(EPOCHS).get(self._cell.uuid)
        self._known = found if isinstance(found, str) else None
        if self._has_broken_off() or not self._is_past(self.followed_as, self._watermark()):
            return True
        self.reconciliations = self._count_reconciliations()
        self._keep_current()
        return False

    def was_reconciled_by_another(self) -> bool:
        """Whether another indexer has repaired the index since the last count; call it under the lease for bulk work.
        Raises what the writer raises.
        """
        if self.reconciliations is None or self._writer.load_state(EPOCHS).get(self._cell.uuid) == BEING_RECONCILED:
            return False
        # The other indexer counts its repair before it saves the epoch, and the last count may be from between the two.
        return self._known == BEING_RECONCILED or self._count_reconciliations() > self.reconciliations

    def follow_another(self) -> None:
        """Forget the followed epoch, since the watermark is now one that another indexer saved. Raises as
        `was_restored`.
        """
        self.followed_as = self.seen = None
        self.was_restored()

    def has_read_on(self) -> None:
        """Note that the watermark moved over changes that were read from the cell itself, in whichever epochs.

        Raises CellRestoredError if these do not continue the history that the index followed, CellUnreachableError, and
        what the writer raises.
        """
        if self._adapter.position().epoch == self.followed_as:
            return
        self._epoch_history = self._adapter.epoch_history()
        has_gone_back = self._adapter.published_sequence() < self._watermark()
        if has_gone_back or not self._has_happened(self.seen) or not self._is_past(self.followed_as, self._vouched_for):
            raise CellRestoredError(self._cell.name)
        self._keep_current()

    def covers(self, saved_watermark: int) -> bool:
        """Whether a saved watermark is part of the cell's past. Raises CellUnreachableError, and as the writer."""
        found = self._writer.load_state(EPOCHS).get(self._cell.uuid)
        return found is None or self._adapter.epoch_history().contains(found, saved_watermark)

    def begin_reconcile(self) -> None:
        """Save in the index that the cell was restored; this stays until `end_reconcile`, also after a crash."""
        self._keep(BEING_RECONCILED)

    def end_reconcile(self) -> None:
        """Save that the index has nothing left of a future that the cell lost, and the current epoch."""
        self._known = self.seen = None
        self.reconciliations = self._count_reconciliations() + 1
        self._writer.save_state(RECONCILIATIONS, {self._cell.uuid: self.reconciliations})
        self._keep_current()

    def accepts(self, headers: Headers) -> bool:
        """Whether the change of a message is part of the cell's history, as far as its headers show.

        Raises CellRestoredError if the message shows that the index has followed a lost future, CellUnreachableError,
        and what the writer raises.
        """
        epoch = headers.get(EPOCH_HEADER)
        if not isinstance(epoch, str) or epoch == self._known:
            return True
        if len(epoch) > _LONGEST_NAME:
            return False
        if epoch not in self._strangers and not self._epoch_history.knows(epoch):
            self._look_again(epoch)
        sequence = headers.get(SEQUENCE_HEADER)
        if isinstance(sequence, int):
            return self._epoch_history.contains(epoch, sequence)
        # Ignore heartbeats of earlier epochs; those of the current one say more.
        return epoch == self._known

    def _count_reconciliations(self) -> int:
        return int(self._writer.load_state(RECONCILIATIONS).get(self._cell.uuid, 0))

    def _look_again(self, epoch: str) -> None:
        self._epoch_history = self._adapter.epoch_history()
        if self._has_broken_off():
            raise CellRestoredError(self._cell.name)
        self._keep_current()
        if not self._epoch_history.knows(epoch):
            self._strangers[epoch] = None
            if len(self._strangers) > _STRANGERS_REMEMBERED:
                del self._strangers[next(iter(self._strangers))]

    def _has_broken_off(self) -> bool:
        if self._adapter.published_sequence() < self._watermark() or not self._has_happened(self.seen):
            return True
        return not self._is_past(self._known, self._watermark())

    def _is_past(self, epoch: str | None, sequence: int) -> bool:
        """Whether this sequence of an epoch is part of the cell's history; True without an epoch."""
        return epoch is None or self._epoch_history.contains(epoch, sequence)

    def _has_happened(self, seen: Position | None) -> bool:
        return seen is None or self._is_past(seen.epoch, seen.sequence)

    def _keep_current(self) -> None:
        """Make the newest epoch the followed one, since everything up to the watermark is part of its past."""
        current = self._epoch_history.current
        self.followed_as, self._vouched_for = current, self._watermark()
        if self.seen is not None and current is not None:
            # Changes of earlier epochs are part of its past, and the cell may forget those epochs.
            self.seen = Position(current, self.seen.sequence)
        if current is not None and current != self._known:
            self._keep(current)

    def _keep(self, epoch: str) -> None:
        self._writer.save_state(EPOCHS, {self._cell.uuid: epoch})
        self._known = epoch
