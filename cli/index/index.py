"""`fleetlight index`: shows the state of the search index, fills it from the cells, and compares it with them."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from threading import Event
from typing import Annotated, Any

import msgspec
import typer

from fleetlight.bus.bus import dead_letters
from fleetlight.bus.settings import BusSettings
from fleetlight.cells.fleet.index_work import WorkKind
from fleetlight.cells.kinds.opening import open_changelog_adapter
from fleetlight.cells.model import Cell
from fleetlight.cli.fleet import LoadedSettings, OpenFleet, chosen_cells, is_in_process
from fleetlight.cli.index import extra_fields, failures, purge, rebuild, sync, work
from fleetlight.cli.index.mappings import mappings_as_json, report_mappings
from fleetlight.cli.index.recorded_work import instances_of, recorded
from fleetlight.cli.index.verification import (
    print_problems,
    print_verified,
    shown_verification,
    verification_outcome,
    verify_cells,
)
from fleetlight.cli.opened_index import IndexedCells, opened_index, read_index
from fleetlight.cli.options import CellOption, Output, OutputOption, examples
from fleetlight.cli.output import in_brackets, print_error, print_notice, print_rows
from fleetlight.indexer.backends.opening import open_generations
from fleetlight.indexer.errors import IndexAbsentError, IndexerError, IndexUnavailableError
from fleetlight.indexer.followed_by import FollowedBy
from fleetlight.indexer.settings import IndexSettings
from fleetlight.indexer.status import CellIndexStatus, IndexHealth, read_status
from fleetlight.indexer.writing.leases import CellLeases
from fleetlight.resources.indexed_items import INDEXED_ITEMS

app = typer.Typer(
    no_args_is_help=True, epilog=examples("fleetlight index status", "fleetlight index sync", "fleetlight index verify")
)
app.add_typer(failures.app, name="failures")
app.add_typer(work.app, name="work")

_FOLLOWER = "fleetlight indexer"
_NUMBERS = ("watermark", "published_sequence", "lag_changes", "dead_letters")


@app.command(epilog=examples("fleetlight index status", "fleetlight index status --output json"))
def status(settings: LoadedSettings, fleet: OpenFleet, output: OutputOption = Output.TABLE) -> None:
    """Show how far the index follows each cell.

    COMPLETE refers to instances. FOLLOWED BY is `changes` if the cell numbers them, `log` if the log of its database
    server shows what each commit touches, and `comparisons` if all rows are read at intervals. NODES is the number of
    the cell's nodes in the index, or `no` while some are missing; lists then ask the cell for its nodes. Exit code 1
    unless the index is complete and up to date in every cell, and the fleet database maps its instances.
    """
    cells = chosen_cells(fleet, None)
    failures_kept = fleet.failures.counts()
    fleet.clock.look()
    mappings = fleet.compared_mappings.all()
    problem: IndexUnavailableError | None = None
    indexed = IndexedCells()
    try:
        indexed = read_index(settings.index)
    except IndexUnavailableError as error:
        problem = error
    now, limit_s = fleet.clock(), settings.search.staleness_limit_s
    reasons = {
        cell.uuid: str(problem) if problem else indexed.why_live(cell, now=now, limit_s=limit_s) for cell in cells
    }
    statuses = read_status(
        cells,
        indexed.progress,
        open_adapter=open_changelog_adapter,
        count_dead_letters=partial(_count_dead_letters, settings.bus, failures_kept, indexed),
        now=now,
        staleness_limit_s=limit_s,
        comparison_interval_s=settings.indexer.interval_s,
    )
    document = [
        {
            **_as_json(each, indexed),
            "lists_ask_cell": reasons[each.cell.uuid],
            "mappings": mappings_as_json(mappings.get(each.cell.uuid)),
        }
        for each in statuses
    ]
    others = tuple(f"{stored.noun}s".upper() for stored in INDEXED_ITEMS.values())
    columns = ("CELL", "HEALTH", "COMPLETE", "FOLLOWED BY", *others, "WATERMARK", "PUBLISHED", "LAG", "DEAD", "AGE S")
    print_rows(output, document, columns, [_as_row(each, indexed) for each in statuses], right_aligned=columns[4:])
    following = "fleetlight up" if cells and all(map(is_in_process, cells)) else _FOLLOWER
    if problem is not None:
        makes_it = f"; if it was never there, `{following}` makes it when it starts"
        print_error(f"the index cannot be read: {problem}{makes_it if isinstance(problem, IndexAbsentError) else ''}")
        print_notice("until it can, lists are answered by the cells")
    for each in statuses:
        if each.problem:
            print_error(each.problem)
    _report_stale([each for each in statuses if each.health is IndexHealth.STALE], following)
    if not settings.search.enabled:
        print_notice("search.enabled is off in this configuration: an API that has it lists from the cells alone")
    if problem is None:
        _report_live(statuses, reasons)
        _report_compared(statuses)
        _report_schema_violations(settings.index)
        _report_rebuilds(settings.index)
    are_mapped = report_mappings(cells, mappings, fleet.clock())
    if problem is not None or not are_mapped or any(each.health is not IndexHealth.OK for each in statuses):
        raise typer.Exit(1)


purge.register(app)
sync.register(app)
rebuild.register(app)
extra_fields.register(app)


@app.command(epilog=examples("fleetlight index verify", "fleetlight index verify --repair --cell cell2"))
def verify(
    *,
    repair: Annotated[
        bool, typer.Option("--repair", help="Make the index equal to the cells where they differ.")
    ] = False,
    fast: Annotated[
        bool,
        typer.Option("--fast", help="Compare only the revisions in the index, not the documents."),
    ] = False,
    cell: CellOption = None,
    settings: LoadedSettings,
    fleet: OpenFleet,
    output: OutputOption = Output.TABLE,
) -> None:
    """Compare the index, and the mappings of the fleet database, with the cells.

    Safe while changes arrive: a change that is not indexed yet is no difference.
    The command reads every instance on both sides and compares the documents.
    INSTANCES counts those of the cell, and DELETED how many of these are deleted: cell and index keep them for a while.
    Exit code 0 if they agree (now), 1 if they differ or a cell could not be compared, 2 if something is misconfigured.
    """
    with (
        opened_index(settings.index) as writer,
        closing(CellLeases(fleet.open_leases("fleetlight index verify"))) as leases,
    ):
        cells = chosen_cells(fleet, cell)
        writer.prepare()
        kind = WorkKind.REPAIR if repair else WorkKind.VERIFY
        total = None if fast else instances_of(fleet, cells)
        with (
            recorded(fleet, kind, [each.uuid for each in cells], total, Event()) as progress,
            shown_verification(fast=fast) as start,
        ):
            verified = verify_cells(cells, writer, leases, fleet, progress, repair=repair, fast=fast, start=start)
            progress.outcome = verification_outcome(verified)
    print_verified(output, verified)
    print_problems(verified)
    if not all(each.agrees for each in verified):
        raise typer.Exit(1)


def _report_stale(stale: Sequence[CellIndexStatus], following: str) -> None:
    """Say for which cells the index is stale. following: the command that follows the cells."""
    if not stale:
        return
    # If the index has all that was published, the cause may be that no relay publishes.
    is_relayed = following == _FOLLOWER and any(each.lag_changes == 0 for each in stale)
    commands = f"do `fleetlight relay` and `{following}`" if is_relayed else f"does `{following}`"
    names = ", ".join(each.cell.name for each in stale)
    print_notice(
        f"stale: nothing says any more that the index has every change of {names}; {commands} run? One that "
        "does says in its log what it waits for"
    )


def _report_live(statuses: Sequence[CellIndexStatus], reasons: Mapping[str, str | None]) -> None:
    """Say why lists ask cells themselves; stale cells are left out, since _report_stale explains them."""
    asked = [each for each in statuses if each.health is not IndexHealth.STALE]
    for reason, names in _names_by_reason((each.cell.name, reasons[each.cell.uuid]) for each in asked):
        print_notice(f"{names}: {reason}; lists ask the cell")


def _report_compared(statuses: Sequence[CellIndexStatus]) -> None:
    """Say which cells are only compared, although their databases might have a log."""
    problems = ((each.cell.name, None if each.log is None else each.log.problem) for each in statuses)
    for problem, names in _names_by_reason(problems):
        print_notice(f"{names}: compared now and then, not followed by the log of the database server: {problem}")


def _names_by_reason(cells: Iterable[tuple[str, str | None]]) -> Iterable[tuple[str, str]]:
    """Group cells by reason: yields each reason with their names. cells: pairs of a name and its reason, or None."""
    names: dict[str, list[str]] = {}
    for name, reason in cells:
        if reason is not None:
            names.setdefault(reason, []).append(name)
    return ((reason, ", ".join(of_reason)) for reason, of_reason in names.items())


def _report_rebuilds(settings: IndexSettings) -> None:
    try:
        with closing(open_generations(settings)) as generations:
            if generations.has_next():
                print_notice(
                    "a rebuild runs, or was cut off: `fleetlight index rebuild` goes on with it, "
                    "`fleetlight index rebuild --abandon` gives it up"
                )
            if generations.has_previous():
                _, previous = generations.names()
                print_notice(
                    f"the index that the last rebuild replaced{in_brackets(previous)} is kept: `fleetlight index "
                    "drop-old` drops it, `fleetlight index rebuild --back` returns to it"
                )
    except IndexerError as error:
        print_notice(f"what rebuilds have left behind is not known: {error}")


def _report_schema_violations(settings: IndexSettings) -> None:
    try:
        schema_violations = extra_fields.count_schema_violations(settings)
    except IndexerError as error:
        print_notice(f"what newer producers have brought is not known: {error}")
        return
    if schema_violations:
        print_notice(
            f"values of newer producers contradict their schemas: {schema_violations}; see `fleetlight index fields`"
        )


def _count_dead_letters(
    settings: BusSettings, failures_kept: Mapping[str, int], indexed: IndexedCells, cell: Cell
) -> int:
    """The dead letters in the fleet database, plus those on the bus that no indexer has taken over yet."""
    # This process cannot reach the bus inside `fleetlight up`, and no process reads the bus of a cell that is followed
    # by its log.
    has_no_bus = is_in_process(cell) or not cell.transport_url or indexed.followed_by(cell) is FollowedBy.LOG
    on_the_bus = 0 if has_no_bus else dead_letters(cell.transport_url, cell.uuid, settings)
    return failures_kept.get(cell.uuid, 0) + on_the_bus


def _as_json(status: CellIndexStatus, indexed: IndexedCells) -> dict[str, Any]:
    return {
        "cell": status.cell.name,
        "cell_uuid": status.cell.uuid,
        "health": status.health.value,
        "complete": status.is_complete,
        "followed_by": status.followed_by.value,
        "log_problem": None if status.log is None else status.log.problem,
        "log_positions": {} if status.log is None else msgspec.to_builtins(status.log.positions),
        "watermark": status.watermark,
        "published_sequence": status.published_sequence,
        "lag_changes": status.lag_changes,
        "age_s": status.age_s,
        "dead_letters": status.dead_letters,
        "items": {name: of.get(status.cell.uuid) for name, of in indexed.items.items()},
        "problem": status.problem,
    }


def _as_row(status: CellIndexStatus, indexed: IndexedCells) -> list[str]:
    values = _as_json(status, indexed)
    age = "-" if status.age_s is None else f"{status.age_s:.1f}"
    numbers = ("-" if values[key] is None else str(values[key]) for key in _NUMBERS)
    is_complete = "yes" if status.is_complete else "no"
    counts = (_item_count(status, indexed.items.get(name, {})) for name in INDEXED_ITEMS)
    return [status.cell.name, status.health.value, is_complete, status.followed_by.value, *counts, *numbers, age]


def _item_count(status: CellIndexStatus, counts: Mapping[str, int]) -> str:
    """The count of items; `-` for cells that do not number changes, of which the index has only instances."""
    count = counts.get(status.cell.uuid)
    return str(count) if count is not None else "no" if status.cell.can.numbers_changes else "-"
