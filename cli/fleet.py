"""Opens the fleet that the configuration names, and finds its cells, for commands."""

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Annotated

from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.model import Cell
from fleetlight.cells.settings import FleetSettings
from fleetlight.cli.given import FromSettings
from fleetlight.cli.settings import Settings

IN_PROCESS_BUS = "memory://"


@contextmanager
def open_fleet(settings: FleetSettings, *, answer_timeout_s: float | None = None) -> Iterator[Fleet]:
    """Open the fleet registry for the block, without connecting yet. Raises DatabaseUrlError.

    answer_timeout_s: see create_database_engine.
    """
    engine = create_database_engine(
        settings.database_url.get_secret_value(),
        must_exist=True,
        answer_timeout_s=answer_timeout_s,
        idle_transaction_timeout_s=settings.takeover_after_s,
    )
    fleet = Fleet(engine, settings.failure_limits, takeover_after_s=settings.takeover_after_s)
    try:
        yield fleet
    finally:
        fleet.close()


OpenFleet = Annotated[Fleet, FromSettings(lambda settings, _: open_fleet(settings.fleet))]
LoadedSettings = Annotated[Settings, FromSettings(lambda settings, _: nullcontext(settings))]


def chosen_cells(fleet: Fleet, name: str | None) -> Sequence[Cell]:
    """The cell with this name or uuid; without one, every enabled cell, by name. Raises UnknownCellError."""
    if name is not None:
        return (fleet.cell(name),)
    return tuple(cell for cell in sorted_by_name(fleet.cells()) if not cell.disabled)


def named_cell(fleet: Fleet, name: str | None) -> str | None:
    """The name of the cell with this name or uuid; None for None. Raises UnknownCellError."""
    return None if name is None else fleet.cell(name).name


def sorted_by_name(cells: Iterable[Cell]) -> Sequence[Cell]:
    """Sort by name, with numbers in numeric order: cell2 before cell10."""

    def key(cell: Cell) -> list[tuple[str, int]]:
        return [(text, int(number or 0)) for text, number in re.findall(r"(\D*)(\d*)", cell.name)]

    return sorted(cells, key=key)


def is_in_process(cell: Cell) -> bool:
    """Whether the cell's bus is inside the process of `fleetlight up`, where no other process can reach it."""
    return cell.transport_url.startswith(IN_PROCESS_BUS)
