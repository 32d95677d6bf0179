"""The cell in which a request of the remote API makes its change."""

from collections.abc import Callable, Collection, Sequence
from http import HTTPStatus
from typing import Any

from sqlalchemy import Connection

from fleetlight.api.rapi.endpoint import RapiRequest
from fleetlight.api.rapi.faults import RapiError
from fleetlight.api.shared.fleet_access import FleetAccess, OfCells
from fleetlight.cells.database.engines import cell_failures
from fleetlight.cells.model import Cell
from fleetlight.listing.errors import CellDownError
from fleetlight.manager.operations.opcodes.instances.create_parameters import InstanceCreate
from fleetlight.manager.operations.opcodes.instances.node_claims import nodes_called
from fleetlight.manager.operations.opcodes.lookups import groups_called
from fleetlight.manager.operations.opcodes.named_instances import instances_called, instances_with_name
from fleetlight.manager.operations.scheduling.choose_cell import rank_cells, read_capacity
from fleetlight.manager.operations.scheduling.request_spec import RequestSpec
from fleetlight.resources.amount import Amount
from fleetlight.resources.uuids import is_uuid


class Targets:
    """Finds cells. Every call raises FleetUnreachableError when the fleet database does not answer."""

    def __init__(self, access: FleetAccess) -> None:
        self._access = access

    async def only_cell(self, request: RapiRequest, what: str) -> Cell:
        """Return the cell of a request that names no item: that of its address, or the only native cell.

        Raises RapiError if there are several. what: the object that each cell has, for the message.
        """
        cells = await self.cells(request)
        if len(cells) != 1:
            text = f"Each cell has {what} of its own: name one, as in /cells/{cells[0].name}/2" if cells else "No cell"
            raise RapiError(HTTPStatus.BAD_REQUEST, text)
        return cells[0]

    async def of_instance(self, request: RapiRequest, name: str) -> Cell:
        """Return the cell of the instance `name`; if none has it, the first cell, where the job reports the error.

        Raises RapiError if several cells have one, and CellDownError if it may be in a down cell.
        """
        cells = await self.cells(request)
        if len(cells) == 1:
            return cells[0]
        if is_uuid(name):
            mapping = await self._access.mapping_of(name)
            return next((cell for cell in cells if mapping is not None and cell.uuid == mapping.cell_uuid), cells[0])
        return await self._first(cells, lambda connection: instances_called(connection, name))

    async def for_new(self, request: RapiRequest, op: InstanceCreate) -> Cell:
        """Return the cell for a new instance: that of its node, if the request names one, else a cell with its group.

        If a cell has, or is about to make, an instance of this name, it is that cell, where the job reports that the
        name is taken (as after a repeated request). Otherwise it is the cell with the most room. Raises RapiError, and
        CellDownError if no cell answers.
        """
        if (node := op.pnode) is not None:
            return await self.of_item(request, lambda connection: nodes_called(connection, node))
        cells = await self.cells(request)
        if len(cells) > 1 and (name := op.instance_name) is not None:
            named = await self._answering(cells, lambda connection: instances_with_name(connection, name))
            if named:
                return named[0]
        if len(cells) > 1 and (group := op.group_name) is not None:
            cells = await self._answering(cells, lambda connection: groups_called(connection, group)) or cells
        return await self.with_most_room(cells, op.demand)

    async def with_most_room(self, cells: Sequence[Cell], demand: Amount) -> Cell:
        """Return the cell with the most room for `demand`. Raises CellDownError if none of several answers."""
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
        """Return the cell in which `find` finds an item; if there is none, the first cell, as `of_instance` does.

        find: queries a native cell for the item that the request names. Raises RapiError, CellDownError.
        """
        cells = await self.cells(request)
        return cells[0] if len(cells) == 1 else await self._first(cells, find)

    async def cell_with(self, request: RapiRequest, find: Callable[[Connection], Sequence[Any]]) -> Cell | None:
        """Return the cell in which `find` finds an item, or None. Raises the errors of `of_item`."""
        return await self._finding(await self.cells(request), find)

    async def _first(self, cells: Sequence[Cell], find: Callable[[Connection], Sequence[Any]]) -> Cell:
        return await self._finding(cells, find) or cells[0]

    async def _finding(self, cells: Sequence[Cell], find: Callable[[Connection], Sequence[Any]]) -> Cell | None:
        """Return the cell in which `find` finds an item, or None. Raises RapiError if several do."""
        asked = await self._ask(cells, find)
        found = [cell for cell, answer in asked.answers if answer]
        if not found and asked.down:
            raise CellDownError(asked.down[0].name)
        if len(found) > 1:
            names = ", ".join(cell.name for cell in found)
            text = f"Several cells have one with this name ({names}): name a cell, as in /cells/{found[0].name}/2"
            raise RapiError(HTTPStatus.BAD_REQUEST, text)
        return found[0] if found else None

    async def _answering(self, cells: Sequence[Cell], find: Callable[[Connection], Sequence[Any]]) -> Sequence[Cell]:
        """Return the cells in which `find` finds an item, except down ones."""
        return [cell for cell, answer in (await self._ask(cells, find)).answers if answer]

    async def _ask(self, cells: Sequence[Cell], find: Callable[[Connection], Sequence[Any]]) -> OfCells[Sequence[Any]]:
        def look(cell: Cell) -> Sequence[Any]:
            with cell_failures(cell.name), self._access.native.engine(cell).connect() as connection:
                return find(connection)

        return await self._access.ask_some(cells, look)

    async def cells(self, request: RapiRequest) -> Sequence[Cell]:
        """Return the native cells of a request, at least one, by name. Raises RapiError if there is none."""
        cells = [cell for cell in await self._access.ask(self._access.native.cells) if _is_among(cell, request.only)]
        if not cells:
            text = "The cell can only be read" if request.only is not None else "The fleet has no cell of its own"
            raise RapiError(HTTPStatus.NOT_IMPLEMENTED, text)
        return cells


def _is_among(cell: Cell, only: Collection[Any] | None) -> bool:
    return only is None or cell.uuid in only
