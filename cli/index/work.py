"""`fleetlight index work`: shows and stops the work of indexers and commands, as `/fleetlight/index/work` does."""

import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Annotated, Any

import typer

from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.fleet.index_work import OPEN, WorkOrder, WorkState
from fleetlight.cli.errors import ConfigurationError
from fleetlight.cli.fleet import OpenFleet
from fleetlight.cli.options import Output, OutputOption, examples
from fleetlight.cli.output import print_notice, print_result, print_rows
from fleetlight.cli.work_progress import Show, shown_progress

_EXAMPLE = "5f0c7a52-1d7e-4d0c-8a3e-0f6f4f2b9c11"
_COLUMNS = ("ID", "KIND", "CELLS", "STATE", "DONE", "TOTAL", "ROWS/S", "LEFT", "BY", "RESULT")
_LOOK_INTERVAL_S = 1.0
_SHOWN_CELLS = 3

app = typer.Typer(
    help="Work on the index, by consoles and commands: show its progress, and stop it.",
    no_args_is_help=True,
    epilog=examples("fleetlight index work list", f"fleetlight index work stop {_EXAMPLE}"),
)

IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The id of the work, from `list`.", show_default=False)]


@app.command("list", epilog=examples("fleetlight index work list", "fleetlight index work list --output json"))
def list_work(fleet: OpenFleet, output: OutputOption = Output.TABLE) -> None:
    """List work that is ordered, running or has ended, newest first: ordered by consoles, or done by commands."""
    found = _shown(fleet, fleet.index_work.all())
    if not found and output is Output.TABLE:
        print_notice("there is no work")
        return
    print_rows(output, found, _COLUMNS, [_row(work) for work in found], right_aligned=_COLUMNS[4:8])


@app.command(
    epilog=examples(f"fleetlight index work show {_EXAMPLE}", f"fleetlight index work show {_EXAMPLE} --follow")
)
def show(
    work_id: IdArgument,
    *,
    follow: Annotated[bool, typer.Option("--follow", help="Wait for the end; Ctrl-C ends only the waiting.")] = False,
    fleet: OpenFleet,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show the progress of work, and its result.

    Exit code 1 if it failed or was stopped.
    """
    work = _followed(fleet, work_id) if follow else _one(fleet, work_id, fleet.index_work.find(work_id))
    print_rows(output, work, _COLUMNS, [_row(work)], right_aligned=_COLUMNS[4:8])
    if output is Output.TABLE:
        for finding in work["findings"]:
            print_result(f"{finding['cell']}: {finding['uuid'] or 'the whole cell'}: {finding['problem']}")
    if work["state"] in {WorkState.FAILED, WorkState.STOPPED}:
        raise typer.Exit(1)


@app.command(epilog=examples(f"fleetlight index work stop {_EXAMPLE}"))
def stop(work_id: IdArgument, fleet: OpenFleet) -> None:
    """Stop work after its current batch, even that of a command on another machine; ended work stays as it is."""
    fleet.clock.look()
    work = _one(fleet, work_id, fleet.index_work.stop(work_id, fleet.clock()))
    print_result(f"{work['id']}: {'stops after its batch' if work['state'] in OPEN else work['state']}")


def _shown(fleet: Fleet, found: Iterable[WorkOrder]) -> list[Any]:
    """The work, as the API shows it."""
    from fleetlight.api.operating.index_work import work_shown  # noqa: PLC0415 -- other commands would start later

    fleet.clock.look()
    cells, now = fleet.cells(), fleet.clock()
    return [work_shown(each, cells, now) for each in found]


def _one(fleet: Fleet, work_id: str, found: WorkOrder | None) -> Any:
    """One piece of work, as the API shows it. Raises ConfigurationError if there is none."""
    if found is None:
        raise ConfigurationError(f"there is no work {work_id}: see `fleetlight index work list`")
    return _shown(fleet, [found])[0]


def _followed(fleet: Fleet, work_id: str) -> Any:
    """Wait until the work has ended, and return it."""
    with shown_progress("rows") as start:
        show_rows: Show | None = None
        while True:
            work = _one(fleet, work_id, fleet.index_work.find(work_id))
            show_rows = show_rows or start(work["kind"], work["total"])
            show_rows(work["done"])
            if work["state"] not in OPEN:
                return work
            time.sleep(_LOOK_INTERVAL_S)


def _row(work: Any) -> Sequence[str]:
    names, left_s = work["cells"], work["left_s"]
    more = len(names) - _SHOWN_CELLS
    cells = ", ".join(names[:_SHOWN_CELLS]) + (f" and {more} more" if more > 0 else "")
    left = None if left_s is None else timedelta(seconds=round(left_s))
    rate = None if work["rate"] is None else f"{work['rate']:,.0f}"
    values = (cells, work["state"], work["done"], work["total"], rate, left, work["by"], work["result"])
    return [work["id"], work["kind"], *("-" if value in {None, ""} else str(value) for value in values)]
