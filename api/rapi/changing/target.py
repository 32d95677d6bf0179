"""In which cell a request of the remote API changes something."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any

from sqlalchemy import Connection

from api.compute.protocol.fleet_access import FleetAccess
from api.rapi.endpoint import RapiRequest
from api.rapi.faults import RapiError
from cells.database.engines import cell_failures
from cells.kinds.native.nodes import Capacity
from cells.model import Cell
from listing.errors import CellDownError
from operations.opcodes.instances.places import nodes_called
from operations.opcodes.named_instances import instances_called
from operations.scheduling.choose_cell import rank_cells, read_capacity
from operations.scheduling.request_spec import RequestSpec
from resources.uuids import is_uuid


class Targets:
    """Finds cells; every call raises FleetUnreachableError when the fleet database does not answer."""

    def __init__(self, access: FleetAccess) -> None:
        self._access = access

    async def only_cell(self, request: RapiRequest, what: str) -> Cell:
        """The one cell that a request is about which names nothing: that of its address, or the only native one.

        Raises RapiError where there are several. what: of which they would each have one.
        """
        cells = await self.cells(request)
        if len(cells) != 1:
            text = f"Each cell has {what} of its own: name one, as in /cells/{cells[0].name}/2" if cells else "No cell"
            raise RapiError(HTTPStatus.BAD_REQUEST, text)
        return cells[0]

    async def of_instance(self, request: RapiRequest, name: str) -> Cell:
        """The cell of the instance called `name`; of none, and of several, the first cell.

        There the job tells that it is not known. Raises CellDownError where it may be in a cell that is down.
        """
        cells = await self.cells(request)
        if len(cells) == 1:
            return cells[0]
        if is_uuid(name):
            mapping = await self._access.ask(partial(self._access.mappings.mapping_of, name))
            return next((cell for cell in cells if mapping is not None and cell.uuid == mapping.cell_uuid), cells[0])
        return await self._first(cells, lambda connection: instances_called(connection, name))

    async def for_new(self, request: RapiRequest, demand: Capacity, node: str | None = None) -> Cell:
        """The cell for a new instance: that of its node, if it is to have a certain one, else that with the most room.

        Raises CellDownError where no cell answers.
        """
        if node is not None:
            return await self.of_item(request, lambda connection: nodes_called(connection, node))
        cells = await self.cells(request)
        if len(cells) == 1:
            return cells[0]
        engine = self._access.native.engine
        answered = await self._access.ask_some(
            [cell for cell in cells if not cell.disabled],
            lambda cell: read_capacity(engine(cell), cell, demand, RequestSpec(), count=1),
        )
        ranked = rank_cells([capacity for _, capacity in answered.answers])
        if not ranked:
            raise CellDownError(cells[0].name)
        return ranked[0].cell

    async def of_item(self, request: RapiRequest, find: Callable[[Connection], Sequence[Any]]) -> Cell:
        """The first cell that finds something; of none the first cell, as of `of_instance`.

        find: what a native cell has under the name of the request.
        """
        cells = await self.cells(request)
        return cells[0] if len(cells) == 1 else await self._first(cells, find)

    async def cell_with(self, request: RapiRequest, find: Callable[[Connection], Sequence[Any]]) -> Cell | None:
        """The first cell that finds something; None of none, as of `of_item` where a cell is down."""
        return await self._finding(await self.cells(request), find)

    async def _first(self, cells: Sequence[Cell], find: Callable[[Connection], Sequence[Any]]) -> Cell:
        return await self._finding(cells, find) or cells[0]

    async def _finding(self, cells: Sequence[Cell], find: Callable[[Connection], Sequence[Any]]) -> Cell | None:
        def look(cell: Cell) -> Sequence[Any] | None:
            with cell_failures(cell.name), self._access.native.engine(cell).connect() as connection:
                return find(connection) or None

        found = await self._access.find_in_some(cells, look)
        return None if found is None else found[0]

    async def cells(self, request: RapiRequest) -> Sequence[Cell]:
        """The native cells that a request may be about, at least one, by name. Raises RapiError."""
        cells = [cell for cell in await self._access.ask(self._access.native.cells) if _is_among(cell, request.only)]
        if not cells:
            text = "The cell can only be read" if request.only is not None else "The fleet has no cell of its own"
            raise RapiError(HTTPStatus.NOT_IMPLEMENTED, text)
        return cells


def _is_among(cell: Cell, only: Collection[Any] | None) -> bool:
    return only is None or cell.uuid in only
