"""`fleetlight balance`: the moves that balance the nodes of a cluster."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from cli.cluster_models import cluster_of_file, save_cluster
from cli.options import examples
from cli.output import counted, print_json, print_result, print_table
from operations.balancing.moves import MoveKind
from operations.balancing.plan import GroupPlan, NodesOfInstance, PlannedMove, plan_balance

app = typer.Typer()

_COLUMNS = ("INSTANCE", "FROM", "TO", "STEPS", "GAIN", "SCORE")


class OutputForm(StrEnum):
    TABLE = "table"
    JSON = "json"


@app.command(
    "balance",
    epilog=examples(
        "fleetlight balance --text-data cluster.data",
        "fleetlight balance --text-data cluster.data --group default --save-text balanced.data",
        "fleetlight balance --text-data cluster.data --output json",
    ),
)
def balance(
    *,
    text_data: Annotated[Path, typer.Option(metavar="FILE", help="A text file of htools with the cluster.")],
    save_text: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the cluster after the moves as a text file of htools.")
    ] = None,
    group: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only this node group, by its name or uuid.")
    ] = None,
    output: Annotated[OutputForm, typer.Option(metavar="FORM", help=", ".join(OutputForm))] = OutputForm.TABLE,
) -> None:
    """Say which moves balance the nodes of a cluster, by the score of Ganeti's hbal.

    Nothing is moved. Reservations, which move for free, are preferred; no instance leaves its node group.
    """
    plan = plan_balance(cluster_of_file(text_data), group)
    if output is OutputForm.JSON:
        print_json(_document(plan.groups))
    else:
        for of_group in plan.groups:
            _show(of_group)
    if save_text is not None:
        save_cluster(plan.after, save_text)


def _document(groups: Sequence[GroupPlan]) -> Mapping[str, Any]:
    return {
        "score_before": sum(group.score_before for group in groups),
        "score_after": sum(group.score_after for group in groups),
        "moves": [_move(group, move) for group in groups for move in group.moves],
        "groups": [
            {"group": group.group, "score_before": group.score_before, "score_after": group.score_after}
            for group in groups
        ],
    }


def _move(group: GroupPlan, move: PlannedMove) -> Mapping[str, Any]:
    return {
        "instance": move.instance,
        "forthcoming": move.is_forthcoming,
        "group": group.group,
        "from": {"primary": move.source.primary, "secondary": move.source.secondary},
        "to": {"primary": move.target.primary, "secondary": move.target.secondary},
        "steps": _steps(move),
        "gain": move.gain,
        "score_after": move.score_after,
    }


def _show(group: GroupPlan) -> None:
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
    made = counted(len(rows), "move")
    print_result(f"Group {group.group}: score {group.score_before:.8f} before, {group.score_after:.8f} after {made}")


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
