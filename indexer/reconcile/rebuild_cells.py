"""One cell in a rebuild: copies all its rows into the next index, then every change, until the indexes are switched.

A cell that numbers its changes gives its rows, and its changelog gives the changes since. For any other cell, and for
one that is down, the rebuild copies the documents of the current index.
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
"""The kind of state that has, by cell uuid, the epoch that the previous index followed
(fleetlight.indexer.writing.epoch_history), and a sequence of that epoch which no document in it exceeds."""

BEGUN_AS = "rebuilt histories"
"""The kind of state that has, by cell uuid, the epoch of the cell when the rebuild began to fill the next index."""

FillRows = Callable[[ChangelogAdapter, int, Callable[[int], None]], SyncResult]
"""Writes the rows of a cell that are not forgotten at a horizon into the next index. It calls the function with the
number of rows so far; an error that this raises ends the work."""

# Enough for some rounds of the thread that follows all cells.
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
    """Open a cell for a rebuild into the index `new`.

    unusable: reads documents of the current index if this program cannot read it otherwise; else None. owners: knows
    the cell of each instance. is_filled: the new index was the current one once, and only lacks changes. Raises
    CellUnreachableError if the cell is down and the current index cannot stand in for it.
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
    """Make the writes of these cells searchable by one refresh, then save their progress. Raises what `new` raises."""
    reached = [(cell, progress) for cell in cells if (progress := cell.progress()) is not None]
    moved = [(cell, progress) for cell, progress in reached if progress != cell.saved]
    if moved:
        new.make_searchable()
        new.save_progress([progress for _, progress in moved])
        for cell, progress in moved:
            cell.saved = progress


class RebuiltCell:
    """A cell whose documents a rebuild copies from the current index.

    Methods do not refresh the index: the rebuild does so once for all cells, since a refresh costs as much as some
    thousand rows. saved: the progress of the cell in the new index. Every call raises CellUnreachableError, and what
    the writers raise.
    """

    def __init__(self, cell: Cell, current: IndexWriter, new: IndexWriter, unusable: Generations | None) -> None:
        self.cell = cell
        self._current = current
        self._new = new
        self._unusable = unusable
        # Nothing is purged by a later horizon before the caller's lease on the cell has ended.
        self._horizon = load_horizons(current).get(cell.uuid, 0)
        self.saved: CellProgress | None = None

    def fill(self, fill_rows: FillRows, on_progress: Callable[[int], None]) -> None:
        """Write every row of the cell; continues where it was interrupted."""
        self._copy_all(lambda: on_progress(0))

    def follow(self) -> None:
        """Write the changes since the last call; one thread calls it repeatedly. A copied cell waits for `finish`."""

    def progress(self) -> CellProgress | None:
        """How far `follow` is; None if the cell is copied."""
        return None

    def verify(self, on_step: Callable[[], None]) -> None:
        """Compare, and repair differences, while another thread calls `follow`. Raises RebuildError if some remain."""
        self._copy_all(on_step)

    def finish(self) -> None:
        """Write the last changes, while writes to the current index are paused. Raises RebuildError as `verify`, and if
        the cell has already pruned some of these changes.
        """
        self._copy_all(ignore)

    def reached(self) -> int | None:
        """After `finish`: a sequence that no document of the current index exceeds; None if it is unknown."""
        return None

    def close(self) -> None:
        """Close the adapter of the cell, if any."""

    def _copy_all(self, on_step: Callable[[], None]) -> None:
        for external in (False, True):
            self._copy(on_step, external=external)

    def _copy(self, on_step: Callable[[], None], *, external: bool) -> None:
        """external: copy documents of notifications without a revision; False: those of the cell itself."""
        rejected: Mapping[str, str] = {}
        if self._unusable is None:
            rejected = copy_differing(
                self._current, self._new, self.cell.uuid, horizon=self._horizon, external=external, on_step=on_step
            )
        elif external:  # all other documents are rows of native cells, which write them themselves
            rejected = copy_bare(self._unusable.bare_documents(self.cell.uuid), self._new, self.cell.uuid, on_step)
        if rejected:
            uuid, reason = next(iter(rejected.items()))
            raise RebuildError(
                f"the next index does not take {len(rejected)} documents of cell '{self.cell.name}' that the current "
                f"one has, so it was not put in its place: {uuid}: {reason}"
            )


class FollowedCell(RebuiltCell):
    """A cell that a rebuild reads itself, and follows by its changelog."""

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
        # Of documents that this program cannot read, fields of newer producers are lost until they are sent again.
        self._extras = current if unusable is None else new
        self._own = OwnWriter(new, self.cell.uuid, owners)
        self._batch_size = batch_size
        self._is_filled = is_filled
        self.saved = new.load_progress().get(self.cell.uuid)
        self._tracker = ProgressTracker(self.saved or CellProgress(self.cell.uuid, 0, 0, is_complete=False))
        self._rereader = self._new_rereader(self._tracker)
        # How often changes were pruned before `follow` read them, and how many of these gaps `verify` has covered.
        self._gaps = 0
        self._compared_gaps = 0
        self._begun_as = self._note_beginning()

    def fill(self, fill_rows: FillRows, on_progress: Callable[[int], None]) -> None:
        """Write every row, unless the new index has them: from an interrupted rebuild, or as the previous index."""
        if self.saved is not None:
            return
        if self._is_filled:
            # `verify` finds the changes before that.
            self._tracker.advance_to(self._adapter.published_sequence())
        else:
            result = fill_rows(self._adapter, self._horizon, on_progress)
            self._tracker.advance_to(result.sequence)
            for uuid in result.rejected:
                self._rereader.add(uuid)
        self._tracker.mark_synced()
        # The rows need not be searchable before all cells are compared.
        self.saved = self._tracker.snapshot()
        self._new.save_progress([self.saved])

    def follow(self) -> None:
        if not self._catch_up(self._tracker, self._rereader):
            # Filling took longer than the cell keeps its changelog: only `verify` can find the missing changes.
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
            # The index may have rows of a future that the cell lost since; their revisions may be equal.
            result = self._verified(on_step, contents_at_once=self._batch_size)
        for item_type in INDEXED_ITEMS:
            # Items are no part of a generation of the index; this compares them all the same.
            reconcile_other_items(self._adapter, self._new, item_type, on_step)
        if result.remaining:
            self._refuse([f"{each.uuid}: {each.problem}" for each in result.remaining])
            for each in result.remaining:
                self._rereader.add(each.uuid)
            save_progress(self._new, [self])

    def finish(self) -> None:
        """Raises RebuildError as RebuiltCell. Uses copies, since this progress must not count if another cell fails."""
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
        """The epoch of the cell when a rebuild, perhaps an interrupted one, read the first row."""
        begun: Mapping[str, list[str | None]] = self._current.load_state(BEGUN_AS)
        if self.cell.uuid in begun:
            return begun[self.cell.uuid][0]
        epoch = self._adapter.position().epoch
        self._current.save_state(BEGUN_AS, {self.cell.uuid: [epoch]})
        return epoch

    def _has_followed_this_history(self) -> bool:
        """Whether every document of the previous index is certainly part of the cell's past."""
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
            # The indexer that follows the cell keeps these messages as dead letters.
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
        """Raise RebuildError for rejected instances, unless the current index lacks rows of the cell as well."""
        known = self._current.load_progress().get(self.cell.uuid)
        if known is not None and known.is_complete:
            shown = "; ".join(instances[:_SHOWN]) + ("; …" if len(instances) > _SHOWN else "")
            raise RebuildError(
                f"the next index does not take {len(instances)} instances of cell '{self.cell.name}' that the current "
                f"one has, so it was not put in its place: {shown}"
            )
