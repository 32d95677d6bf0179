"""Instances that the fleet database does not know, since the API of other software makes them without telling it."""

import asyncio

from cells.errors import CellUnreachableError, UnknownCellError
from cells.fleet.fleet import InstanceMapping
from cells.model import Cell, InstanceRow
from listing.errors import CellDownError
from listing.sources import CellReader
from resources.clock import system_clock


async def find_unmapped(reader: CellReader, uuid: str, timeout_s: float) -> InstanceMapping | None:
    """Where an instance lives, by asking all cells that are compute APIs at the same time.

    Raises CellDownError when none has it and one of them could not say so, and FleetUnreachableError.
    """
    cells = [cell for cell in await reader.cells() if cell.can.is_asked_for_unmapped]
    answers = await asyncio.gather(*(_ask(reader, cell, uuid, timeout_s) for cell in cells))
    found = [answer for answer in answers if isinstance(answer, InstanceRow)]
    failures = [answer for answer in answers if isinstance(answer, Exception)]
    if not found and failures:
        raise CellDownError(str(failures[0])) from failures[0]
    return InstanceMapping.of(found[0], system_clock()) if found else None


async def _ask(
    reader: CellReader, cell: Cell, uuid: str, timeout_s: float
) -> InstanceRow | CellUnreachableError | UnknownCellError | None:
    try:
        return await reader.find(cell.uuid, uuid, timeout_s)
    except (CellUnreachableError, UnknownCellError) as error:
        return error
