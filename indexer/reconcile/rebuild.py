"""Replaces the physical index by a new one, while lists and changes go on.

The rebuild fills the next index from the cells, then follows their changelogs, while the indexers write live changes to
the current index and know nothing of the next. When the two are equal, it pauses writes to the current index for a
moment, copies the last changes, and switches in one step. So no indexer has to cooperate, and one that hangs loses no
change.

A rebuild that was interrupted at any point continues there when it is started again.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from threading import Event
from typing import Protocol

from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.model import Cell, ChangelogAdapter
from fleetlight.indexer.backends.base import EPOCHS, Generations, IndexWriter
from fleetlight.indexer.errors import IndexerError, IndexUnavailableError, RebuildError
from fleetlight.indexer.reconcile.fill import CellRows, SyncResult, sync
from fleetlight.indexer.reconcile.rebuild_cells import (
    BEGUN_AS,
    HISTORIES,
    FillRows,
    RebuiltCell,
    open_cell,
    save_progress,
)
from fleetlight.indexer.writing.checkpoints import FOR_REBUILD, Checkpoints, forget_checkpoints
from fleetlight.indexer.writing.kept_extras import keeping_extras
from fleetlight.indexer.writing.leases import CellLeases
from fleetlight.indexer.writing.ownership import KnowsOwners
from fleetlight.indexer.writing.searchable_meanwhile import searchable_meanwhile
from fleetlight.indexer.writing.throttle import Throttle

_KIND, _NAME = "rebuild", "next"
_FOLLOW_INTERVAL_S = 0.2
_ATTEMPTS = 5
# How long to wait for a process that works on a cell, or on the index. Work that an indexer starts itself ends soon.
_LEASE_TIMEOUT_S = 10


class RebuildPhase(StrEnum):
    """Phases of a rebuild; the values are printed."""

    FILLING = "filling the next index"
    CATCHING_UP = "bringing the index that was kept up to date"
    VERIFYING = "comparing it with the cells"
    SWITCHING = "putting it in the place of the current one"


class RebuildObserver(Protocol):
    """Receives the progress of a rebuild. Calls may come from several threads."""

    def on_step(self) -> None:
        """Called often, but not during the switch; an error that it raises ends the rebuild, which can be restarted."""

    def on_phase(self, phase: RebuildPhase) -> None:
        """Called when a phase begins."""

    def on_rows(self, cell: Cell, rows: int) -> None:
        """Called with the number of rows of the cell in the next index, also if it has not grown."""

    def on_notice(self, text: str) -> None:
        """Called with a sentence for the operator."""


@dataclass(frozen=True, slots=True)
class RebuildParts:
    """The parts of a rebuild.

    cells: returns every cell of the fleet. current: the index as all other processes see it. owners: knows the cell of
    each instance. fill_rows: writes rows into the next index; None for `filling_rows`.
    """

    cells: Callable[[], Sequence[Cell]]
    open_adapter: Callable[[Cell], ChangelogAdapter]
    current: IndexWriter
    generations: Generations
    leases: CellLeases
    owners: KnowsOwners
    pace: Throttle
    batch_size: int
    parallel: int
    fill_rows: FillRows | None = None


def rebuild_index(parts: RebuildParts, watcher: RebuildObserver, *, back: bool) -> None:
    """Rebuild the index, or continue an interrupted rebuild; the current index is kept as the previous one.

    back: use the previous index, which only lacks later changes, instead of a new one.
    Raises RebuildError, RebuildRunningError, LeaseHeldError, LeaseLostError, CellUnreachableError,
    FleetUnreachableError, and what the index raises. Then the current index stays in place.
    """
    with parts.leases.rebuild(deadline_s=_LEASE_TIMEOUT_S) as confirm:
        _begin(parts, back)
        with closing(parts.generations.open_next()) as new:
            _Rebuild(parts, new, watcher, confirm, back).run()


def filling_rows(parts: RebuildParts, new: IndexWriter) -> FillRows:
    """A function that writes rows into the next index `new` in this process, and keeps fields that no row has."""
    # Of documents that this program cannot read, fields of newer producers are lost until they are sent again.
    known = new if parts.generations.is_unusable() else parts.current
    # One writer for all cells: each query and refresh costs as much as some thousand rows.
    writer = keeping_extras(new, known, known)

    def fill(adapter: ChangelogAdapter, horizon: int, on_progress: Callable[[int], None]) -> SyncResult:
        source = CellRows(adapter, batch_size=parts.batch_size, spend=parts.pace.spend, horizon=horizon)
        checkpoints = Checkpoints(new, adapter.cell.uuid, FOR_REBUILD)
        return sync(source, writer, checkpoints=checkpoints, on_progress=on_progress)

    return fill


def abandon_rebuild(parts: RebuildParts) -> bool:
    """Drop the next index; False if there is none. Raises RebuildRunningError, and what the index raises."""
    with parts.leases.rebuild(deadline_s=_LEASE_TIMEOUT_S):
        there_was = parts.generations.has_next()
        parts.generations.drop_next()
        forget_checkpoints(parts.current, source=FOR_REBUILD)
        return there_was


def drop_previous(parts: RebuildParts) -> bool:
    """Drop the previous index; False if there is none. Raises as `abandon_rebuild`."""
    with parts.leases.rebuild(deadline_s=_LEASE_TIMEOUT_S):
        there_was = parts.generations.has_previous()
        parts.generations.drop_previous()
        return there_was


def _begin(parts: RebuildParts, back: bool) -> None:
    generations = parts.generations
    if generations.has_next():
        begun = parts.current.load_state(_KIND).get(_NAME)
        if begun is None:
            # The state of that rebuild is lost, and with it how far the next index is.
            generations.drop_next()
        elif begun != {"back": back}:
            other, this = ("a way back", "a rebuild") if not back else ("a rebuild", "a way back")
            raise RebuildError(
                f"{other} was begun and has not ended, so {this} cannot begin: go on with it or abandon it"
            )
        else:
            return
    if back and not generations.has_previous():
        raise RebuildError("there is no previous index to go back to")
    forget_checkpoints(parts.current, source=FOR_REBUILD)
    parts.current.save_state(BEGUN_AS, dict.fromkeys(parts.current.load_state(BEGUN_AS)))
    parts.current.save_state(_KIND, {_NAME: {"back": back}})
    if back:
        generations.take_previous_as_next()
    else:
        generations.create_next()


class _CellsChangedError(Exception):
    """A cell has joined the fleet since the rebuild looked."""


class _Rebuild:
    def __init__(
        self, parts: RebuildParts, new: IndexWriter, watcher: RebuildObserver, confirm: Callable[[], None], back: bool
    ) -> None:
        self._parts = parts
        self._new = new
        self._watcher = watcher
        self._confirms = [confirm]
        self._back = back
        self._unusable = parts.generations if parts.generations.is_unusable() else None
        self._cells: dict[str, RebuiltCell] = {}
        self._reached: dict[str, int] = {}

    def run(self) -> None:
        with ExitStack() as stack:
            for _ in range(_ATTEMPTS):
                self._add_cells(stack)
                try:
                    self._verify()
                    self._watcher.on_phase(RebuildPhase.SWITCHING)
                    self._switch()
                except _CellsChangedError:
                    continue
                return
        raise RebuildError("cells keep joining the fleet: start the rebuild again when that is over")

    def _add_cells(self, stack: ExitStack) -> None:
        """Fill the cells that joined the fleet since the last call."""
        opened = [self._open(cell, stack) for cell in self._missing_cells()]
        self._watcher.on_phase(RebuildPhase.CATCHING_UP if self._back else RebuildPhase.FILLING)
        self._fill(opened)
        self._new.make_searchable()
        self._cells |= {cell.cell.uuid: cell for cell in opened}

    def _open(self, cell: Cell, stack: ExitStack) -> RebuiltCell:
        parts = self._parts
        # No other process removes, syncs or verifies the cell meanwhile.
        self._confirms.append(stack.enter_context(parts.leases.bulk(cell, deadline_s=_LEASE_TIMEOUT_S)))
        opened = open_cell(
            cell,
            parts.current,
            self._new,
            unusable=self._unusable,
            open_adapter=parts.open_adapter,
            owners=parts.owners,
            batch_size=parts.batch_size,
            is_filled=self._back,
            on_notice=self._watcher.on_notice,
        )
        return stack.enter_context(closing(opened))

    def _fill(self, cells: Sequence[RebuiltCell]) -> None:
        """Fill several cells at once; if one fails, the others stop."""
        parts = self._parts
        fill_rows = parts.fill_rows or filling_rows(parts, self._new)
        stop = Event()

        def fill(cell: RebuiltCell) -> None:
            def on_progress(rows: int) -> None:
                if stop.is_set():
                    raise RebuildError("another cell could not be filled")
                self._confirm()
                self._watcher.on_rows(cell.cell, rows)
                self._watcher.on_step()

            try:
                cell.fill(fill_rows, on_progress)
            except BaseException:
                stop.set()
                raise

        with (
            searchable_meanwhile(self._new, parts.pace),
            ThreadPoolExecutor(parts.parallel, thread_name_prefix="rebuild") as threads,
        ):
            filling = [threads.submit(fill, cell) for cell in cells]
        # A RebuildError of a cell that stopped has another cell's failure as its reason.
        failures = [error for future in filling if (error := future.exception())]
        if failures:
            raise next((error for error in failures if not isinstance(error, RebuildError)), failures[0])

    def _verify(self) -> None:
        self._watcher.on_phase(RebuildPhase.VERIFYING)
        with self._following() as check:

            def on_step() -> None:
                self._confirm()
                self._watcher.on_step()
                check()

            self._make_searchable()
            for cell in self._cells.values():
                cell.verify(on_step)
                on_step()

    def _switch(self) -> None:
        current = self._parts.current
        epochs = current.load_state(EPOCHS)
        # If this is interrupted, nothing is known of the index that will be the previous one.
        current.save_state(HISTORIES, dict.fromkeys(current.load_state(HISTORIES)))
        self._parts.generations.switch(self._finish)
        # The switch is done; without these histories a way back only takes longer.
        with suppress(IndexerError):
            histories = {
                uuid: [epoch, self._reached[uuid]]
                for uuid, epoch in current.load_state(EPOCHS).items()
                if epoch == epochs.get(uuid) and uuid in self._reached
            }
            current.save_state(HISTORIES, histories)

    def _finish(self) -> None:
        """Bring the next index up to date, while writes to the current one are paused."""
        self._make_searchable()
        for uuid, cell in self._cells.items():
            cell.finish()
            if (reached := cell.reached()) is not None:
                self._reached[uuid] = reached
        self._new.make_searchable()
        if self._missing_cells():
            raise _CellsChangedError
        # A lease that is held now was held from the beginning, so no other process has worked on a cell.
        self._confirm()

    def _make_searchable(self) -> None:
        """Refresh both indexes, since copies read one and compare it with the other."""
        self._parts.current.make_searchable()
        self._new.make_searchable()

    def _missing_cells(self) -> list[Cell]:
        return [cell for cell in self._parts.cells() if cell.uuid not in self._cells]

    def _confirm(self) -> None:
        for confirm in self._confirms:
            confirm()

    @contextmanager
    def _following(self) -> Iterator[Callable[[], None]]:
        """Follow all cells in a thread. Yields a function that raises the error with which the thread ended, if any."""
        stop = Event()

        def follow_all() -> None:
            while not stop.wait(_FOLLOW_INTERVAL_S):
                cells = self._cells.values()
                steps: list[Callable[[], None]] = [cell.follow for cell in cells]
                steps.append(partial(save_progress, self._new, cells))
                for step in steps:
                    try:
                        step()
                    except (CellUnreachableError, IndexUnavailableError) as error:
                        self._watcher.on_notice(str(error))
                        stop.wait(_FOLLOW_INTERVAL_S)

        with ThreadPoolExecutor(1, thread_name_prefix="rebuild-follow") as threads:
            following = threads.submit(follow_all)

            def check() -> None:
                if following.done():
                    following.result()

            try:
                yield check
            finally:
                stop.set()
        following.result()
