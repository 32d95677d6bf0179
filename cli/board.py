"""The board of cells, as commands show it: what `GET /fleetlight/cells` of this process says."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cli.settings import Settings
from fleetlight.listing.answer import Route
from fleetlight.listing.cell_board import CellHealth

if TYPE_CHECKING:
    from fleetlight.cli.in_process import ApiInProcess


@dataclass(frozen=True, slots=True)
class CellLine:
    """One cell; see docs/reference/operations-api.md. None is not known."""

    name: str
    health: CellHealth
    reason: str | None
    route: Route
    lag: int | None
    age_s: float | None
    instances: int | None
    nodes: int | None
    dead_letters: int | None
    jobs_waiting: int | None
    jobs_running: int | None


@dataclass(frozen=True, slots=True)
class _Answer:
    cells: Sequence[CellLine]


async def read_board(api: "ApiInProcess") -> Sequence[CellLine]:
    """All cells, by name. Raises CommandError, CellError."""
    from fleetlight.cli.in_process import document_of  # noqa: PLC0415 -- other commands would start a quarter later

    return msgspec.convert(document_of(await api.call("GET", "/fleetlight/cells")), _Answer).cells


async def board_of(settings: Settings, fleet: Fleet) -> Sequence[CellLine]:
    """All cells, by an application of its own. Raises CommandError, CellError."""
    from fleetlight.cli.in_process import opened_api  # noqa: PLC0415 -- other commands would start a quarter later

    async with opened_api(settings, fleet) as api:
        return await read_board(api)


def total(cells: Sequence[CellLine], number: Callable[[CellLine], int | None]) -> int | None:
    """Of those cells of which the number is known; None where it is of none."""
    known = [each for each in map(number, cells) if each is not None]
    return sum(known) if known else None
