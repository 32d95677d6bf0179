"""The list of instances as of a past moment, merged from the cells' rows at that moment.

The index holds only the present, so the cells answer: a cell that keeps the previous values of its changes undoes them
(fleetlight.cells.model.PastAdapter). The page names the cells that are down, and lacks their rows.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from fleetlight.cells.errors import CellUnreachableError, PastNotKeptError, UnknownCellError
from fleetlight.cells.model import Cell, CellAdapter, InstanceRow, PastAdapter
from fleetlight.listing.announced import NO_ANNOUNCED, AnnouncedStore, only_known_now
from fleetlight.listing.answer import CellAnswer, Consistency, Page, ReadOptions, Route
from fleetlight.listing.explanation import Observer
from fleetlight.listing.index_gateway import IndexGateway
from fleetlight.listing.list_instances import InstanceLister
from fleetlight.listing.settings import SearchSettings
from fleetlight.listing.sources import CellFailure, CellReader, log_failure
from fleetlight.query.filters import Eq
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import INSTANCES_BY_UUID
from fleetlight.resources.clock import Clock, system_clock
from fleetlight.views.projection import Projection

T = TypeVar("T")


class PastLister:
    """Lists instances as of a past moment. Moments and `clock` are microseconds since the epoch.

    announced: the instances that only notifications announced; only their present state is known.
    """

    def __init__(
        self,
        reader: CellReader,
        settings: SearchSettings,
        announced: AnnouncedStore = NO_ANNOUNCED,
        *,
        clock: Clock = system_clock,
    ) -> None:
        self._reader = reader
        self._settings = settings
        self._announced = announced
        self._clock = clock

    def is_to_come(self, moment: int) -> bool:
        """Whether the moment is in the future."""
        return moment > self._clock()

    async def require(self, moment: int, only: Collection[str] | None, timeout_s: float) -> Mapping[str, CellFailure]:
        """Check that cells know their rows at `moment`; returns the errors of cells that do not answer, by uuid.

        only: uuids of the cells to check; None for all. timeout_s: time limit of one cell.
        Raises PastNotKeptError with the cell whose past is shortest, and FleetUnreachableError.
        """
        cells = [cell for cell in await self._reader.cells() if only is None or cell.uuid in only]
        found = await asyncio.gather(*(self._require_of(cell, moment, timeout_s) for cell in cells))
        too_short = [each for each in found if isinstance(each, PastNotKeptError)]
        if too_short:
            raise max(too_short, key=lambda each: each.earliest)
        return {
            cell.uuid: each
            for cell, each in zip(cells, found, strict=True)
            if isinstance(each, CellUnreachableError | UnknownCellError)
        }

    async def list_page(
        self,
        request: PageRequest,
        projection: Projection,
        options: ReadOptions,
        moment: int,
        *,
        down: Mapping[str, CellFailure],
        only: Collection[str] | None = None,
        observer: Observer | None = None,
    ) -> Page:
        """As InstanceLister.list_page, as of `moment`; every cell is read live. Raises PastNotKeptError as well."""
        reader = _PastReader(self._reader, moment, self._clock)
        lister = InstanceLister(reader, IndexGateway(None, self._settings, clock=self._clock), self._settings)
        live = replace(options, consistency=Consistency.STRONG, ask_live=())
        page = await lister.list_page(request, projection, live, down=down, only=only, observer=observer)
        lacking = await only_known_now(self._announced, [answer.cell for answer in page.cells], options.cell_timeout_s)
        return replace(page, cells=[_as_of_then(answer, lacking.get(answer.cell.uuid)) for answer in page.cells])

    async def _require_of(self, cell: Cell, moment: int, timeout_s: float) -> CellFailure | PastNotKeptError | None:
        try:
            await self._reader.ask(
                cell.uuid, lambda adapter: _past_of(adapter, self._clock).require_past(moment), timeout_s
            )
        except (CellUnreachableError, UnknownCellError) as error:
            log_failure(cell.uuid, error)
            return error
        except PastNotKeptError as error:
            return error
        return None


class _PastReader:
    """A CellReader of cells as they were at a moment."""

    def __init__(self, reader: CellReader, moment: int, clock: Clock) -> None:
        self._reader = reader
        self._moment = moment
        self._clock = clock

    async def cells(self) -> tuple[Cell, ...]:
        return await self._reader.cells()

    async def knows_all_cells(self, cell_uuids: Collection[str] = ()) -> bool:
        return await self._reader.knows_all_cells(cell_uuids)

    async def read_page(self, cell_uuid: str, request: PageRequest, timeout_s: float) -> Sequence[InstanceRow]:
        return await self._reader.ask(
            cell_uuid,
            lambda adapter: _past_of(adapter, self._clock).read_past_page(request, self._moment),
            timeout_s,
        )

    async def find(self, cell_uuid: str, uuid: str, timeout_s: float) -> InstanceRow | None:
        rows = await self.read_page(cell_uuid, PageRequest(Eq("uuid", uuid), INSTANCES_BY_UUID, 1), timeout_s)
        return rows[0] if rows else None

    async def ask(self, cell_uuid: str, query: Callable[[CellAdapter], T], timeout_s: float) -> T:
        return await self._reader.ask(cell_uuid, query, timeout_s)

    def hanging(self) -> Collection[str]:
        return self._reader.hanging()


def _past_of(adapter: CellAdapter, clock: Clock) -> PastAdapter:
    """Return the adapter as a PastAdapter. Raises PastNotKeptError for a kind of cell that keeps no past."""
    if isinstance(adapter, PastAdapter):
        return adapter
    reason = f"cells of kind '{adapter.cell.kind}' keep nothing of what their changes replace"
    raise PastNotKeptError(adapter.cell.name, clock(), reason)


def _as_of_then(answer: CellAnswer, lacks: str | None) -> CellAnswer:
    route = Route.CHANGELOG if answer.route is Route.LIVE else answer.route
    then = CellAnswer(answer.cell, route, answer.is_complete, failure=answer.failure, left_out=answer.left_out)
    return then.lacking(lacks)
