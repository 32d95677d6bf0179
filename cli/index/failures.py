"""`fleetlight index failures`: lists messages that could not be indexed, retries them and drops them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from itertools import groupby
from typing import Annotated, Any

import typer

from fleetlight.cells.batched import batched
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.fleet.failures import Failure, FailureSummary
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.fleet.producer_keys import ProducerKeyring
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cli.errors import ConfigurationError
from fleetlight.cli.fleet import LoadedSettings, OpenFleet, sorted_by_name
from fleetlight.cli.opened_index import opened_index
from fleetlight.cli.options import CellOption, Output, OutputOption, examples
from fleetlight.cli.output import counted, is_terminal, iso_time, print_notice, print_result, print_rows, print_summary
from fleetlight.cli.settings import Settings
from fleetlight.indexer.reconcile.dead_letter_retries import RetryResult, retry
from fleetlight.resources.fields import from_microseconds

app = typer.Typer(
    help="Messages that could not be indexed: list, retry and drop them.",
    no_args_is_help=True,
    epilog=examples("fleetlight index failures list", "fleetlight index failures retry --all"),
)

_AT_ONCE = 200
_EXAMPLE = "0b6a1f3e-6f1c-5a7e-9a55-1de2f0c2a9b4"

IdArguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="ID...", help="The failures, by their ids from `list`.", show_default=False),
]
AllOption = Annotated[bool, typer.Option("--all", help="All failures of the fleet, or of --cell.")]


@app.command("list", epilog=examples("fleetlight index failures list", "fleetlight index failures list --cell cell2"))
def list_failures(*, cell: CellOption = None, fleet: OpenFleet, output: OutputOption = Output.TABLE) -> None:
    """List the messages that could not be indexed, and are neither solved nor dropped yet."""
    names = _names(fleet, cell)
    summaries = list(fleet.failures.summaries(names))
    dropped = fleet.failures.dropped()
    for cell_uuid in names.keys() & dropped.keys():
        print_notice(
            f"{names[cell_uuid]}: {counted(dropped[cell_uuid], 'older failure')} had to go because there were too many "
            "(fleet.failures_max_count, fleet.failures_max_mib); `drop --all` forgets that"
        )
    if not summaries and output is Output.TABLE:
        print_notice("there are no failures")
        return
    document = [_summary_as_json(summary, names) for summary in summaries]
    columns = ("ID", "CELL", "REASON", "TIMES", "LAST UTC", "INSTANCE", "DETAIL")
    rows = [_as_row(summary, names) for summary in summaries]
    if output is Output.TABLE:
        of_reasons = Counter(summary.reason for summary in summaries).most_common()
        print_summary(
            f"{counted(len(summaries), 'failure')}: {', '.join(f'{count} {reason}' for reason, count in of_reasons)}"
        )
    print_rows(output, document, columns, rows, right_aligned=("TIMES",))


@app.command(epilog=examples(f"fleetlight index failures show {_EXAMPLE}"))
def show(
    failure_id: Annotated[str, typer.Argument(metavar="ID", help="The id of the failure.", show_default=False)],
    fleet: OpenFleet,
    output: OutputOption = Output.TABLE,
) -> None:
    """Show one failure with its whole message. Of the sender's request context only the request id is kept."""
    failure = _found(fleet, [failure_id])[0]
    names = _names(fleet, None)
    fields = _summary_as_json(failure.summary, names) | {
        "routing_key": failure.routing_key,
        "headers": dict(failure.headers),
        "trace": failure.trace,
        "body": failure.body.decode("utf-8", "backslashreplace"),
    }
    if output is not Output.TABLE:
        rows = [[name, "" if value is None else str(value)] for name, value in fields.items()]
        print_rows(output, fields, ("FIELD", "VALUE"), rows)
        return
    for name, value in fields.items():
        lines = "-" if value is None else str(value).replace("\n", "\n    ")
        print_result(f"{name}: {lines}")


@app.command(
    "retry", epilog=examples(f"fleetlight index failures retry {_EXAMPLE}", "fleetlight index failures retry --all")
)
def retry_failures(
    ids: IdArguments = None,
    *,
    every: AllOption = False,
    cell: CellOption = None,
    settings: LoadedSettings,
    fleet: OpenFleet,
) -> None:
    """Retry failures; each that succeeds leaves the list.

    Exit code 1 unless all succeed.
    """
    solved = remaining = 0
    for results in retried(settings, fleet, _chosen(fleet, ids, every, cell)):
        for result in results:
            print_result(f"{result.failure_id}: {'solved' if result.is_solved else 'not solved'}: {result.what}")
            solved += result.is_solved
            remaining += not result.is_solved
    print_notice(f"{solved} solved, {remaining} not solved")
    if remaining:
        raise typer.Exit(1)


@app.command(
    epilog=examples(f"fleetlight index failures drop {_EXAMPLE}", "fleetlight index failures drop --all --cell cell2")
)
def drop(
    ids: IdArguments = None,
    *,
    every: AllOption = False,
    cell: CellOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    fleet: OpenFleet,
) -> None:
    """Delete failures with their messages."""
    chosen = _chosen(fleet, ids, every, cell)
    if every and not yes:
        if not is_terminal():
            raise ConfigurationError(
                "all failures are not dropped without --yes when there is no terminal to confirm it"
            )
        typer.confirm("Drop all of them for good?", abort=True)
    dropped = sum(fleet.failures.drop(batch) for batch in batched(chosen, _AT_ONCE))
    if every:
        fleet.failures.forget_dropped(_names(fleet, cell))
    print_result(f"{dropped} dropped")


def _chosen(fleet: Fleet, ids: Sequence[str] | None, every: bool, cell: str | None) -> Iterator[str]:
    """The ids of the chosen failures, grouped by cell. Raises ConfigurationError, UnknownCellError."""
    if bool(ids) == every:
        raise ConfigurationError("name failures by their id, or all of them with --all")
    if ids and cell is not None:
        raise ConfigurationError("--cell goes with --all: an id says of which cell it is")
    if ids:
        found = sorted(_found(fleet, ids), key=lambda failure: failure.summary.cell_uuid)
        return iter([failure.id for failure in found])
    return iter([summary.id for summary in fleet.failures.summaries(_names(fleet, cell))])


def _found(fleet: Fleet, ids: Sequence[str]) -> list[Failure]:
    found = [failure for batch in batched(ids, _AT_ONCE) for failure in fleet.failures.find(batch)]
    if unknown := sorted(set(ids) - {failure.id for failure in found}):
        raise ConfigurationError(f"there is no failure {', '.join(unknown)}: see `fleetlight index failures list`")
    return found


def retried(settings: Settings, fleet: Fleet, ids: Iterator[str]) -> Iterator[list[RetryResult]]:
    """Retry failures and yield the results, batch by batch; failures of an unreachable cell remain."""
    cells = {cell.uuid: cell for cell in fleet.cells()}
    fleet.clock.look()
    producers = ProducerKeyring(fleet.producer_keys, fleet.clock)
    producers.refresh()
    with opened_index(settings.index) as writer:
        writer.prepare()
        for batch in batched(ids, _AT_ONCE):
            # find() leaves out failures that another process has solved meanwhile.
            found = sorted(fleet.failures.find(batch), key=lambda failure: failure.summary.cell_uuid)
            for cell_uuid, of_cell in groupby(found, key=lambda failure: failure.summary.cell_uuid):
                failures = list(of_cell)
                try:
                    with closing(open_adapter(cells[cell_uuid], clock=fleet.clock)) as adapter:
                        yield retry(
                            failures,
                            adapter,
                            writer,
                            fleet.failures,
                            fleet.journals,
                            owners=fleet,
                            announcer=producers.announcer,
                            clock=fleet.clock,
                        )
                except CellUnreachableError as error:
                    yield [RetryResult(failure.id, False, str(error)) for failure in failures]


def _names(fleet: Fleet, cell: str | None) -> dict[str, str]:
    """Names of the chosen cell, or of all cells in the order of their names, by uuid. Raises UnknownCellError."""
    cells = sorted_by_name(fleet.cells()) if cell is None else [fleet.cell(cell)]
    return {each.uuid: each.name for each in cells}


def _summary_as_json(summary: FailureSummary, names: dict[str, str]) -> dict[str, Any]:
    times = {name: iso_time(getattr(summary, name)) for name in ("first_at", "last_at", "reread_at")}
    return {"id": summary.id, "cell": names.get(summary.cell_uuid)} | asdict(summary) | times


def _as_row(summary: FailureSummary, names: dict[str, str]) -> list[str]:
    return [
        summary.id,
        names[summary.cell_uuid],
        summary.reason,
        str(summary.times),
        f"{from_microseconds(summary.last_at):%Y-%m-%d %H:%M}",
        summary.instance_uuid or "-",
        summary.detail,
    ]
