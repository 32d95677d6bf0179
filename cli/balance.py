"""`fleetlight balance`: the moves that balance the nodes of clusters."""

import asyncio
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.cluster_models import FleetClusters, cluster_of_file, clusters_of_cells, save_cluster
from cli.errors import ConfigurationError
from cli.options import ConfigOption, DataDirOption, examples
from cli.output import counted, print_json, print_notice, print_result, print_table
from cli.settings import load_settings
from operations.balancing.cluster import Cluster
from operations.balancing.errors import UnknownGroupError
from operations.balancing.moves import MoveKind
from operations.balancing.plan import GroupPlan, NodesOfInstance, Plan, PlannedMove, plan_balance

app = typer.Typer()

_COLUMNS = ("INSTANCE", "FROM", "TO", "STEPS", "GAIN", "SCORE")
_Plans = Mapping[str | None, Plan]
"""By the name of the cell; None for the cluster of a file."""


class OutputForm(StrEnum):
    TABLE = "table"
    JSON = "json"


@app.command(
    "balance",
    epilog=examples(
        "fleetlight balance",
        "fleetlight balance --cell cell1 --group default --output json",
        "fleetlight balance --text-data cluster.data --save-text balanced.data",
    ),
)
def balance(
    *,
    cell: Annotated[str | None, typer.Option(metavar="NAME", help="Only this cell.")] = None,
    group: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this node group, by its name or uuid.")
    ] = None,
    text_data: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A text file of htools with a cluster, instead of the cells.")
    ] = None,
    save_text: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the cluster after the moves as a text file of htools.")
    ] = None,
    output: Annotated[OutputForm, typer.Option(metavar="FORM", help=", ".join(OutputForm))] = OutputForm.TABLE,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Say which moves balance the nodes of a cluster, by the score of Ganeti's hbal.

    Nothing is moved. Reservations, which move for free, are preferred; no instance leaves its node group.
    """
    if text_data is None:
        found = asyncio.run(clusters_of_cells(load_settings(config, data_dir), cell))
    elif cell is None:
        found = FleetClusters({"": cluster_of_file(text_data)}, is_complete=True)
    else:
        raise ConfigurationError("--cell: a text file is not of a cell; leave out --cell or --text-data")
    plans: _Plans = {name or None: plan for name, plan in _plans(found.by_cell, group).items()}
    if save_text is not None and len(plans) != 1:
        raise ConfigurationError(
            f"--save-text: a file has one cluster, and here are {len(plans)}; choose one by --cell"
        )
    if output is OutputForm.JSON:
        print_json({**_document(plans), "complete": found.is_complete})
    else:
        for name, plan in plans.items():
            for of_group in plan.groups:
                _show(name, of_group)
    if save_text is not None:
        save_cluster(next(iter(plans.values())).after, save_text)
    if not found.is_complete:
        print_notice("Not complete: not all cells could answer; `fleetlight list nodes` tells which")


def _plans(clusters: Mapping[str, Cluster], group: str | None) -> Mapping[str, Plan]:
    """How to balance each cluster that has the group. Raises UnknownGroupError if none has it."""
    plans, unknown = {}, None
    for name, cluster in clusters.items():
        try:
            plans[name] = plan_balance(cluster, group)
        except UnknownGroupError as error:
            unknown = error
    if unknown is not None and not plans:
        raise unknown
    return plans


def _document(plans: _Plans) -> Mapping[str, Any]:
    groups = [(cell, group) for cell, plan in plans.items() for group in plan.groups]
    return {
        "score_before": sum(group.score_before for _, group in groups),
        "score_after": sum(group.score_after for _, group in groups),
        "moves": [_move(cell, group, move) for cell, group in groups for move in group.moves],
        "groups": [
            {
                "cell": cell,
                "group": group.group,
                "score_before": group.score_before,
                "score_after": group.score_after,
            }
            for cell, group in groups
        ],
    }


def _move(cell: str | None, group: GroupPlan, move: PlannedMove) -> Mapping[str, Any]:
    return {
        "instance": move.instance,
        "forthcoming": move.is_forthcoming,
        "cell": cell,
        "group": group.group,
        "from": {"primary": move.source.primary, "secondary": move.source.secondary},
        "to": {"primary": move.target.primary, "secondary": move.target.secondary},
        "steps": _steps(move),
        "gain": move.gain,
        "score_after": move.score_after,
    }


def _show(cell: str | None, group: GroupPlan) -> None:
    rows = [
        (
            move.instance + (" (reservation)" if move.is_forthcoming else ""),
            _named(move.source),
            _named(move.target),
            ", ".join(_steps(move)),
            f"{move.gain:.8f}",
            f"{move.score_after:.8f}",
        )
        for move in group.moves
    ]
    if rows:
        print_table(_COLUMNS, rows, right_aligned=_COLUMNS[-2:])
    of_cell = "" if cell is None else f"Cell {cell}, "
    made = counted(len(rows), "move")
    print_result(
        f"{of_cell}{'group' if of_cell else 'Group'} {group.group}: "
        f"score {group.score_before:.8f} before, {group.score_after:.8f} after {made}"
    )


def _named(nodes: NodesOfInstance) -> str:
    return nodes.primary if nodes.secondary is None else f"{nodes.primary}:{nodes.secondary}"


def _steps(move: PlannedMove) -> Sequence[str]:
    """What is done one after the other, in the words of gnt-instance."""
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
