"""How handlers ask the fleet database and the cells that can be changed, which both block."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from api.listing.sources import ask_fleet
from cells.fleet import Fleet
from cells.native_cells import NativeCells

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FleetAccess:
    """timeout_s: what a question may cost a request. max_limit: the largest page."""

    fleet: Fleet
    native: NativeCells
    timeout_s: float
    max_limit: int

    async def ask(self, question: Callable[[], T]) -> T:
        """The answer to a `question` that blocks, in another thread. Raises FleetUnreachableError when it is late."""
        return await ask_fleet(question, self.timeout_s)
