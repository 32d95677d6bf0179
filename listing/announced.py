"""Instances that only notifications announced, in lists that read cells live.

Such instances have no row in a cell; the fleet database keeps their newest states
(fleetlight.cells.fleet.announced_instances), so lists show them on every route. A row of a cell takes precedence.
"""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from fleetlight.cells.errors import CellUnreachableError, FleetUnreachableError, UnknownCellError
from fleetlight.cells.fleet.announced_instances import AnnouncedPage
from fleetlight.cells.model import Cell, InstanceRow
from fleetlight.listing.merge_sort import Row
from fleetlight.listing.sources import CellReader, LiveRow, ask_fleet
from fleetlight.query.filters import Eq, In
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import INSTANCES_BY_UUID
from fleetlight.views.projection import Projection


class AnnouncedStore(Protocol):
    """The part of AnnouncedInstances (cells.fleet) that lists use; each call raises FleetUnreachableError."""

    def read_page(self, cell_uuids: Collection[str], request: PageRequest) -> AnnouncedPage: ...

    def cells_with_some(self, cell_uuids: Collection[str]) -> Collection[str]: ...


class _NoAnnounced:
    def read_page(self, cell_uuids: Collection[str], request: PageRequest) -> AnnouncedPage:
        return AnnouncedPage()

    def cells_with_some(self, cell_uuids: Collection[str]) -> Collection[str]:
        return ()


NO_ANNOUNCED: AnnouncedStore = _NoAnnounced()


class AnnouncedRows:
    """The announced instances of some cells that match a request, page after page.

    cells: the cells that the list reads live; only cells that number their changes have announced instances.
    timeout_s: time limit of each query to the fleet database, and of each query to a cell.
    lacking: by cell uuid, the reason for which some of its announced instances are missing.
    """

    def __init__(
        self, store: AnnouncedStore, reader: CellReader, cells: Collection[Cell], request: PageRequest, timeout_s: float
    ) -> None:
        self._store = store
        self._reader = reader
        self._cells = {cell.uuid for cell in cells if cell.can.numbers_changes}
        self._request = request
        self._timeout_s = timeout_s
        self.lacking: dict[str, str] = {}

    async def next_rows(self) -> Sequence[InstanceRow]:
        """Return the next rows in order; an empty sequence at the end."""
        while self._cells:
            page = await self._next_page()
            if rows := await self._without_rows_of_cells(page):
                return rows
        return ()

    async def _next_page(self) -> Sequence[InstanceRow]:
        try:
            page = await ask_fleet(partial(self._store.read_page, self._cells, self._request), self._timeout_s)
        except FleetUnreachableError as error:
            self._end(self._cells, f"the fleet database, which has what was only announced, is away: {error.reason}")
            return ()
        self.lacking |= dict.fromkeys(page.cut_off, "more was announced of it than is kept")
        if len(page.rows) < self._request.limit:
            self._cells = set()
        else:
            self._request = replace(self._request, after=self._request.order.values(page.rows[-1].record))
        return page.rows

    async def _without_rows_of_cells(self, rows: Sequence[InstanceRow]) -> Sequence[InstanceRow]:
        """Return the announced rows for which the cell has no row of its own."""
        announced: dict[str, list[str]] = {}
        for row in rows:
            announced.setdefault(row.cell_uuid, []).append(row.uuid)
        known = await asyncio.gather(*(self._known_to_cell(cell, uuids) for cell, uuids in announced.items()))
        uuids = set().union(*known)
        return [row for row in rows if row.uuid not in uuids]

    async def _known_to_cell(self, cell_uuid: str, uuids: Sequence[str]) -> Collection[str]:
        """Return the uuids for which the cell has rows; all of them if the cell does not answer."""
        these = PageRequest(In("uuid", tuple(uuids)), INSTANCES_BY_UUID, len(uuids), fields=("uuid",))
        try:
            return {row.uuid for row in await self._reader.read_page(cell_uuid, these, self._timeout_s)}
        except (CellUnreachableError, UnknownCellError) as error:
            self._end({cell_uuid}, str(error))
            return uuids

    def _end(self, cell_uuids: Collection[str], reason: str) -> None:
        self.lacking |= dict.fromkeys(cell_uuids, reason)
        self._cells = self._cells - set(cell_uuids)


class AnnouncedSource:
    """AnnouncedRows as a source of a merge (fleetlight.listing.merge_sort.Source)."""

    def __init__(self, rows: AnnouncedRows, request: PageRequest, projection: Projection) -> None:
        self._rows = rows
        self._order = request.order
        self._projection = projection

    @property
    def lacking(self) -> Mapping[str, str]:
        """See AnnouncedRows."""
        return self._rows.lacking

    async def next_batch(self) -> Sequence[Row]:
        """See Source."""
        rows = await self._rows.next_rows()
        return [LiveRow(row, self._order.values(row.record), self._projection, self._leave_out) for row in rows]

    def _leave_out(self, row: InstanceRow) -> bytes:
        self._rows.lacking[row.cell_uuid] = f"what was announced of instance {row.uuid} is damaged"
        return b""


async def find_announced(
    store: AnnouncedStore, cells: Collection[Cell], uuid: str, timeout_s: float
) -> InstanceRow | None:
    """Find the announced state of the instance `uuid` in `cells`. Raises FleetUnreachableError."""
    uuids = {cell.uuid for cell in cells if cell.can.numbers_changes}
    request = PageRequest(Eq("uuid", uuid), INSTANCES_BY_UUID, 1)
    found = await ask_fleet(partial(store.read_page, uuids, request), timeout_s) if uuids else AnnouncedPage()
    return found.rows[0] if found.rows else None


async def only_known_now(store: AnnouncedStore, cells: Collection[Cell], timeout_s: float) -> Mapping[str, str]:
    """Return by cell uuid the reason for which a list of the past may lack instances of that cell."""
    uuids = [cell.uuid for cell in cells if cell.can.numbers_changes]
    try:
        having = await ask_fleet(partial(store.cells_with_some, uuids), timeout_s)
    except FleetUnreachableError as error:
        return dict.fromkeys(uuids, f"the fleet database, which has what was only announced, is away: {error}")
    return dict.fromkeys(having, "what was only announced of its instances is known as of now alone")
