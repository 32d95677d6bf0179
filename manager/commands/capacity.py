"""`fleetlight capacity`: shows the free capacity of all cells, and how many more instances of a size fit."""

import asyncio
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from fleetlight.cells.node_capacity import UNKNOWN_DISK, UNKNOWN_RATIOS, UNKNOWN_ZONE
from fleetlight.cli.errors import ConfigurationError
from fleetlight.cli.fleet import named_cell
from fleetlight.cli.operator_api import open_operator_api
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
from fleetlight.cli.output import print_notice, print_result, print_rows
from fleetlight.cli.settings import load_settings
from fleetlight.cli.sizes import size_option, size_text
from fleetlight.manager.commands.cluster_models import (
    FleetClusters,
    cluster_of_file,
    clusters_of_cells,
    notice_missing_cells,
)
from fleetlight.manager.operations.balancing.capacity import Tier, count_of, tiers_of, without_reservations
from fleetlight.manager.operations.balancing.cluster import Cluster, DiskTemplate
from fleetlight.resources.amount import Amount
from fleetlight.resources.units import MIB_PER_GIB

app = typer.Typer()

_COLUMNS = ("CELL", "RESOURCE", "TOTAL", "USED", "RESERVED", "FREE", "TAKEN %")
_COLUMNS_OF_PARTS = ("CELL", "ZONE", "GROUP", *_COLUMNS[1:], "LARGEST", "NODES")
_AMOUNTS = {"TOTAL": "total", "USED": "used", "RESERVED": "reserved", "FREE": "free", "LARGEST": "largest_hole"}
_RESOURCES = (
    ("processors", "vcpus", 1),
    ("memory GiB", "memory_mib", MIB_PER_GIB),
    ("disk GiB", "disk_mib", MIB_PER_GIB),
)
_BAR_CHARACTERS = 8
_SIZE_OPTIONS = "--memory, --disk and --vcpus"


@app.command(
    "capacity",
    epilog=examples(
        "fleetlight capacity",
        "fleetlight capacity cell1 --parts",
        "fleetlight capacity --cell cell1 --output json",
        "fleetlight capacity --memory 4G --disk 20G --vcpus 2",
        "fleetlight capacity --memory 4G --disk 20G --vcpus 2 --disk-template drbd --text-data cluster.data",
    ),
)
def capacity(
    of_cell: OneCellArgument = None,
    *,
    parts: Annotated[bool, typer.Option("--parts", help="Also show each zone and node group.")] = False,
    memory: Annotated[int | None, size_option("Count how many instances with this memory fit")] = None,
    disk: Annotated[int | None, size_option("Their disk, to be given with --memory")] = None,
    vcpus: Annotated[int | None, typer.Option(min=1, help="Their processors, to be given with --memory.")] = None,
    disk_template: Annotated[
        DiskTemplate,
        typer.Option(metavar="TEMPLATE", help=f"With --memory: {', '.join(DiskTemplate)}."),
    ] = DiskTemplate.PLAIN,
    no_capacity_checks: Annotated[
        bool,
        typer.Option("--no-capacity-checks", help="With --memory: also count room needed if a node fails."),
    ] = False,
    cell: CellOption = None,
    text_data: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="With --memory: read a cluster in htools' text format, not the cells."),
    ] = None,
    output: OutputOption = Output.TABLE,
    config: ConfigOption = None,
    data_dir: DataDirOption = None,
) -> None:
    """Show what the nodes of all cells have free, and how many more instances of a size fit.

    Without --memory it shows how much of each cell's processors, memory and disk is used, reserved and free.
    """
    cell = one_cell(of_cell, cell)
    wanted = _size(memory, disk, vcpus)
    if wanted is None:
        if text_data is not None:
            raise ConfigurationError(f"--text-data: the room in a file depends on a size; give {_SIZE_OPTIONS} as well")
        with open_operator_api(load_settings(config, data_dir)) as api:
            asked = {} if cell is None else {"cell": named_cell(api.fleet, cell)}
            found, is_complete = api.get("/fleetlight/capacity", asked)
        _show_overview(output, {**found, "complete": is_complete}, parts=parts)
        if found["missing"]:
            notice_missing_cells()
        for each in found["cells"]:
            _notice_unknown(each)
        return
    if text_data is not None:
        clusters = FleetClusters({text_data.name: cluster_of_file(text_data)}, has_all_cells=True)
    else:
        clusters = asyncio.run(clusters_of_cells(load_settings(config, data_dir), cell))
    rooms = [
        _room(name, cluster, wanted, disk_template, stays_redundant=not no_capacity_checks)
        for name, cluster in clusters.by_cell.items()
    ]
    _show_rooms(output, rooms, _document(rooms, clusters))
    clusters.notice_missing()


def _notice_unknown(summary: Mapping[str, Any]) -> None:
    if UNKNOWN_RATIOS in summary["unknown"]:
        print_notice(f"Cell {summary['cell']}: ratios are not known, so nothing counts as overcommitted there")
    if UNKNOWN_ZONE in summary["unknown"]:
        print_notice(f"Cell {summary['cell']}: zones are not known")
    if UNKNOWN_DISK in summary["unknown"]:
        print_notice(f"Cell {summary['cell']}: disks of some nodes are not known, and count as none")
    if silent := ", ".join(summary["silent_nodes"]):
        what = f"nodes without figures do not count: {silent}"
        print_notice(f"Not complete: cell {summary['cell']}: {what}")


def _show_overview(output: Output, found: Mapping[str, Any], *, parts: bool) -> None:
    """Print a row for each cell and resource; with parts, also for its zones and groups."""
    has_bars = output is Output.TABLE and sys.stdout.isatty()
    columns = _COLUMNS_OF_PARTS if parts else _COLUMNS
    rows = [
        tuple(row[column] for column in columns)
        for cell in found["cells"]
        for each in (cell, *(part for part in found["parts"] if parts and part["cell"] == cell["cell"]))
        for row in _resource_rows(each, has_bars=has_bars)
    ]
    rows += [(each["cell"], "no answer", *["-"] * (len(columns) - 2)) for each in found["missing"]]
    print_rows(output, found, columns, rows, right_aligned=(*_AMOUNTS, "TAKEN %"))


def _resource_rows(summary: Mapping[str, Any], *, has_bars: bool) -> Iterable[Mapping[str, str]]:
    """The values of all columns, for processors, memory and disk. NODES: how many of them accept new instances."""
    of_part = {
        "CELL": summary["cell"],
        "ZONE": summary["zone"] or "-",
        "GROUP": summary["group"] or "-",
        "NODES": f"{summary['available_nodes']} of {summary['nodes']}",
    }
    for title, name, unit in _RESOURCES:
        amounts = {column: f"{summary[amount][name] / unit:.0f}" for column, amount in _AMOUNTS.items()}
        total = summary["total"][name]
        percent = round(100 * (summary["used"][name] + summary["reserved"][name]) / total) if total else 0
        bar = f"{_bar(percent)} " if has_bars else ""
        yield of_part | amounts | {"RESOURCE": title, "TAKEN %": f"{bar}{percent}" if total else "-"}


def _bar(percent: int) -> str:
    full = min(_BAR_CHARACTERS, round(percent * _BAR_CHARACTERS / 100))
    return "█" * full + "░" * (_BAR_CHARACTERS - full)


def _size(memory_mib: int | None, disk_mib: int | None, vcpus: int | None) -> Amount | None:
    """The size in the options, or None. Raises ConfigurationError if a part of it is missing."""
    if memory_mib is None and disk_mib is None and vcpus is None:
        return None
    if memory_mib is None or disk_mib is None or vcpus is None:
        raise ConfigurationError(f"a size needs {_SIZE_OPTIONS}, such as --memory 4G --disk 20G --vcpus 2")
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


def _show_rooms(output: Output, rooms: Sequence[Mapping[str, Any]], document: Mapping[str, Any]) -> None:
    rows = [
        (
            room["cell"],
            str(room["count"]),
            str(room["count_without_reservations"]),
            "; ".join(map(_tier_text, room["tiers"])) or "-",
        )
        for room in rooms
    ]
    columns = ("CELL", "MORE", "WITHOUT RESERVATIONS", "TIERS")
    print_rows(output, document, columns, rows, right_aligned=("MORE", "WITHOUT RESERVATIONS"))
    if output is Output.TABLE:
        print_result(f"In all {document['count']} more")


def _tier_text(tier: Mapping[str, int]) -> str:
    """The count of a tier, with its memory, disk and processors."""
    sizes = f"{size_text(tier['memory_mib'])} memory, {size_text(tier['disk_mib'])} disk"
    return f"{tier['count']} × {sizes}, {tier['vcpus']} vcpus"
