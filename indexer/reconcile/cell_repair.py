"""Repairs the index of one cell of any kind by the one procedure (fleetlight.indexer.reconcile.reconcile), for sealer
and audit, which find that it may differ.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from threading import Event

import structlog

from fleetlight.cells.errors import CellUnreachableError, FleetUnreachableError
from fleetlight.cells.model import Cell, CellAdapter, ChangelogAdapter
from fleetlight.indexer.backends.base import IndexWriter
from fleetlight.indexer.errors import IndexerError, StopRequestedError
from fleetlight.indexer.reconcile.announced import altered_announced, reconcile_announced, remove_altered
from fleetlight.indexer.reconcile.differences import Verification
from fleetlight.indexer.reconcile.external_cell import ExternalComparison
from fleetlight.indexer.reconcile.native_cell import NativeComparison
from fleetlight.indexer.reconcile.other_items import OtherItemComparison, reconcile_other_items
from fleetlight.indexer.reconcile.reconcile import verify
from fleetlight.indexer.reconcile.retention import load_horizons
from fleetlight.indexer.writing.journaling import CellJournal, JournalStore
from fleetlight.indexer.writing.leases import CellLeases
from fleetlight.indexer.writing.ownership import KnowsOwners, OwnWriter
from fleetlight.indexer.writing.rereading import rows_of
from fleetlight.resources.clock import Clock
from fleetlight.resources.indexed_items import INDEXED_ITEMS

_log = structlog.get_logger(__name__)

_ROWS_AT_ONCE = 200
_CATCH_UP_S = 5.0
# Shorter, since lists still rely on the index.
_SHORT_CATCH_UP_S = 1.0
# Time for a sync of the cell to end.
_LEASE_WAIT_S = 5.0
_PAUSE_S = 0.2
AWAY = (CellUnreachableError, FleetUnreachableError, IndexerError)
"""Errors if a cell, the fleet database or the index does not answer, or another process works on the cell."""

OnStep = Callable[..., None]


@dataclass(frozen=True, slots=True)
class RepairedCell:
    """repaired: number of instances and items that differed. wrong: instances that still differ."""

    repaired: int
    wrong: frozenset[str]


@dataclass(frozen=True, slots=True)
class CellRepair:
    """Compares and repairs cells. cells: returns all cells; raises FleetUnreachableError.

    open_adapter, for cells that number their changes, and open_external, for all others, raise CellUnreachableError.
    leases: repairs hold the one for bulk work.
    """

    cells: Callable[[], Sequence[Cell]]
    open_adapter: Callable[[Cell], ChangelogAdapter]
    open_external: Callable[[Cell], CellAdapter]
    writer: IndexWriter
    leases: CellLeases
    owners: KnowsOwners
    journals: JournalStore
    clock: Clock

    def repair(self, cell: Cell, uuids: frozenset[str] | None, stop: Event) -> RepairedCell | None:
        """Make the index equal to a cell; returns None if that is impossible now. Raises StopRequestedError.

        uuids: instances that may differ although their revision is right; they are compared by content. None: all may.
        Everything else is compared by digests of revisions. Lists ask the cell while some of it stays wrong.
        """
        try:
            with self.leases.bulk(cell, deadline_s=_LEASE_WAIT_S) as confirm:
                repair = self._repair_numbered if cell.can.numbers_changes else self._repair_other
                return repair(cell, uuids, partial(_go_on, stop, confirm))
        except StopRequestedError:
            raise
        except AWAY as error:
            _log.warning("indexer.repair_postponed", cell=cell.name, reason=str(error))
            return None

    def is_right(self, cell: Cell, ids: frozenset[str]) -> bool:
        """Whether documents of instances or items agree with the cell. Raises CellUnreachableError."""
        items = frozenset(each for each in ids if ":" in each)
        uuids = ids - items
        if not cell.can.numbers_changes:
            with closing(self.open_external(cell)) as external:
                external_comparison = ExternalComparison(external, self.writer, batch_size=_ROWS_AT_ONCE)
                return not items and not external_comparison.differing_among(uuids)
        if altered_announced(cell.uuid, self.writer, self.journals.announced, uuids):
            return False
        with closing(self.open_adapter(cell)) as adapter:
            comparison = NativeComparison(adapter, self.writer, catch_up_timeout_s=_SHORT_CATCH_UP_S)
            return not comparison.differing_among(uuids) and not (
                items and any(OtherItemComparison(adapter, self.writer, each).differing() for each in INDEXED_ITEMS)
            )

    def _repair_numbered(self, cell: Cell, uuids: frozenset[str] | None, on_step: OnStep) -> RepairedCell:
        def pause(seconds: float) -> None:
            until_s = time.monotonic() + seconds
            while time.monotonic() < until_s:
                time.sleep(_PAUSE_S)
                on_step()

        with closing(self.open_adapter(cell)) as adapter:
            comparison = NativeComparison(
                adapter,
                self.writer,
                catch_up_timeout_s=_CATCH_UP_S,
                owners=self.owners,
                contents_at_once=_ROWS_AT_ONCE if uuids is None else None,
                first=uuids or (),
                pause=pause,
            )
            found = verify(comparison, repair=True, on_progress=on_step)
            items = [reconcile_other_items(adapter, self.writer, item_type, on_step) for item_type in INDEXED_ITEMS]
            announced = self._repair_announced(cell, adapter, uuids, on_step)
        return RepairedCell(sum(len(each.differences) for each in (found, *items)) + announced, _wrong(found))

    def _repair_announced(
        self, cell: Cell, adapter: ChangelogAdapter, uuids: frozenset[str] | None, on_step: OnStep
    ) -> int:
        store = self.journals.announced
        remove_altered(cell.uuid, self.writer, store, uuids)
        return reconcile_announced(
            cell.uuid,
            self.writer,
            OwnWriter(self.writer, cell.uuid, self.owners),
            store,
            partial(rows_of, adapter),
            horizon=load_horizons(self.writer).get(cell.uuid, 0),
            on_step=on_step,
        )

    def _repair_other(self, cell: Cell, _uuids: frozenset[str] | None, on_step: OnStep) -> RepairedCell:
        journal = CellJournal(cell.uuid, self.journals, self.writer, clock=self.clock)
        with closing(self.open_external(cell)) as adapter:
            comparison = ExternalComparison(
                adapter, self.writer, batch_size=_ROWS_AT_ONCE, owners=self.owners, journal=journal
            )
            found = verify(comparison, repair=True, on_progress=on_step)
        return RepairedCell(len(found.differences), _wrong(found))


def _go_on(stop: Event, confirm: Callable[[], None], *_progress: int) -> None:
    """Between two requests: raises StopRequestedError if told to stop, and LeaseLostError."""
    if stop.is_set():
        raise StopRequestedError
    confirm()


def _wrong(found: Verification) -> frozenset[str]:
    return frozenset(difference.uuid for difference in found.differences if difference.is_wrong)
