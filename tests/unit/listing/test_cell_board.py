"""The board of a thousand cells: none is held up by others that hang, and not all are asked at the same moment."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.model import Cell, CellAdapter
from fleetlight.listing.cell_board import Board, CellBoard, CellHealth, FleetFacts
from fleetlight.listing.index_gateway import IndexGateway
from fleetlight.listing.settings import SearchSettings
from tests.support.played.played_listing import PlayedReader

T = TypeVar("T")
_CELLS = 1000
_SETTINGS = SearchSettings(enabled=False, cell_timeout_s=5)


class ManyCells(PlayedReader):
    """Answers for cells, some of which hang until all others have answered, and would for ever."""

    def __init__(self, hanging: int) -> None:
        self._cells = tuple(
            Cell(f"uuid-{number}", f"cell{number}", CellKind.NATIVE, "sqlite:///x", "memory://x")
            for number in range(_CELLS)
        )
        self._hanging = {cell.uuid for cell in self._cells[:hanging]}
        self._left = _CELLS - hanging
        self._others_answered = asyncio.Event()
        self.now = self.most = 0

    async def cells(self) -> tuple[Cell, ...]:
        return self._cells

    async def ask(self, cell_uuid: str, question: Callable[[CellAdapter], T], timeout_s: float) -> T:
        if cell_uuid in self._hanging:
            await self._others_answered.wait()
            raise CellUnreachableError(cell_uuid, f"no answer within {timeout_s:g} s")
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(0)
        self.now -= 1
        self._left -= 1
        if not self._left:
            self._others_answered.set()
        raise CellUnreachableError(cell_uuid, "it is broken")


def test_cells_that_hang_keep_no_other_one_from_being_asked() -> None:
    # More than are asked at once, so that they would take all places.
    reader = ManyCells(hanging=100)

    async def look() -> Board:
        return await CellBoard(reader, IndexGateway(None, _SETTINGS), _SETTINGS, lambda _: FleetFacts()).look()

    board = asyncio.run(look())
    assert {state.health for state in board.cells} == {CellHealth.DOWN}
    assert sum("no answer" in (state.reason or "") for state in board.cells) == 100
    assert 1 < reader.most <= 32
