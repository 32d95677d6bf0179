"""`fleetlight cell`: which cells the fleet has."""

import typer

from cli.fleet import open_fleet, sorted_by_name
from cli.logging import mask_url_passwords
from cli.options import ConfigOption, DataDirOption, JsonOption, examples
from cli.output import print_json, print_table
from cli.settings import load_settings

app = typer.Typer(help="The cells of the fleet.", no_args_is_help=True)


@app.command("list", epilog=examples("fleetlight cell list", "fleetlight cell list --json"))
def list_cells(config: ConfigOption = None, data_dir: DataDirOption = None, json: JsonOption = False) -> None:
    """Show every cell of the fleet; passwords inside URLs are masked."""
    with open_fleet(load_settings(config, data_dir).fleet) as fleet:
        cells = [
            {
                "name": cell.name,
                "uuid": cell.uuid,
                "kind": cell.kind.value,
                "database_url": mask_url_passwords(cell.database_url),
                "transport_url": mask_url_passwords(cell.transport_url),
                "disabled": cell.disabled,
            }
            for cell in sorted_by_name(fleet.cells())
        ]
    if json:
        print_json(cells)
        return
    rows = [[str(cell[key]) for key in ("name", "uuid", "kind", "database_url", "transport_url")] for cell in cells]
    print_table(("NAME", "UUID", "KIND", "DATABASE", "BUS"), rows)
