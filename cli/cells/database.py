"""`fleetlight database`: the schemas of the fleet database and of the cells' databases."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial

import typer
from sqlalchemy import Engine

from cells.database.engines import create_database_engine, translated_failures
from cells.errors import CellUnreachableError
from cells.fleet.database import translated_fleet_failures
from cells.kinds.native.instance_rows import Filled, count_rows, fill_texts
from cells.migrations import upgrade_cell, upgrade_fleet
from cells.model import Cell
from cli.database_accounts import renew_rights
from cli.errors import INTERRUPTED, CommandError
from cli.fleet import open_fleet, sorted_by_name
from cli.options import ConfigOption, DataDirOption, examples
from cli.output import counted, print_notice, print_result
from cli.settings import load_settings
from cli.work_progress import shown_progress

app = typer.Typer(no_args_is_help=True)


@app.command(epilog=examples("fleetlight database upgrade --config /etc/fleetlight.toml"))
def upgrade(config: ConfigOption = None, data_dir: DataDirOption = None) -> None:
    """Bring the fleet database and the databases of all native cells to the newest schema; can be repeated.

    Cells keep what an index wants of each instance; where it was kept otherwise before, or not at all, it is made now.
    Accounts that `fleetlight accounts postgresql` has made get their rights to new tables.
    """
    settings = load_settings(config, data_dir)
    fleet_url = settings.fleet.database_url.get_secret_value()
    _upgrade(fleet_url, upgrade_fleet, translated_fleet_failures())
    print_result("fleet database: up to date")
    with open_fleet(settings.fleet) as fleet:
        native = [cell for cell in sorted_by_name(fleet.cells()) if cell.can.takes_changes]
        for cell in native:
            _upgrade_cell(cell, upgrade_cell)
            print_result(f"cell {cell.name}: up to date")
    if renewed := renew_rights(fleet_url, native):
        print_result(f"accounts {', '.join(renewed)}: up to date")
    # Last, since it can take minutes, and everything works without it.
    _fill_texts(native)


def _fill_texts(cells: Sequence[Cell]) -> None:
    """Make the texts that are missing, in each cell that can be reached. Raises CommandError when one could not be.

    A row of which none can be made is told and is no failure: to run this again would not help, and nobody has to wait.
    """
    print_notice("making what an index wants of instances, where it is missing; nothing has to wait for that")
    filled: dict[str, Filled] = {}
    failed: list[CellUnreachableError] = []
    try:
        with shown_progress("instances") as progress:
            for cell in cells:

                def fill(engine: Engine, name: str = cell.name) -> None:
                    filled[name] = fill_texts(engine, progress(name, count_rows(engine)))

                try:
                    _upgrade_cell(cell, fill)
                except CellUnreachableError as error:
                    failed.append(error)
    except KeyboardInterrupt:
        print_notice("stopped; the same command goes on from here")
        raise typer.Exit(INTERRUPTED) from None
    # Not earlier: what is printed beside progress bars ends up between them.
    for name, of_cell in filled.items():
        if of_cell.made:
            print_result(f"cell {name}: {counted(of_cell.made, 'text')} for the index made")
        for uuid, reason in of_cell.unrenderable.items():
            print_notice(f"cell {name}: instance {uuid} cannot be rendered, so no index gets it: {reason}")
    if failed:
        raise CommandError(f"{'; '.join(map(str, failed))}; not all texts for the index are made: run this again")


def _upgrade_cell(cell: Cell, upgrade_database: Callable[[Engine], object]) -> None:
    _upgrade(cell.database_url, upgrade_database, translated_failures(partial(CellUnreachableError, cell.name)))


def _upgrade(url: str, upgrade_schema: Callable[[Engine], object], translated: AbstractContextManager[None]) -> None:
    engine = create_database_engine(url)
    try:
        with translated:
            upgrade_schema(engine)
    finally:
        engine.dispose()
