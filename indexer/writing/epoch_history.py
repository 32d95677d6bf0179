"""The epochs of a cell that the index has followed: they show that the cell was restored from a backup, and which
messages belong to a future that it lost.

What the index followed is compared with the epochs of the cell (fleetlight.cells.kinds.native.epochs). The one that was
known when the progress was made is kept beside it.
"""

from collections.abc import Callable

from fleetlight.bus.bus import Headers
from fleetlight.bus.topology import EPOCH_HEADER, SEQUENCE_HEADER
from fleetlight.cells.epochs import EpochHistory, Position
from fleetlight.cells.model import ChangelogAdapter
from fleetlight.indexer.backends.base import BEING_RECONCILED, EPOCHS, RECONCILIATIONS, IndexWriter
from fleetlight.indexer.errors import CellRestoredError

# Of epochs that are none of the cell's: enough not to query the cell for each message.
_STRANGERS_REMEMBERED = 1000
# No epoch has more; a header can have a hundred kilobytes.
_LONGEST_NAME = 64


class History:
    """The history of one cell as the index knows it; belongs to one thread.

    watermark: of the follower of the cell, as it is now. followed_as: the epoch that calls it so, as far as it is
        known from an earlier History: another indexer may have repaired the index since, and what it saved says nothing
        of this watermark. seen: up to where the index may have rows already, beyond the watermark, as of followed_as.
    reconciliations: how often the index had been repaired after a restore, when it was known last.
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
        # In the order in which they came.
        self._strangers: dict[str, None] = {}

    @property
    def epoch_history(self) -> EpochHistory:
        """The epochs of the cell, as of the last look."""
        return self._epoch_history

    def was_restored(self) -> bool:
        """Whether the index has followed the cell into a future that it does not have any more.

        Otherwise what the cell calls its present is known from now on. Raises CellUnreachableError, and what the writer
        raises.
        """
        self._strangers.clear()
        if self.reconciliations is None:
            # Before the look: a repair by another indexer that ends after it is seen by the indexer that gets the lease
            # then.
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
        """Whether another indexer has repaired the index since it was known here; for the holder of the lease alone."""
        if self.reconciliations is None or self._writer.load_state(EPOCHS).get(self._cell.uuid) == BEING_RECONCILED:
            return False
        # The other one counts its repair before it says that it has ended, and the look may have been between the two.
        return self._known == BEING_RECONCILED or self._count_reconciliations() > self.reconciliations

    def follow_another(self) -> None:
        """What was followed until now is forgotten; the watermark is one that another indexer has saved."""
        self.followed_as = self.seen = None
        self.was_restored()

    def has_read_on(self) -> None:
        """The watermark has moved over what the cell itself says of its changes, by whichever epochs.

        Raises CellRestoredError when that was not the history that the index had followed before, CellUnreachableError,
        and what the writer raises.
        """
        if self._adapter.position().epoch == self.followed_as:
            return
        self._epoch_history = self._adapter.epoch_history()
        has_gone_back = self._adapter.published_sequence() < self._watermark()
        if has_gone_back or not self._has_happened(self.seen) or not self._is_past(self.followed_as, self._vouched_for):
            raise CellRestoredError(self._cell.name)
        self._keep_current()

    def covers(self, saved_watermark: int) -> bool:
        """Whether a saved watermark is one of the cell's past; raises as `has_read_on` does."""
        found = self._writer.load_state(EPOCHS).get(self._cell.uuid)
        return found is None or self._adapter.epoch_history().contains(found, saved_watermark)

    def begin_reconcile(self) -> None:
        """Until `end_reconcile` the index says that the cell was restored, also after a crash."""
        self._keep(BEING_RECONCILED)

    def end_reconcile(self) -> None:
        """The index has nothing of a future that the cell does not have."""
        self._known = self.seen = None
        self.reconciliations = self._count_reconciliations() + 1
        self._writer.save_state(RECONCILIATIONS, {self._cell.uuid: self.reconciliations})
        self._keep_current()

    def accepts(self, headers: Headers) -> bool:
        """Whether what the message says has happened, as far as its headers say.

        Raises CellRestoredError when it shows that the index has followed another future, CellUnreachableError, and
        what the writer raises.
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
        # A heartbeat of an earlier epoch; those of the present one say more.
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
        """Whether what that epoch calls so has happened; as long as there is none, all has."""
        return epoch is None or self._epoch_history.contains(epoch, sequence)

    def _has_happened(self, seen: Position | None) -> bool:
        return seen is None or self._is_past(seen.epoch, seen.sequence)

    def _keep_current(self) -> None:
        """Whatever the watermark covers now is part of what the newest epoch has behind it."""
        current = self._epoch_history.current
        self.followed_as, self._vouched_for = current, self._watermark()
        if self.seen is not None and current is not None:
            # What happened under earlier ones is part of its past, and those may be forgotten.
            self.seen = Position(current, self.seen.sequence)
        if current is not None and current != self._known:
            self._keep(current)

    def _keep(self, epoch: str) -> None:
        self._writer.save_state(EPOCHS, {self._cell.uuid: epoch})
        self._known = epoch
