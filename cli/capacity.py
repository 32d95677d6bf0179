"""`fleetlight capacity`: what the nodes of all cells have left, and how many more instances of a size that is."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlencode

import typer

from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.node_capacity import UNKNOWN_RATIOS, UNKNOWN_ZONE
from fleetlight.cli.cluster_models import FleetClusters, cluster_of_file, clusters_of_cells, notice_missing_cells
from fleetlight.cli.errors import ConfigurationError
from fleetlight.cli.fleet import open_fleet
from fleetlight.cli.options import ConfigOption, DataDirOption, TableOrJson, examples
from fleetlight.cli.output import print_json, print_notice, print_result, print_table
from fleetlight.cli.settings import Settings, load_settings
from fleetlight.operations.balancing.capacity import Tier, count_of, tiers_of, without_reservations
from fleetlight.operations.balancing.cluster import Cluster, DiskTemplate
from fleetlight.resources.amount import Amount
from fleetlight.resources.units import MIB_PER_GIB

app = typer.Typer()

_COLUMNS = ("CELL", "ZONE", "GROUP", "NODES", "OF", "TOTAL", "USED", "RESERVED", "FREE", "LARGEST HOLE")
_AMOUNTS = ("total", "used", "reserved", "free", "largest_hole")
_SIZE_PARTS = 3


@app.command(
    "capacity",
    epilog=examples(
        "fleetlight capacity",
        "fleetlight capacity --cell cell1 --output json",
        "fleetlight capacity --size 4096,20480,2",
        "fleetlight capacity --size 4096,20480,2 --disk-template drbd --text-data cluster.data",
    ),
)
def capacity(
    *,
    size: Annotated[
        str | None,
        typer.Option(metavar="MEMORY,DISK,VCPUS", help="Count how many instances of this size, in MiB, fit."),
    ] = None,
    disk_template: Annotated[
        DiskTemplate,
        typer.Option(metavar="TEMPLATE", help=f"With --size: {', '.join(DiskTemplate)}."),
    ] = DiskTemplate.PLAIN,
    no_capacity_checks: Annotated[
        bool,
        typer.Option("--no-capacity-checks", help="With --size: count room too that the failure of a node would need."),
    ] = False,
    cell: Annotated[str | None, typer.Option(metavar="NAME", help="Only this cell.")] = None,
    text_data: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --size: a text file of htools with a cluster, instead of the cells."),
    ] = None,
    output: Annotated[TableOrJson, typer.Option(metavar="FORM", help=", ".join(TableOrJson))] = TableOrJson.TABLE,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Show what the nodes of all cells have free, and how many more instances of a size fit.

    Without --size: total, used, reserved and free of each cell, zone and group, and its largest hole.
    """
    if size is None:
        if text_data is not None:
            raise ConfigurationError("--text-data: the room in a file depends on a size; give --size as well")
        found = asyncio.run(_overview(load_settings(config, data_dir), cell))
        show = print_json if output is TableOrJson.JSON else _show_overview
        show(found)
        if found["missing"]:
            notice_missing_cells()
        for each in found["cells"]:
            _notice_unknown(each)
        return
    wanted = _size(size)
    if text_data is not None:
        clusters = FleetClusters({text_data.name: cluster_of_file(text_data)}, has_all_cells=True)
    else:
        clusters = asyncio.run(clusters_of_cells(load_settings(config, data_dir), cell))
    rooms = [
        _room(name, cluster, wanted, disk_template, stays_redundant=not no_capacity_checks)
        for name, cluster in clusters.by_cell.items()
    ]
    if output is TableOrJson.JSON:
        print_json(_document(rooms, clusters))
    else:
        _show_rooms(rooms)
    clusters.notice_missing()


def _notice_unknown(summary: Mapping[str, Any]) -> None:
    if UNKNOWN_RATIOS in summary["unknown"]:
        print_notice(f"Cell {summary['cell']}: ratios are not known, so nothing counts as overcommitted there")
    if UNKNOWN_ZONE in summary["unknown"]:
        print_notice(f"Cell {summary['cell']}: zones are not known")
    if silent := ", ".join(summary["silent_nodes"]):
        what = f"nodes without figures do not count: {silent}"
        print_notice(f"Not complete: cell {summary['cell']}: {what}")


async def _overview(settings: Settings, cell: str | None) -> dict[str, Any]:
    """The answer of `GET /fleetlight/capacity`, and whether it is complete. Raises UnknownCellError, CommandError."""
    with open_fleet(settings.fleet) as fleet:
        if cell is not None:
            fleet.cell(cell)
        return await _ask(settings, fleet, cell)


async def _ask(settings: Settings, fleet: Fleet, cell: str | None) -> dict[str, Any]:
    from fleetlight.cli.in_process import document_of, opened_api  # noqa: PLC0415 -- other commands would start a quarter later

    async with opened_api(settings, fleet) as api:
        query = "" if cell is None else urlencode({"cell": cell})
        answer = await api.call("GET", "/fleetlight/capacity", query=query)
    return {**document_of(answer), "complete": answer.headers["fleetlight-complete"] == "true"}


def _show_overview(found: Mapping[str, Any]) -> None:
    rows = []
    for whole in found["cells"]:
        parts = [part for part in found["parts"] if part["cell"] == whole["cell"]]
        # A cell of one zone and group is one line.
        rows += [_overview_row(part) for part in (parts if len(parts) == 1 else [whole, *parts])]
    rows += [(each["cell"], "(no answer)", *[""] * (len(_COLUMNS) - 2)) for each in found["missing"]]
    print_table(_COLUMNS, rows, right_aligned=_COLUMNS[3:])


def _overview_row(summary: Mapping[str, Any]) -> tuple[str, ...]:
    nodes = (str(summary["available_nodes"]), str(summary["nodes"]))
    named = (summary["cell"], summary["zone"] or "-", summary["group"] or "-")
    return (*named, *nodes, *(_amounts(summary[name]) for name in _AMOUNTS))


def _amounts(said: Mapping[str, int]) -> str:
    """Processors, memory and disk, for people."""
    return f"{said['vcpus']} / {said['memory_mib'] / MIB_PER_GIB:.1f}G / {said['disk_mib'] / MIB_PER_GIB:.1f}G"


def _size(text: str) -> Amount:
    parts = text.split(",")
    if len(parts) != _SIZE_PARTS or not all(part.isascii() and part.isdigit() and int(part) for part in parts):
        raise ConfigurationError(f"--size: {text!r} is not memory,disk,processors, such as 4096,20480,2")
    memory_mib, disk_mib, vcpus = map(int, parts)
    return Amount(vcpus, memory_mib, disk_mib)


def _room(
    name: str, cluster: Cluster, size: Amount, template: DiskTemplate, *, stays_redundant: bool
) -> Mapping[str, Any]:
    tiers = tiers_of(cluster, size, template, stays_redundant=stays_redundant)
    alone = without_reservations(cluster)
    tiers_alone = tiers if alone == cluster else tiers_of(alone, size, template, stays_redundant=stays_redundant)
    return {
        "cell": name,
        "count": count_of(size, tiers),
        "count_without_reservations": count_of(size, tiers_alone),
        "tiers": [_tier(tier) for tier in tiers],
        "tiers_without_reservations": [_tier(tier) for tier in tiers_alone],
    }


def _tier(tier: Tier) -> Mapping[str, int]:
    size = tier.size
    return {"memory_mib": size.memory_mib, "disk_mib": size.disk_mib, "vcpus": size.vcpus, "count": tier.count}


def _document(rooms: Sequence[Mapping[str, Any]], clusters: FleetClusters) -> Mapping[str, Any]:
    names = ("count", "count_without_reservations")
    sums = {name: sum(room[name] for room in rooms) for name in names}
    return {**sums, "cells": rooms, "complete": clusters.is_complete, "left_out": clusters.listed()}


def _show_rooms(rooms: Sequence[Mapping[str, Any]]) -> None:
    rows = [
        (
            room["cell"],
            str(room["count"]),
            str(room["count_without_reservations"]),
            ", ".join(
                f"{tier['count']} × {tier['memory_mib']},{tier['disk_mib']},{tier['vcpus']}" for tier in room["tiers"]
            ),
        )
        for room in rooms
    ]
    print_table(("CELL", "MORE", "WITHOUT RESERVATIONS", "TIERS"), rows, right_aligned=("MORE", "WITHOUT RESERVATIONS"))
    print_result(f"In all {sum(room['count'] for room in rooms)} more")
