"""Retention of deleted instances: how long they stay in the index, and how they leave it.

Each cell has a horizon, saved beside its progress: rows that are forgotten at it (fleetlight.query.retention) need not
be in the index, and lists that may want one ask the cell. A horizon only moves forward, and some time before rows are
removed, so that every reader notices, and no list relies on rows that are being removed.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Event

import structlog

from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.cells.model import Cell
from fleetlight.indexer.backends.base import HORIZONS, IndexWriter
from fleetlight.indexer.errors import IndexerError, LeaseHeldError, StopRequestedError
from fleetlight.indexer.writing.leases import CellLeases
from fleetlight.resources.clock import Clock, system_clock
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

_log = structlog.get_logger(__name__)

_INTERVAL_S = 3600.0
_RETRY_INTERVAL_S = 60.0
LISTS_DELAY_S = 10.0
"""Wait so long before removing documents: a list that began before may still rely on them."""


def removal_delay_s(refresh_interval_s: float) -> float:
    """Seconds from the announcement of a horizon to the removal, if indexers read horizons at this interval."""
    return refresh_interval_s + LISTS_DELAY_S


def load_horizons(writer: IndexWriter) -> Mapping[str, int]:
    """The horizons by cell uuid, in microseconds. Raises what the writer raises."""
    return {cell_uuid: int(horizon) for cell_uuid, horizon in writer.load_state(HORIZONS).items()}


def announce(writer: IndexWriter, cell_uuids: Collection[str], retention_s: float, now: int) -> Mapping[str, int]:
    """Move the horizons of some cells to `retention_s` before `now` (microseconds); returns the new ones.

    A horizon never goes back, even if an operator prolongs the retention: removed rows do not return. Raises what the
    writer raises.
    """
    known = load_horizons(writer)
    wanted = max(0, now - round(retention_s * MICROSECONDS_PER_SECOND))
    horizons = {uuid: max(wanted, known.get(uuid, 0)) for uuid in cell_uuids}
    writer.save_state(HORIZONS, {uuid: horizon for uuid, horizon in horizons.items() if horizon != known.get(uuid)})
    return horizons


def has_forgotten(writer: IndexWriter, cell_uuid: str, horizon: int) -> bool:
    """Whether the index has searchable rows of a cell that are forgotten at `horizon`. Raises what it raises."""

    def count(horizon: int) -> int:
        ranges = [writer.digests(cell_uuid, [""], 1, horizon=horizon, external=external) for external in (False, True)]
        return sum(digest.count for digests in ranges for digest in digests.values())

    return count(0) != count(horizon)


def purge_cell(
    writer: IndexWriter, leases: CellLeases, cell: Cell, horizon: int, on_batch: Callable[[int], None]
) -> int:
    """Remove the forgotten rows of a cell, under its lease for bulk work; returns their number.

    horizon: announced some time ago. If a process with a longer retention announced an earlier one at the same moment,
    that one counts. Raises LeaseHeldError, LeaseLostError, and what writer and `on_batch` raise.
    """
    with leases.bulk(cell) as confirm:
        horizon = min(horizon, load_horizons(writer).get(cell.uuid, 0))

        def between_batches(rows: int) -> None:
            confirm()
            on_batch(rows)

        return writer.purge(cell.uuid, horizon, between_batches)


class Purger:
    """Purges the cells of a fleet once an hour; a purge that failed is logged, and repeated a minute later.

    cells: raises FleetUnreachableError. removal_delay_s: time from the announcement of a horizon to the removal.
    """

    def __init__(
        self,
        cells: Callable[[], Sequence[Cell]],
        writer: IndexWriter,
        leases: CellLeases,
        *,
        retention_s: float,
        removal_delay_s: float,
        interval_s: float = _INTERVAL_S,
        clock: Clock = system_clock,
    ) -> None:
        self._cells = cells
        self._writer = writer
        self._leases = leases
        self._retention_s = retention_s
        self._removal_delay_s = removal_delay_s
        self._interval_s = interval_s
        self._clock = clock

    def run(self, stop: Event) -> None:
        """Purge until `stop` is set."""
        while not stop.is_set():
            stop.wait(self._interval_s if self._purge(stop) else min(self._interval_s, _RETRY_INTERVAL_S))

    def _purge(self, stop: Event) -> bool:
        """Announce horizons, wait, and purge each cell; False if some cell needs another attempt."""
        try:
            # A cell that is not followed has no rows in the index, and needs no horizon.
            followed = self._writer.load_progress().keys()
            cells = [cell for cell in self._cells() if cell.uuid in followed]
            horizons = announce(self._writer, [cell.uuid for cell in cells], self._retention_s, self._clock())
        except (IndexerError, FleetUnreachableError) as error:
            _log.warning("indexer.purge_postponed", reason=str(error))
            return False
        stop.wait(self._removal_delay_s)
        purged = [self._purge_cell(cell, horizons[cell.uuid], stop) for cell in cells]
        return all(purged)

    def _purge_cell(self, cell: Cell, horizon: int, stop: Event) -> bool:
        if stop.is_set():
            return True
        started = time.monotonic()
        try:
            rows = purge_cell(self._writer, self._leases, cell, horizon, _stop_at(stop))
        except StopRequestedError:
            return True
        except LeaseHeldError as error:
            _log.info("indexer.purge_postponed", cell=cell.name, reason=str(error))
            return False
        except (IndexerError, FleetUnreachableError) as error:
            _log.warning("indexer.purge_postponed", cell=cell.name, reason=str(error))
            return False
        if rows:
            _log.info("indexer.purged", cell=cell.name, rows=rows, duration_s=round(time.monotonic() - started, 3))
        return True


def _stop_at(stop: Event) -> Callable[[int], None]:
    def on_batch(_rows: int) -> None:
        if stop.is_set():
            raise StopRequestedError

    return on_batch
