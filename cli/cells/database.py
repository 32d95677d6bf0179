"""`fleetlight database`: upgrade the schemas of the fleet database and of the cells' databases."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial

import typer
from sqlalchemy import Engine

from fleetlight.cells.database.engines import create_database_engine, translated_failures
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.fleet.database import translated_fleet_failures
from fleetlight.cells.kinds.native.registration import remember_cell
from fleetlight.cells.migrations import upgrade_cell, upgrade_fleet
from fleetlight.cells.model import Cell
from fleetlight.cli.fleet import LoadedSettings, OpenFleet, sorted_by_name
from fleetlight.cli.options import examples
from fleetlight.cli.output import print_result
from fleetlight.cli.postgresql_rights import renew_rights
from fleetlight.cli.work_progress import shown_progress

app = typer.Typer(no_args_is_help=True, epilog=examples("fleetlight database upgrade"))


@app.command(epilog=examples("fleetlight database upgrade --config /etc/fleetlight.toml"))
def upgrade(settings: LoadedSettings, fleet: OpenFleet) -> None:
    """Bring the fleet database and the databases of all native cells to the newest schema; can be repeated.

    Roles from `fleetlight accounts postgresql` get their rights on new tables.
    """
    fleet_url = settings.fleet.database_url.get_secret_value()
    _upgrade(create_database_engine(fleet_url), upgrade_fleet, translated_fleet_failures())
    print_result("fleet database: up to date")
    with shown_progress("databases") as begin:
        native = [cell for cell in sorted_by_name(fleet.cells()) if cell.can.takes_changes]
        show = begin("cells", len(native))
        for done, cell in enumerate(native, 1):
            _upgrade_cell(cell, partial(_upgrade_and_remember, cell))
            print_result(f"cell {cell.name}: up to date")
            show(done)
    if renewed := renew_rights(fleet_url, native):
        print_result(f"accounts {', '.join(renewed)}: up to date")


def _upgrade_and_remember(cell: Cell, engine: Engine) -> None:
    upgrade_cell(engine)
    remember_cell(engine, cell)


def _upgrade_cell(cell: Cell, upgrade_database: Callable[[Engine], object]) -> None:
    engine = create_database_engine(cell.database_url, cell_uuid=cell.uuid)
    _upgrade(engine, upgrade_database, translated_failures(partial(CellUnreachableError, cell.name)))


def _upgrade(
    engine: Engine, upgrade_schema: Callable[[Engine], object], translated: AbstractContextManager[None]
) -> None:
    try:
        with translated:
            upgrade_schema(engine)
    finally:
        engine.dispose()
