"""`fleetlight index purge`: deleted instances that have been in the index for long enough leave it."""

import time
from contextlib import closing

import typer

from fleetlight.cli.errors import CommandError
from fleetlight.cli.fleet import chosen_cells, open_fleet
from fleetlight.cli.opened_index import opened_index
from fleetlight.cli.options import CellOption, ConfigOption, DataDirOption, examples
from fleetlight.cli.output import print_error, print_notice, print_result
from fleetlight.cli.settings import load_settings
from fleetlight.indexer.errors import LeaseHeldError, LeaseLostError
from fleetlight.indexer.reconcile.retention import announce, has_forgotten, purge_cell, removal_delay_s
from fleetlight.indexer.writing.leases import CellLeases


def register(app: typer.Typer) -> None:
    app.command(epilog=examples("fleetlight index purge", "fleetlight index purge --cell cell2"))(purge)


def purge(cell: CellOption = None, config: ConfigOption = None, data_dir: DataDirOption = None) -> None:
    """Remove instances from the index that were deleted longer than index.deleted_retention ago.

    Indexers do so by themselves every hour. The cells keep their rows, and answer lists that reach so far back. One at
    a time for each cell: while another process syncs, verifies or removes it, the exit code is 1.
    """
    settings = load_settings(config, data_dir)
    failed = []
    with (
        open_fleet(settings.fleet) as fleet,
        opened_index(settings.index) as writer,
        closing(CellLeases(fleet.open_leases("fleetlight index purge"))) as leases,
    ):
        cells = chosen_cells(fleet, cell)
        writer.prepare()
        retention_s = settings.index.deleted_retention.total_seconds()
        fleet.clock.look()
        horizons = announce(writer, [each.uuid for each in cells], retention_s, fleet.clock())
        writer.make_searchable()
        affected = {each.uuid for each in cells if has_forgotten(writer, each.uuid, horizons[each.uuid])}
        if affected:
            wait_s = removal_delay_s(settings.fleet.cells_refresh_interval_s)
            print_notice(f"waiting {wait_s:g} s, until every process knows what the index will not have any more")
            time.sleep(wait_s)
        for each in cells:
            if each.uuid not in affected:
                print_result(f"{each.name}: 0 deleted instances removed from the index")
                continue
            try:
                rows = purge_cell(writer, leases, each, horizons[each.uuid], lambda _rows: None)
            except (LeaseHeldError, LeaseLostError) as error:
                print_error(str(error))
                failed.append(each.name)
            else:
                print_result(f"{each.name}: {rows} deleted instances removed from the index")
    if failed:
        raise CommandError(f"not purged: {', '.join(failed)}")
