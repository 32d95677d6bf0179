"""The sources of a list: the index restricted to some cells, and one live cell, with the index as its substitute.

All sources deliver rows in the same order, filtered by the same tree (docs/architecture.md, "One merge, many sources").
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from math import ceil, sqrt
from typing import Any, Protocol, TypeVar

import structlog

from fleetlight.cells.daemon_threads import DaemonThreads
from fleetlight.cells.errors import (
    CellHangsError,
    CellUnreachableError,
    FleetUnreachableError,
    UnknownCellError,
    UnreadableRowError,
)
from fleetlight.cells.model import Cell, CellAdapter, InstanceRow, PartialRows
from fleetlight.listing.merge_sort import Row, Source
from fleetlight.query.page import PageRequest
from fleetlight.resources.kept_errors import without_frames
from fleetlight.views.projection import Projection

T = TypeVar("T")
CellFailure = CellUnreachableError | UnknownCellError
"""Why a cell could not answer."""

_log = structlog.get_logger(__name__)


class CellReader(Protocol):
    """The part of `fleetlight.cells.fan_out.cell_pool.CellPool` that lists use; see there for the errors."""

    async def cells(self) -> tuple[Cell, ...]: ...

    async def knows_all_cells(self, cell_uuids: Collection[str] = ()) -> bool: ...

    async def read_page(self, cell_uuid: str, request: PageRequest, timeout_s: float) -> Sequence[InstanceRow]: ...

    async def find(self, cell_uuid: str, uuid: str, timeout_s: float) -> InstanceRow | None: ...

    async def ask(self, cell_uuid: str, query: Callable[[CellAdapter], T], timeout_s: float) -> T: ...

    def hanging(self) -> Collection[str]: ...


class LiveRow:
    """A row of a cell. It renders its item as the indexer does, and only when the page shows it.

    on_damage: makes the item of a row that cannot be rendered.
    """

    __slots__ = ("_on_damage", "_projection", "_row", "position")

    def __init__(
        self,
        row: InstanceRow,
        position: tuple[Any, ...],
        projection: Projection,
        on_damage: Callable[[InstanceRow], bytes],
    ) -> None:
        self._row = row
        self._projection = projection
        self._on_damage = on_damage
        self.position = position

    @property
    def item(self) -> bytes:
        """See Row."""
        try:
            return rendered(self._row, self._projection)
        except UnreadableRowError:
            return self._on_damage(self._row)


def rendered(row: InstanceRow, projection: Projection) -> bytes:
    """Render the item of a row. Raises UnreadableRowError for a damaged row, and logs it the first time."""
    try:
        return projection.render_record(row.record, row.cell_uuid, row.revision)
    except Exception as error:  # any error here is about this row
        raise damaged_row(row, error) from error


def damaged_row(row: InstanceRow, error: Exception) -> UnreadableRowError:
    """Make the error for a row that cannot be rendered because of `error`, and log the row."""
    reason = error.reason if isinstance(error, UnreadableRowError) else f"{type(error).__name__}: {error}"
    _log_damage(row.cell_uuid, row.uuid, reason)
    return UnreadableRowError(row.cell_uuid, row.uuid, reason)


@lru_cache(maxsize=4096)
def _log_damage(cell: str, instance: str, reason: str) -> None:
    """Log each damaged row once, since every list meets it again."""
    _log.error("row_damaged", cell=cell, instance=instance, reason=reason)


def log_failure(cell_uuid: str, error: CellFailure) -> None:
    """Log that a cell failed, unless it hangs: the pool has logged that already."""
    if not isinstance(error, CellHangsError):
        _log.warning("cell_unreachable", cell=cell_uuid, reason=str(error))


class RowsMovedError(Exception):
    """Rows of a cell moved in the order between two batches, so both batches may have missed a row."""


class _Batches(ABC):
    """Reads batch after batch, each after the last row of the one before.

    request: the page; no batch asks for more rows than the page still lacks.
    is_checked: rows may move during the read, so each further batch reads the earlier rows again. Raises
        RowsMovedError when these have changed.
    """

    def __init__(self, request: PageRequest, batch_size: int, *, is_checked: bool) -> None:
        self._request = self._whole = request
        self._batch_size = batch_size
        self._is_checked = is_checked
        self._delivered: list[str] = []
        self._lacking = request.limit
        self._is_exhausted = False

    @abstractmethod
    async def _read(self, request: PageRequest) -> Sequence[Row]:
        """Read one batch; fewer rows than the limit of the request mean that there are no more."""

    @property
    def rest(self) -> PageRequest:
        """The request for the rows that were not delivered yet."""
        return self._request

    async def next_batch(self) -> Sequence[Row]:
        """See Source. Raises RowsMovedError if `is_checked`."""
        if self._is_exhausted:
            return ()
        # A merge that asks for more than the limit has dropped duplicates.
        wanted = min(self._batch_size, self._lacking) if self._lacking > 0 else self._batch_size
        rows = await (self._read_checked(wanted) if self._is_checked else self._read_next(wanted))
        self._lacking -= len(rows)
        if rows:
            self._request = replace(self._request, after=rows[-1].position)
        return rows

    async def _read_next(self, wanted: int) -> Sequence[Row]:
        rows = await self._read(replace(self._request, limit=wanted))
        self._is_exhausted = len(rows) < wanted
        return rows

    async def _read_checked(self, wanted: int) -> Sequence[Row]:
        known = len(self._delivered)
        # One statement reads all rows as of one moment.
        rows = await self._read(replace(self._whole, limit=known + wanted))
        uuids = [row.position[-1] for row in rows]
        if uuids[:known] != self._delivered:
            raise RowsMovedError
        self._is_exhausted = len(rows) < known + wanted
        self._delivered = uuids
        return rows[known:]


class _Begun:
    """A source whose first batch is read already."""

    def __init__(self, first: Sequence[Row], source: Source) -> None:
        self._first: Sequence[Row] | None = first
        self._source = source

    async def next_batch(self) -> Sequence[Row]:
        """See Source."""
        first, self._first = self._first, None
        return await self._source.next_batch() if first is None else first


async def begun(source: Source) -> Source:
    """Read the first batch now; returns a source of all batches."""
    return _Begun(await source.next_batch(), source)


class BatchedSource(_Batches):
    """A source that reads its batches by `read`."""

    def __init__(
        self,
        read: Callable[[PageRequest], Awaitable[Sequence[Row]]],
        request: PageRequest,
        batch_size: int,
        *,
        is_checked: bool = False,
    ) -> None:
        super().__init__(request, batch_size, is_checked=is_checked)
        self._answer = read

    async def _read(self, request: PageRequest) -> Sequence[Row]:
        return await self._answer(request)


class CellSource(_Batches):
    """One live cell. When the cell fails, `substitute` delivers the remaining rows, if there is one.

    deadline_s: time that the page waits for this cell in all; then the cell counts as unreachable. Time spent waiting
        for other cells does not count, so that a hanging cell does not take healthy ones with it.
    damaged: number of rows that the page shows like those of a down cell, or lacks (`left_out`).
    failure: why the cell did not deliver all rows itself; None if it did.
    lacks: see fleetlight.listing.answer.LiveCell.
    may_start_over: whether the page begins anew on RowsMovedError; otherwise the cell counts as failed.
    """

    def __init__(
        self,
        cell_uuid: str,
        reader: CellReader,
        request: PageRequest,
        projection: Projection,
        *,
        batch_size: int,
        deadline_s: float,
        substitute: Callable[[PageRequest], Source] | None,
        may_start_over: bool = True,
    ) -> None:
        super().__init__(
            replace(request, fields=projection.fields), batch_size, is_checked=not request.order.keeps_places
        )
        self.cell_uuid = cell_uuid
        self.failure: CellFailure | None = None
        self.lacks: str | None = None
        self.damaged = self.left_out = 0
        self._reader = reader
        self._projection = projection
        self._left_s = deadline_s
        self._may_start_over = may_start_over
        self._open_substitute = substitute
        self._substitute: Source | None = None

    @property
    def has_substitute(self) -> bool:
        """Whether the index delivers the remaining rows."""
        return self._substitute is not None

    async def next_batch(self) -> Sequence[Row]:
        """See Source. Raises RowsMovedError if the page may start over."""
        if self.failure is None:
            try:
                return await super().next_batch()
            except (CellUnreachableError, UnknownCellError) as error:
                self.fail(error)
            except RowsMovedError:
                if self._may_start_over:
                    raise
                self.fail(CellUnreachableError(self.cell_uuid, "its rows move faster than they can be read"))
        return () if self._substitute is None else await self._substitute.next_batch()

    def fail(self, error: CellFailure) -> None:
        """Treat the cell as unreachable from now on, and open its substitute."""
        log_failure(self.cell_uuid, error)
        self.failure = without_frames(error)
        if self._open_substitute is not None:
            self._substitute = self._open_substitute(self.rest)

    async def _read(self, request: PageRequest) -> Sequence[Row]:
        if self._left_s <= 0:
            raise CellUnreachableError(self.cell_uuid, "its time for this request is used up")
        began = time.monotonic()
        rows = await self._reader.read_page(self.cell_uuid, request, self._left_s)
        self._left_s -= time.monotonic() - began
        if isinstance(rows, PartialRows):
            self.lacks = rows.lacks
        return [LiveRow(row, request.order.values(row.record), self._projection, self._render_damaged) for row in rows]

    def _render_damaged(self, row: InstanceRow) -> bytes:
        self.damaged += 1
        if self._projection.shows_damaged:
            with suppress(UnreadableRowError):
                return self._projection.render_damaged(row.record)
        self.left_out += 1
        return b""


# Shared by all requests of a process: a fleet database that hangs blocks at most so many threads.
_FLEET_THREADS = DaemonThreads(32, "fleet")


async def ask_fleet(query: Callable[[], T], timeout_s: float) -> T:
    """Run a blocking `query` to the fleet database in a thread. Raises FleetUnreachableError, also at the timeout."""
    try:
        async with asyncio.timeout(timeout_s):
            return await _FLEET_THREADS.run(query)
    except TimeoutError:
        raise FleetUnreachableError(f"no answer within {timeout_s:g} s") from None


def live_batch_size(limit: int, cells: int) -> int:
    """Return the number of rows to read from one cell at once for a page of `limit` over `cells` cells.

    The rows of a page fall on the cells about as in a Poisson distribution, so two standard deviations above the mean
    spare nearly every cell a second batch, and cost little otherwise.
    """
    mean = limit / max(cells, 1)  # a new fleet has no cells
    return min(limit, ceil(mean + 2 * sqrt(mean)))
