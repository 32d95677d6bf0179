"""`fleetlight balance`: shows and makes the moves that balance the nodes of clusters."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from fleetlight.cells.errors import CellError, CellUnreachableError
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.opening import open_changelog_adapter
from fleetlight.cells.model import Cell
from fleetlight.cli.errors import CommandError, ConfigurationError
from fleetlight.cli.fleet import chosen_cells, open_fleet
from fleetlight.cli.options import (
    CellOption,
    ConfigOption,
    DataDirOption,
    OneCellArgument,
    Output,
    OutputOption,
    examples,
    one_cell,
)
from fleetlight.cli.output import counted, print_notice, print_paragraph, print_result, print_rows, print_table
from fleetlight.cli.settings import Settings, load_settings
from fleetlight.cli.work_progress import shown_progress
from fleetlight.manager.commands.cluster_models import FleetClusters, cluster_of_file, clusters_of_cells, save_cluster
from fleetlight.manager.operations.balancing.cluster import Cluster
from fleetlight.manager.operations.balancing.errors import UnknownGroupError
from fleetlight.manager.operations.balancing.moves import MoveKind
from fleetlight.manager.operations.balancing.plan import (
    BalancePlan,
    GroupPlan,
    NodesOfInstance,
    PlannedMove,
    plan_balance,
)
from fleetlight.manager.operations.rebalancing.execution import ExecutedMove, Execution, finish_unfinished
from fleetlight.manager.operations.rebalancing.jobs import MoveJobs

_POLL_INTERVAL_S = 0.2


@contextmanager
def cells_to_balance(settings: Settings, name: str | None) -> Iterator[Mapping[str, MoveJobs]]:
    """The native cells by name, or only the named one; meanwhile no other call moves instances in them.

    It first waits for the end of jobs from earlier calls. Raises ConfigurationError for a cell that is only read,
    UnknownCellError, CellUnreachableError, and CommandError for a cell in which another process moves instances.
    """
    with open_fleet(settings.fleet) as fleet, ExitStack() as stack:
        leases = stack.enter_context(closing(fleet.open_leases("fleetlight balance")))
        found = {}
        for cell in _changeable(fleet, name):
            lease = f"balance of cell {cell.uuid}"
            if not leases.acquire(lease):
                raise CommandError(f"cell {cell.name}: {leases.holder(lease)} moves its instances; wait until it ends")
            adapter = stack.enter_context(closing(open_changelog_adapter(cell)))
            jobs = MoveJobs(adapter.engine, fleet, cell)
            try:
                for left in finish_unfinished(jobs, _pause):
                    print_notice(f"Cell {cell.name}: waiting for {counted(left, 'job')} of an earlier call")
            except CellUnreachableError as error:
                if name is not None:
                    raise
                print_notice(str(error))
            else:
                found[cell.name] = jobs
        yield found


def _changeable(fleet: Fleet, name: str | None) -> Iterator[Cell]:
    for cell in chosen_cells(fleet, name):
        if cell.can.takes_changes:
            yield cell
        elif name is None:
            print_notice(f"Cell {cell.name} is only read (kind '{cell.kind}'): nothing is moved there")
        else:
            text = f"cell {cell.name} is only read (kind '{cell.kind}'); without --execute its moves are shown"
            raise ConfigurationError(f"--execute: {text}")


def carry_out(jobs: Mapping[str, MoveJobs], plans: Mapping[str, BalancePlan]) -> Mapping[str, Execution]:
    """Make the moves of each cell by name, and wait for their end; if interrupted, say which jobs go on."""
    executions = {
        name: Execution(jobs[name], [move for group in plan.groups for move in group.moves])
        for name, plan in plans.items()
    }
    with shown_progress("moves") as start:
        bars = {name: start(name, len(execution.moves)) for name, execution in executions.items()}
        try:
            _run(executions, lambda name: bars[name](executions[name].made))
        except (KeyboardInterrupt, CellError):
            for name, execution in executions.items():
                _tell_what_goes_on(name, execution)
            raise
    return executions


def _run(executions: Mapping[str, Execution], show: Callable[[str], None]) -> None:
    while not all(execution.is_over for execution in executions.values()):
        for name, execution in executions.items():
            execution.advance()
            show(name)
        if not all(execution.is_over for execution in executions.values()):
            _pause()


def _tell_what_goes_on(name: str, execution: Execution) -> None:
    made = f"Cell {name}: {execution.made} of {counted(len(execution.moves), 'move')} made"
    numbers = [str(each.job) for each in execution.moves if each.is_under_way]
    print_notice(f"{made}; nothing more is submitted" + (f", and jobs {', '.join(numbers)} go on" if numbers else ""))


def failures(executions: Mapping[str, Execution]) -> Sequence[str]:
    """A sentence for each move that failed."""
    return [
        f"{each.move.instance}: {'' if each.job is None else f'job {each.job}: '}{ending.why or ending.status}"
        for execution in executions.values()
        for each in execution.moves
        if (ending := each.ending) is not None and not each.is_made
    ]


def _pause() -> None:
    time.sleep(_POLL_INTERVAL_S)


app = typer.Typer()

_COLUMNS = ("INSTANCE", "FROM", "TO", "GAIN", "SCORE", "STEPS")
_Plans = Mapping[str, BalancePlan]
"""The plans by the name of the cell, which is empty for the cluster of a file."""


@app.command(
    "balance",
    epilog=examples(
        "fleetlight balance",
        "fleetlight balance cell1 --group default --output json",
        "fleetlight balance --text-data cluster.data --save-text balanced.data",
        "fleetlight balance cell1 --execute",
    ),
)
def balance(
    of_cell: OneCellArgument = None,
    *,
    cell: CellOption = None,
    group: Annotated[
        str | None, typer.Option(metavar="NAME", help="Balance only this node group, by name or uuid.")
    ] = None,
    text_data: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Read a cluster from htools' text format, instead of the cells.")
    ] = None,
    save_text: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the cluster after the moves in htools' text format.")
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Make the moves, and wait for their end.")] = False,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Show which moves balance the nodes of a cluster, by the score of Ganeti's hbal, and make them with --execute.

    Moves of reservations, which cost nothing, are preferred; no instance leaves its node group.
    """
    cell = one_cell(of_cell, cell)
    if text_data is None:
        settings = load_settings(config, data_dir)
        if execute:
            with cells_to_balance(settings, cell) as jobs:
                _execute(_found(asyncio.run(clusters_of_cells(settings, cell)), jobs), jobs, group, save_text, output)
            return
        found = asyncio.run(clusters_of_cells(settings, cell))
    elif cell is None and not execute:
        found = FleetClusters({"": cluster_of_file(text_data)}, has_all_cells=True)
    else:
        what = "--cell" if cell is not None else "--execute"
        raise ConfigurationError(f"{what}: a text file is not of a cell; leave out {what} or --text-data")
    plans = _plans(found.by_cell, group)
    _check_saving(plans, save_text)
    _print(output, plans, {**_document(plans), **_coverage(found)})
    if save_text is not None:
        save_cluster(next(iter(plans.values())).after, save_text)
    found.notice_missing()


def _execute(
    found: FleetClusters, jobs: Mapping[str, MoveJobs], group: str | None, save_text: Path | None, output: Output
) -> None:
    """Make the moves of native cells. Raises CommandError if some could not be made."""
    plans = _plans(found.by_cell, group)
    _check_saving(plans, save_text)
    if output is Output.TABLE:
        _show_all(plans)
    executions = carry_out(jobs, plans)
    failed = failures(executions)
    if output is not Output.TABLE:
        _print(output, plans, {**_document(plans, executions), **_coverage(found)})
    else:
        for name, execution in executions.items():
            print_result(f"Cell {name}: {execution.made} of {counted(len(execution.moves), 'move')} made")
    found.notice_missing()
    if failed:
        for sentence in failed:
            print_notice(sentence)
        raise CommandError("not all moves were made; called again, this plans anew from what is there now")
    if save_text is not None:
        save_cluster(next(iter(plans.values())).after, save_text)
    if not found.is_complete:
        raise CommandError("not everything was balanced")


def _found(found: FleetClusters, jobs: Mapping[str, MoveJobs]) -> FleetClusters:
    """The clusters of the cells in which moves can be made."""
    by_cell = {name: found.by_cell[name] for name in jobs if name in found.by_cell}
    return replace(found, by_cell=by_cell, left_out={name: found.left_out[name] for name in by_cell})


def _check_saving(plans: _Plans, save_text: Path | None) -> None:
    if save_text is not None and len(plans) != 1:
        raise ConfigurationError(
            f"--save-text: a file has one cluster, and here are {len(plans)}; choose one by --cell"
        )


def _coverage(found: FleetClusters) -> Mapping[str, Any]:
    return {"complete": found.is_complete, "left_out": found.listed()}


def _plans(clusters: Mapping[str, Cluster], group: str | None) -> _Plans:
    """Plan the balance of each cluster that has the group. Raises UnknownGroupError if none has it."""
    plans, unknown = {}, None
    for name, cluster in clusters.items():
        try:
            plans[name] = plan_balance(cluster, group)
        except UnknownGroupError as error:
            unknown = error
    if unknown is not None and not plans:
        raise unknown
    return plans


def _document(plans: _Plans, executions: Mapping[str, Execution] | None = None) -> Mapping[str, Any]:
    """The plans as JSON. executions: of the moves, if they were made or tried."""
    groups = [(cell, group) for cell, plan in plans.items() for group in plan.groups]
    moves = [_move(cell, group, move) for cell, group in groups for move in group.moves]
    if executions is not None:
        made = [each for cell in plans for each in executions[cell].moves]
        moves = [{**move, **_outcome(each)} for move, each in zip(moves, made, strict=True)]
    return {
        "score_before": sum(group.score_before for _, group in groups),
        "score_after": sum(group.score_after for _, group in groups),
        "moves": moves,
        "groups": [
            {
                "cell": cell or None,
                "group": group.group,
                "score_before": group.score_before,
                "score_after": group.score_after,
            }
            for cell, group in groups
        ],
    }


def _outcome(each: ExecutedMove) -> Mapping[str, Any]:
    """The job of a move and its result; null if none was submitted."""
    ending = each.ending
    status, why = (None, None) if ending is None else (ending.status, ending.why)
    return {"job": each.job, "status": status, "why": why}


def _move(cell: str, group: GroupPlan, move: PlannedMove) -> Mapping[str, Any]:
    return {
        "instance": move.instance,
        "forthcoming": move.is_forthcoming,
        "cell": cell or None,
        "group": group.group,
        "from": {"primary": move.source.primary, "secondary": move.source.secondary},
        "to": {"primary": move.target.primary, "secondary": move.target.secondary},
        "steps": _steps(move),
        "gain": move.gain,
        "score_after": move.score_after,
    }


def _print(output: Output, plans: _Plans, document: Mapping[str, Any]) -> None:
    if output is Output.TABLE:
        _show_all(plans)
        return
    groups = [(cell, group) for cell, plan in plans.items() for group in plan.groups]
    rows = [[cell or "-", group.group, *row] for cell, group in groups for row in _rows(group)]
    print_rows(output, document, ("CELL", "GROUP", *_COLUMNS), rows)


def _show_all(plans: _Plans) -> None:
    for name, plan in plans.items():
        for group in plan.groups:
            _show(name, group)


def _show(cell: str, group: GroupPlan) -> None:
    rows = _rows(group)
    of_cell = f"Cell {cell}, " if cell else ""
    made = counted(len(rows), "move")
    print_paragraph(
        f"{of_cell}{'group' if of_cell else 'Group'} {group.group}: "
        f"score {group.score_before:.2f} before, {group.score_after:.2f} after {made}"
    )
    if rows:
        print_table(_COLUMNS, rows, right_aligned=("GAIN", "SCORE"))


def _rows(group: GroupPlan) -> Sequence[Sequence[str]]:
    return [
        (
            move.instance + (" (reservation)" if move.is_forthcoming else ""),
            _named(move.source),
            _named(move.target),
            f"{move.gain:.2f}",
            f"{move.score_after:.2f}",
            ", ".join(_steps(move)),
        )
        for move in group.moves
    ]


def _named(nodes: NodesOfInstance) -> str:
    return nodes.primary if nodes.secondary is None else f"{nodes.primary}:{nodes.secondary}"


def _steps(move: PlannedMove) -> Sequence[str]:
    """The steps in order, in gnt-instance's terms; a cell makes those of a reservation all at once."""
    target = move.target
    match move.kind:
        case MoveKind.FAILOVER:
            return ["failover"]
        case MoveKind.FAILOVER_TO:
            return [f"failover to {target.primary}"]
        case MoveKind.REPLACE_SECONDARY:
            return [f"replace-disks to {target.secondary}"]
        case MoveKind.REPLACE_AND_FAILOVER:
            return [f"replace-disks to {target.primary}", "failover"]
        case MoveKind.FAILOVER_AND_REPLACE:
            return ["failover", f"replace-disks to {target.secondary}"]
        case MoveKind.REPLACE_PRIMARY:
            return ["failover", f"replace-disks to {target.primary}", "failover"]
        case MoveKind.PLACE:
            return [f"replace-disks to {target.primary}", "failover", f"replace-disks to {target.secondary}"]
