"""How handlers ask the fleet database and the cells that can be changed, which both block."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import structlog

from api.listing.sources import ask_fleet
from cells.errors import CellUnreachableError, FleetUnreachableError
from cells.fleet import Fleet
from cells.model import Cell
from cells.native_cells import NativeCells

T = TypeVar("T")

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class OfCells(Generic[T]):
    """What the cells answered, in the order of their names, and which of them did not."""

    answers: Sequence[tuple[Cell, T]]
    down: Sequence[Cell]

    @property
    def headers(self) -> Mapping[str, str]:
        """The header that says whether all cells are represented."""
        return {"Fleetlight-Complete": "false" if self.down else "true"}


@dataclass(frozen=True, slots=True)
class FleetAccess:
    """timeout_s: what a question may cost a request. max_limit: the largest page."""

    fleet: Fleet
    native: NativeCells
    timeout_s: float
    max_limit: int

    async def act(self, change: Callable[[], T]) -> T:
        """What a `change` that blocks returns. It is waited for: nobody could say whether a late one was made."""
        return await asyncio.to_thread(change)

    async def ask(self, question: Callable[[], T]) -> T:
        """The answer to a `question` that blocks, in another thread. Raises FleetUnreachableError when it is late."""
        return await ask_fleet(question, self.timeout_s)

    async def ask_cells(self, question: Callable[[Cell], T]) -> OfCells[T]:
        """The answers of all native cells, asked at the same time. Raises FleetUnreachableError for the registry."""
        cells = await self.ask(self.native.cells)
        asked = await asyncio.gather(*(self._ask_cell(cell, question) for cell in cells))
        answers = [(cell, answer[0]) for cell, answer in zip(cells, asked, strict=True) if answer is not None]
        down = [cell for cell, answer in zip(cells, asked, strict=True) if answer is None]
        return OfCells(answers, down)

    async def _ask_cell(self, cell: Cell, question: Callable[[Cell], T]) -> tuple[T] | None:
        try:
            return (await self.ask(lambda: question(cell)),)
        except (CellUnreachableError, FleetUnreachableError) as error:
            _log.warning("cell_unreachable", cell=cell.name, reason=error.reason)
            return None
