"""One cell in a rebuild: all of it into the next index, and then every change, until the next index is the current one.

A cell that numbers its changes gives its own rows, and its changelog says what has happened since. Of any other cell,
and of one that cannot be reached, the current index has all that can be had: its documents are copied.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from functools import partial

from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.model import NO_REVISION, Cell, Change, ChangelogAdapter
from fleetlight.indexer.backends.base import CellProgress, Generations, IndexWriter
from fleetlight.indexer.errors import MalformedMessageError, RebuildError
from fleetlight.indexer.reconcile.differences import Verification
from fleetlight.indexer.reconcile.fill import SyncResult
from fleetlight.indexer.reconcile.native_cell import NativeComparison
from fleetlight.indexer.reconcile.other_index import copy_bare, copy_differing
from fleetlight.indexer.reconcile.other_items import reconcile_other_items
from fleetlight.indexer.reconcile.ranges import ignore
from fleetlight.indexer.reconcile.reconcile import verify
from fleetlight.indexer.reconcile.retention import load_horizons
from fleetlight.indexer.transform.announcers import Announcers
from fleetlight.indexer.writing.catch_up import catch_up
from fleetlight.indexer.writing.kept_extras import ExtraFieldKeeper
from fleetlight.indexer.writing.ownership import KnowsOwners, OwnWriter
from fleetlight.indexer.writing.progress import ProgressTracker
from fleetlight.indexer.writing.rereading import Rereader, rows_of
from fleetlight.resources.indexed_items import INDEXED_ITEMS

HISTORIES = "previous histories"
"""The kind of state that has what the previous index has followed of each cell, by its uuid: the epoch
(fleetlight.indexer.writing.epoch_history), and a sequence, as that calls it, which nothing in the index is beyond."""

BEGUN_AS = "rebuilt histories"
"""The kind of state that has the epoch of each cell, by uuid, when the next index began to be filled."""

FillRows = Callable[[ChangelogAdapter, int, Callable[[int], None]], SyncResult]
"""Writes the rows of a cell into the next index: those that are not forgotten at a horizon. The function is called with
the rows so far, and what it raises ends it."""

# Some rounds of the thread that follows all cells in the meantime.
_CATCH_UP_TIMEOUT_S = 60.0
_SHOWN = 5
_ATTEMPTS = 3


def open_cell(
    cell: Cell,
    current: IndexWriter,
    new: IndexWriter,
    *,
    unusable: Generations | None,
    open_adapter: Callable[[Cell], ChangelogAdapter],
    owners: KnowsOwners,
    batch_size: int,
    is_filled: bool,
    on_notice: Callable[[str], None],
) -> "RebuiltCell":
    """How this cell gets into the `new` index.

    unusable: where documents of the current one are read if nothing else is known of it. owners: knows which cell
    an instance lives in. is_filled: the new one was the current one once, and only lacks changes. Raises
    CellUnreachableError when the cell alone has what is needed.
    """
    if cell.can.numbers_changes:
        try:
            adapter = open_adapter(cell)
            adapter.published_sequence()
        except CellUnreachableError as error:
            if unusable is not None:
                raise
            on_notice(f"{error}; what the index has of it is kept as it is")
        else:
            return FollowedCell(
                adapter, current, new, unusable, owners=owners, batch_size=batch_size, is_filled=is_filled
            )
    return RebuiltCell(cell, current, new, unusable)


def save_progress(new: IndexWriter, cells: Iterable["RebuiltCell"]) -> None:
    """Save how far these cells are, after what they have written was made searchable, once for all of them."""
    reached = [(cell, progress) for cell in cells if (progress := cell.progress()) is not None]
    moved = [(cell, progress) for cell, progress in reached if progress != cell.saved]
    if moved:
        new.make_searchable()
        new.save_progress([progress for _, progress in moved])
        for cell, progress in moved:
            cell.saved = progress


class RebuiltCell:
    """What a rebuild does with one cell: here, to copy what it has in the current index.

    What is written need not be searchable afterwards: that is done once for all cells, since each time costs as much as
    some thousand rows. saved: the progress that the new index has of the cell.
    Every call raises CellUnreachableError, and what the writers raise.
    """

    def __init__(self, cell: Cell, current: IndexWriter, new: IndexWriter, unusable: Generations | None) -> None:
        self.cell = cell
        self._current = current
        self._new = new
        self._unusable = unusable
        # Nothing is purged behind a later one before our lease on the cell has ended.
        self._horizon = load_horizons(current).get(cell.uuid, 0)
        self.saved: CellProgress | None = None

    def fill(self, fill_rows: FillRows, on_progress: Callable[[int], None]) -> None:
        """Everything that there is; goes on where it was cut off."""
        self._copy_all(lambda: on_progress(0))

    def follow(self) -> None:
        """What has changed since, so far; called again and again by one thread. What is copied is so at the end."""

    def progress(self) -> CellProgress | None:
        """How far `follow` is; None where it does nothing."""
        return None

    def verify(self, on_step: Callable[[], None]) -> None:
        """Compare, and repair what differs; while `follow` is called. Raises RebuildError if that cannot be done."""
        self._copy_all(on_step)

    def finish(self) -> None:
        """The last of it, while writing to the current index is paused. Raises RebuildError."""
        self._copy_all(ignore)

    def reached(self) -> int | None:
        """After `finish`: a sequence that the current index has nothing beyond; None if none is known."""
        return None

    def close(self) -> None:
        """End the use of the cell."""

    def _copy_all(self, on_step: Callable[[], None]) -> None:
        for external in (False, True):
            self._copy(on_step, external=external)

    def _copy(self, on_step: Callable[[], None], *, external: bool) -> None:
        """external: what notifications without a revision have brought; else what the cell itself has announced."""
        rejected: Mapping[str, str] = {}
        if self._unusable is None:
            rejected = copy_differing(
                self._current, self._new, self.cell.uuid, horizon=self._horizon, external=external, on_step=on_step
            )
        elif external:  # the rest is rows of native cells, which are here themselves
            rejected = copy_bare(self._unusable.bare_documents(self.cell.uuid), self._new, self.cell.uuid, on_step)
        if rejected:
            uuid, reason = next(iter(rejected.items()))
            raise RebuildError(
                f"the next index does not take {len(rejected)} documents of cell '{self.cell.name}' that the current "
                f"one has, so it was not put in its place: {uuid}: {reason}"
            )


class FollowedCell(RebuiltCell):
    """A cell that gives its own rows, and says what has changed since."""

    def __init__(
        self,
        adapter: ChangelogAdapter,
        current: IndexWriter,
        new: IndexWriter,
        unusable: Generations | None,
        *,
        owners: KnowsOwners,
        batch_size: int,
        is_filled: bool,
    ) -> None:
        super().__init__(adapter.cell, current, new, unusable)
        self._owners = owners
        self._adapter = adapter
        # Fields of newer producers in documents that this program cannot read are lost until they are sent again.
        self._extras = current if unusable is None else new
        self._own = OwnWriter(new, self.cell.uuid, owners)
        self._batch_size = batch_size
        self._is_filled = is_filled
        self.saved = new.load_progress().get(self.cell.uuid)
        self._tracker = ProgressTracker(self.saved or CellProgress(self.cell.uuid, 0, 0, is_complete=False))
        self._rereader = self._new_rereader(self._tracker)
        # How often something could only be found by comparing, and how often that was done.
        self._gaps = 0
        self._compared_gaps = 0
        self._begun_as = self._note_beginning()

    def fill(self, fill_rows: FillRows, on_progress: Callable[[int], None]) -> None:
        if self.saved is not None:
            return
        if self._is_filled:
            # What has changed before that is found by comparing.
            self._tracker.advance_to(self._adapter.published_sequence())
        else:
            result = fill_rows(self._adapter, self._horizon, on_progress)
            self._tracker.advance_to(result.sequence)
            for uuid in result.rejected:
                self._rereader.add(uuid)
        self._tracker.mark_synced()
        # Not searchable yet, which is not needed before all cells are compared.
        self.saved = self._tracker.snapshot()
        self._new.save_progress([self.saved])

    def follow(self) -> None:
        if not self._catch_up(self._tracker, self._rereader):
            # Filling took longer than the changelog is kept: what is missing can only be found by comparing.
            self._tracker.advance_to(self._adapter.published_sequence())
            self._gaps += 1

    def progress(self) -> CellProgress:
        return self._tracker.snapshot()

    def verify(self, on_step: Callable[[], None]) -> None:
        self._copy(on_step, external=True)
        for _ in range(_ATTEMPTS):
            gaps = self._gaps
            result = self._verified(on_step)
            self._compared_gaps = gaps
            if self._gaps == gaps:
                break
        has_other_history = self._begun_as != self._adapter.position().epoch
        if has_other_history or (self._is_filled and not self._has_followed_this_history()):
            # Of a future that the cell lost since, it may have rows that differ in no revision.
            result = self._verified(on_step, contents_at_once=self._batch_size)
        for item_type in INDEXED_ITEMS:
            # They are not in the generations of the index, and compared all the same.
            reconcile_other_items(self._adapter, self._new, item_type, on_step)
        if result.remaining:
            self._refuse([f"{each.uuid}: {each.problem}" for each in result.remaining])
            for each in result.remaining:
                self._rereader.add(each.uuid)
            save_progress(self._new, [self])

    def finish(self) -> None:
        # What is written here may be taken back if something else fails, and then was never written.
        """Raises RebuildError if the cell has forgotten changes too early."""
        tracker = deepcopy(self._tracker)
        rereader = self._new_rereader(tracker)
        if self._gaps != self._compared_gaps or not self._catch_up(tracker, rereader):
            raise RebuildError(f"cell '{self.cell.name}' has forgotten changes too early: start the rebuild again")
        self._copy(ignore, external=True)
        if tracker.unindexed:
            self._refuse(sorted(tracker.unindexed))

    def reached(self) -> int | None:
        return self._adapter.published_sequence()

    def close(self) -> None:
        self._adapter.close()

    def _verified(self, on_step: Callable[[], None], contents_at_once: int | None = None) -> Verification:
        comparison = NativeComparison(
            self._adapter,
            self._new,
            catch_up_timeout_s=_CATCH_UP_TIMEOUT_S,
            extras=self._extras,
            owners=self._owners,
            contents_at_once=contents_at_once,
        )
        return verify(comparison, repair=True, on_progress=lambda _steps, _differences: on_step())

    def _note_beginning(self) -> str | None:
        """The epoch of the cell when the first row was read, perhaps by a rebuild that was cut off."""
        begun: Mapping[str, list[str | None]] = self._current.load_state(BEGUN_AS)
        if self.cell.uuid in begun:
            return begun[self.cell.uuid][0]
        epoch = self._adapter.position().epoch
        self._current.save_state(BEGUN_AS, {self.cell.uuid: [epoch]})
        return epoch

    def _has_followed_this_history(self) -> bool:
        """Whether all that the previous index has is known to have happened in the cell."""
        found = self._current.load_state(HISTORIES).get(self.cell.uuid)
        epoch_history = self._adapter.epoch_history()
        if found is None or found[0] is None:
            return not epoch_history.epochs
        epoch, sequence = found
        return epoch_history.contains(epoch, sequence)

    def _new_rereader(self, tracker: ProgressTracker) -> Rereader:
        read_rows = partial(rows_of, self._adapter)
        writer = ExtraFieldKeeper(self._own, self._extras)
        return Rereader(self.cell.uuid, read_rows, writer, tracker, on_reread=lambda _: None)

    def _catch_up(self, tracker: ProgressTracker, rereader: Rereader) -> bool:
        def read_again(dead: Sequence[tuple[Change, MalformedMessageError]]) -> None:
            # The indexer has put the messages where a person sees them.
            for change, _ in dead:
                if change.revision != NO_REVISION and change.instance_uuid:
                    rereader.add(change.instance_uuid)

        is_done = catch_up(
            self._adapter,
            self._own,
            tracker,
            announcer=Announcers(self.cell).outbox,
            dead_letters=read_again,
            batch_size=self._batch_size,
            on_batch=ignore,
            horizon=self._horizon,
        )
        rereader.work(time.monotonic())
        return is_done

    def _refuse(self, instances: list[str]) -> None:
        """Unless the current index has no more of the cell either."""
        known = self._current.load_progress().get(self.cell.uuid)
        if known is not None and known.is_complete:
            shown = "; ".join(instances[:_SHOWN]) + ("; …" if len(instances) > _SHOWN else "")
            raise RebuildError(
                f"the next index does not take {len(instances)} instances of cell '{self.cell.name}' that the current "
                f"one has, so it was not put in its place: {shown}"
            )
