"""The clusters for the commands balance and capacity: from a text file of htools, or from the cells."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.model import CapacityAdapter, Cell
from fleetlight.cells.node_capacity import NodeCapacity
from fleetlight.cli.errors import CommandError, ConfigurationError
from fleetlight.cli.fleet import named_cell
from fleetlight.cli.operator_api import OperatorApi, open_operator_api
from fleetlight.cli.output import print_notice
from fleetlight.cli.settings import Settings
from fleetlight.manager.operations.balancing.cluster import Cluster
from fleetlight.manager.operations.balancing.cluster_file import read_cluster
from fleetlight.manager.operations.balancing.cluster_file_writer import write_cluster
from fleetlight.manager.operations.balancing.errors import ClusterFileError
from fleetlight.manager.operations.balancing.items import (
    GROUP_ITEM,
    INSTANCE_ITEM,
    NODE_ITEM,
    LeftOut,
    cluster_of_items,
    left_out,
)
from fleetlight.resources.query_fields.definitions import ResultStatus

if TYPE_CHECKING:
    from fleetlight.api.parts import ApiParts
    from fleetlight.cli.in_process import ApiInProcess

_Items = Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class FleetClusters:
    """by_cell: clusters by cell name, for cells with nodes. has_all_cells: all cells answered in full.

    left_out: items missing from a cell's cluster, or incomplete in it, by cell name.
    """

    by_cell: Mapping[str, Cluster]
    has_all_cells: bool
    left_out: Mapping[str, Sequence[LeftOut]] = field(default_factory=dict)

    @property
    def is_complete(self) -> bool:
        return self.has_all_cells and not any(self.left_out.values())

    def listed(self) -> Sequence[Mapping[str, str]]:
        """The items left out, as JSON."""
        return [
            {"cell": cell, "type": each.item_type, "name": each.name, "why": each.why}
            for cell, found in self.left_out.items()
            for each in found
        ]

    def notice_missing(self) -> None:
        """Print a line for each missing cell or item."""
        if not self.has_all_cells:
            notice_missing_cells()
        for each in self.listed():
            print_notice(f"Not complete: cell {each['cell']}: {each['type']} {each['name']} {each['why']}")


def notice_missing_cells() -> None:
    print_notice("Not complete: not all cells could answer; `fleetlight list nodes` tells which")


def cluster_of_file(path: Path) -> Cluster:
    """Read a cluster from a file. Raises ConfigurationError if it is missing or not in htools' format."""
    try:
        return read_cluster(path.read_bytes().decode())
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: byte {error.start + 1} is no UTF-8") from error
    except ClusterFileError as error:
        raise ConfigurationError(f"{path}: {error}") from error
    except OSError as error:
        raise ConfigurationError(f"{path}: {(error.strerror or str(error)).lower()}") from error


def save_cluster(cluster: Cluster, path: Path) -> None:
    """Write a cluster in htools' format. Raises CommandError."""
    try:
        path.write_text(write_cluster(cluster))
    except OSError as error:
        raise CommandError(f"{path}: {(error.strerror or str(error)).lower()}") from error


async def clusters_of_cells(settings: Settings, cell: str | None) -> FleetClusters:
    """Read the clusters of all cells, or of one. Raises UnknownCellError, CommandError."""
    with open_operator_api(settings) as api:
        answers, capacities = await _ask(api, named_cell(api.fleet, cell))
        reports_usage = {each.name: each.can.reports_usage for each in api.fleet.cells()}
    groups, nodes, instances = (items for items, _ in answers)
    clusters, not_in_it = {}, {}
    for name in nodes:
        items = (groups.get(name, ()), nodes[name], instances.get(name, ()))
        reports = reports_usage.get(name, False)
        clusters[name] = cluster_of_items(*items, capacities.get(name) or (), reports_usage=reports)
        not_in_it[name] = left_out(*items, reports_usage=reports)
    has_all = all(is_complete for _, is_complete in answers) and None not in capacities.values()
    return FleetClusters(clusters, has_all, not_in_it)


async def _ask(
    api: OperatorApi, cell: str | None
) -> tuple[Sequence[tuple[_Items, bool]], Mapping[str, Sequence[NodeCapacity] | None]]:
    """Groups, nodes and instances by cell, and the capacity of nodes of which instances claim parts."""
    async with api.opened() as app:
        asked = (("group", GROUP_ITEM), ("node", NODE_ITEM), ("instance", INSTANCE_ITEM))
        answers = [await _items(app, what, fields, cell) for what, fields in asked]
        (nodes, _) = answers[1]
        # Only for cells whose instances claim capacity; nodes of others report their own needs.
        claimed = [each for each in api.fleet.cells() if each.name in nodes and not each.can.reports_usage]
        capacities = {each.name: _capacities(app.parts, each) for each in claimed}
    return answers, capacities


def _capacities(parts: "ApiParts", cell: Cell) -> Sequence[NodeCapacity] | None:
    """The capacity of a cell's nodes; None if it does not answer, in which case its other data still counts."""
    try:
        adapter = parts.native.pool.opened(cell)
        return adapter.read_capacity() if isinstance(adapter, CapacityAdapter) else ()
    except CellUnreachableError:
        return None


async def _items(app: "ApiInProcess", what: str, fields: Sequence[str], cell: str | None) -> tuple[_Items, bool]:
    """All items of a type by cell, each with its fields; and whether these are complete."""
    from fleetlight.cli.item_answers import all_pages  # noqa: PLC0415 -- other commands would start a quarter later

    in_cell = None if cell is None else ["==", "cell", cell]
    answer = await all_pages(app, {"what": what, "fields": ["cell", *fields], "filter": in_cell, "all_projects": True})
    found = defaultdict[str, list[Mapping[str, Any]]](list)
    for (_, of_cell), *values in answer["data"]:
        read = (value if status == ResultStatus.NORMAL else None for status, value in values)
        found[of_cell].append(dict(zip(fields, read, strict=True)))
    return found, answer["complete"]
