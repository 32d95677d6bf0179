"""`fleetlight index purge`: removes instances from the index that were deleted long enough ago."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import partial
from threading import Event

import typer

from fleetlight.cells.findings import wrong
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.fleet.index_work import WorkKind
from fleetlight.cells.model import Cell
from fleetlight.cli.errors import CommandError
from fleetlight.cli.fleet import LoadedSettings, OpenFleet, chosen_cells
from fleetlight.cli.index.recorded_work import Outcome, Progress, recorded
from fleetlight.cli.opened_index import opened_index
from fleetlight.cli.options import CellOption, examples
from fleetlight.cli.output import counted, print_error, print_notice, print_result
from fleetlight.cli.settings import Settings
from fleetlight.indexer.backends.base import IndexWriter
from fleetlight.indexer.errors import LeaseHeldError, LeaseLostError
from fleetlight.indexer.reconcile.retention import announce, has_forgotten, purge_cell, removal_delay_s
from fleetlight.indexer.writing.leases import CellLeases

Purged = int | LeaseHeldError | LeaseLostError


def register(app: typer.Typer) -> None:
    app.command(epilog=examples("fleetlight index purge", "fleetlight index purge --cell cell2"))(purge)


def purge(*, cell: CellOption = None, settings: LoadedSettings, fleet: OpenFleet) -> None:
    """Remove instances from the index that were deleted longer than index.deleted_retention ago.

    Indexers do so by themselves every hour. The cells keep their rows, and answer lists that reach back that far. The
    exit code is 1 if another process is syncing, verifying or removing one of the cells.
    """
    failed = []
    with (
        opened_index(settings.index) as writer,
        closing(CellLeases(fleet.open_leases("fleetlight index purge"))) as leases,
    ):
        cells = chosen_cells(fleet, cell)
        writer.prepare()
        with recorded(fleet, WorkKind.PURGE, [each.uuid for each in cells], None, Event()) as work:
            purged = []
            for each, outcome in purge_cells(settings, fleet, writer, leases, cells, progress=work, on_pause=_say):
                purged.append((each, outcome))
                if isinstance(outcome, int):
                    print_result(f"{each.name}: {outcome} deleted instances removed from the index")
                else:
                    print_error(str(outcome))
                    failed.append(each.name)
            work.outcome = purge_outcome(purged)
    if failed:
        raise CommandError(f"not purged: {', '.join(failed)}")


def _say(seconds: float) -> None:
    print_notice(f"waiting {seconds:g} s, until every process knows what the index will not have any more")


def purge_outcome(purged: Iterable[tuple[Cell, Purged]]) -> Outcome:
    """Sum up the results for consoles."""
    rows, found = 0, []
    for cell, outcome in purged:
        if isinstance(outcome, int):
            rows += outcome
        else:
            found.append(wrong(cell.name, str(outcome), cell=cell.name))
    return Outcome(f"{counted(rows, 'deleted instance')} removed from the index", found, bool(found))


def purge_cells(
    settings: Settings,
    fleet: Fleet,
    writer: IndexWriter,
    leases: CellLeases,
    cells: Sequence[Cell],
    *,
    progress: Progress,
    on_pause: Callable[[float], None] = lambda _seconds: None,
) -> Iterator[tuple[Cell, Purged]]:
    """Remove instances cell by cell; yields how many left the index, or the error that prevented it.

    on_pause: receives the seconds of the wait before a removal. Raises StopRequestedError.
    """
    retention_s = settings.index.deleted_retention.total_seconds()
    fleet.clock.look()
    horizons = announce(writer, [each.uuid for each in cells], retention_s, fleet.clock())
    writer.make_searchable()
    affected = {each.uuid for each in cells if has_forgotten(writer, each.uuid, horizons[each.uuid])}
    if affected:
        delay_s = removal_delay_s(settings.fleet.cells_refresh_interval_s)
        on_pause(delay_s)
        progress.pause(delay_s)
    for each in cells:
        try:
            rows = (
                purge_cell(writer, leases, each, horizons[each.uuid], partial(progress.show, each.uuid))
                if each.uuid in affected
                else 0
            )
        except (LeaseHeldError, LeaseLostError) as error:
            yield each, error
        else:
            yield each, rows
