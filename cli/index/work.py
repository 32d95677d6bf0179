"""`fleetlight index work`: what indexers and commands do to the index, as `/fleetlight/index/work` has it."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote

import typer

from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.fleet.index_work import WorkState
from fleetlight.cli.fleet import open_fleet
from fleetlight.cli.options import ConfigOption, DataDirOption, Output, OutputOption, examples
from fleetlight.cli.output import print_notice, print_result, print_rows
from fleetlight.cli.settings import Settings, load_settings
from fleetlight.cli.work_progress import shown_progress

if TYPE_CHECKING:
    from fleetlight.cli.in_process import ApiInProcess

_EXAMPLE = "5f0c7a52-1d7e-4d0c-8a3e-0f6f4f2b9c11"
_PATH = "/fleetlight/index/work"
_COLUMNS = ("ID", "KIND", "CELLS", "STATE", "DONE", "TOTAL", "ROWS/S", "LEFT", "BY", "RESULT")
_LOOK_INTERVAL_S = 1.0
_ENDED = {WorkState.DONE, WorkState.FAILED, WorkState.STOPPED}
_SHOWN_CELLS = 3

app = typer.Typer(
    help="Work on the index, of consoles and of commands: how far it is, and stopping it.",
    no_args_is_help=True,
    epilog=examples("fleetlight index work list", f"fleetlight index work stop {_EXAMPLE}"),
)

IdArgument = Annotated[
    str, typer.Argument(metavar="ID", help="The work, by the id that `list` shows.", show_default=False)
]


@app.command("list", epilog=examples("fleetlight index work list", "fleetlight index work list --output json"))
def list_work(config: ConfigOption = None, data_dir: DataDirOption = None, output: OutputOption = Output.TABLE) -> None:
    """Show what is ordered, running, or has ended, the newest first: what consoles ordered, and what commands do."""
    found = _asked(load_settings(config, data_dir), _request("GET"))["work"]
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
    follow: Annotated[bool, typer.Option("--follow", help="Wait for its end; Ctrl-C ends only the waiting.")] = False,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show how far work is, and what came of it.

    Exit code 1 if it has failed or was stopped.
    """
    question = _followed(work_id) if follow else _request("GET", work_id)
    work = _asked(load_settings(config, data_dir), question)
    print_rows(output, work, _COLUMNS, [_row(work)], right_aligned=_COLUMNS[4:8])
    if output is Output.TABLE:
        for finding in work["findings"]:
            print_result(f"{finding['cell']}: {finding['uuid'] or 'the whole cell'}: {finding['problem']}")
    if work["state"] in {WorkState.FAILED, WorkState.STOPPED}:
        raise typer.Exit(1)


@app.command(epilog=examples(f"fleetlight index work stop {_EXAMPLE}"))
def stop(work_id: IdArgument, config: ConfigOption = None, data_dir: DataDirOption = None) -> None:
    """Stop work between two batches, also that of a command on another machine; what has ended stays as it is."""
    work = _asked(load_settings(config, data_dir), _request("DELETE", work_id))
    is_over = work["state"] in _ENDED
    print_result(f"{work['id']}: {work['state'] if is_over else 'stops after its batch'}")


def _asked(settings: Settings, question: "Callable[[ApiInProcess], Awaitable[Any]]") -> Any:
    """What the API of this process answers. Raises CommandError, CellError."""
    from fleetlight.cli.in_process import opened_api  # noqa: PLC0415 -- other commands would start a quarter later

    async def ask(fleet: Fleet) -> Any:
        async with opened_api(settings, fleet) as api:
            return await question(api)

    with open_fleet(settings.fleet) as fleet:
        return asyncio.run(ask(fleet))


def _request(method: str, *path: str) -> "Callable[[ApiInProcess], Awaitable[Any]]":
    from fleetlight.cli.in_process import document_of  # noqa: PLC0415 -- as above

    async def request(api: "ApiInProcess") -> Any:
        return document_of(await api.call(method, "/".join((_PATH, *map(quote, path)))))

    return request


def _followed(work_id: str) -> "Callable[[ApiInProcess], Awaitable[Any]]":
    """The work, once it has ended."""
    request = _request("GET", work_id)

    async def follow(api: "ApiInProcess") -> Any:
        with shown_progress("rows") as start:
            shown = None
            while True:
                work = await request(api)
                shown = shown or start(work["kind"], work["total"])
                shown(work["done"])
                if work["state"] in _ENDED:
                    return work
                await asyncio.sleep(_LOOK_INTERVAL_S)

    return follow


def _row(work: Any) -> Sequence[str]:
    names, left_s = work["cells"], work["left_s"]
    more = len(names) - _SHOWN_CELLS
    cells = ", ".join(names[:_SHOWN_CELLS]) + (f" and {more} more" if more > 0 else "")
    left = None if left_s is None else timedelta(seconds=round(left_s))
    rate = None if work["rate"] is None else f"{work['rate']:,.0f}"
    values = (cells, work["state"], work["done"], work["total"], rate, left, work["by"], work["result"])
    return [work["id"], work["kind"], *("-" if value in {None, ""} else str(value) for value in values)]
