"""The clusters that commands of balance and capacity look at: from a text file of htools, or from the cells."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from fleetlight.api.identity import NoIdentity
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.model import CapacityAdapter, Cell
from fleetlight.cells.node_capacity import NodeCapacity
from fleetlight.cli.errors import CommandError, ConfigurationError
from fleetlight.cli.fleet import open_fleet
from fleetlight.cli.in_process import document_of
from fleetlight.cli.processes.serving import open_parts
from fleetlight.cli.settings import Settings
from fleetlight.operations.balancing.cluster import Cluster
from fleetlight.operations.balancing.cluster_file import read_cluster
from fleetlight.operations.balancing.cluster_file_writer import write_cluster
from fleetlight.operations.balancing.errors import ClusterFileError
from fleetlight.operations.balancing.items import GROUP_ITEM, INSTANCE_ITEM, NODE_ITEM, cluster_of_items
from fleetlight.resources.query_fields.definitions import CellStatus

if TYPE_CHECKING:
    from fleetlight.api.app import ApiParts

_Items = Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class FleetClusters:
    """by_cell: by the names of the cells that have nodes. is_complete: all cells have told all that was asked."""

    by_cell: Mapping[str, Cluster]
    is_complete: bool


def cluster_of_file(path: Path) -> Cluster:
    """Raises ConfigurationError for a file that is not there or not as htools has it."""
    try:
        return read_cluster(path.read_bytes().decode())
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path}: byte {error.start + 1} is no UTF-8") from error
    except ClusterFileError as error:
        raise ConfigurationError(f"{path}: {error}") from error
    except OSError as error:
        raise ConfigurationError(f"{path}: {(error.strerror or str(error)).lower()}") from error


def save_cluster(cluster: Cluster, path: Path) -> None:
    """Write a file of htools. Raises CommandError."""
    try:
        path.write_text(write_cluster(cluster))
    except OSError as error:
        raise CommandError(f"{path}: {(error.strerror or str(error)).lower()}") from error


async def clusters_of_cells(settings: Settings, cell: str | None) -> FleetClusters:
    """What all cells say, or one of them. Raises UnknownCellError, CommandError."""
    with open_fleet(settings.fleet) as fleet:
        if cell is not None:
            fleet.cell(cell)
        answers, capacities = await _ask(settings, fleet, cell)
    groups, nodes, instances = (items for items, _ in answers)
    return FleetClusters(
        {
            name: cluster_of_items(groups.get(name, ()), found, instances.get(name, ()), capacities.get(name, ()))
            for name, found in nodes.items()
        },
        all(is_complete for _, is_complete in answers),
    )


async def _ask(
    settings: Settings, fleet: Fleet, cell: str | None
) -> tuple[Sequence[tuple[_Items, bool]], Mapping[str, Sequence[NodeCapacity]]]:
    """Groups, nodes and instances, each by their cells; and what nodes have where instances claim them."""
    from fleetlight.api.app import create_app  # noqa: PLC0415  # other commands would start a quarter later

    async with open_parts(settings, fleet, NoIdentity()) as parts:
        app = create_app(parts)
        asked = (("group", GROUP_ITEM), ("node", NODE_ITEM), ("instance", INSTANCE_ITEM))
        answers = [await _items(app, what, fields, cell) for what, fields in asked]
        (nodes, _) = answers[1]
        capacities = {
            each.name: _capacities(parts, each) for each in fleet.cells() if _claims(each, nodes.get(each.name, ()))
        }
        app.state.index.close()
    return answers, capacities


def _claims(cell: Cell, nodes: Sequence[Mapping[str, Any]]) -> bool:
    """Whether instances claim what nodes have, and not only use it as in a cluster, whose nodes say what they need."""
    return bool(nodes) and (cell.can.takes_changes or all(node["mnode"] is None for node in nodes))


def _capacities(parts: "ApiParts", cell: Cell) -> Sequence[NodeCapacity]:
    """None of a cell that does not tell; what it has said of its nodes counts all the same."""
    try:
        adapter = parts.native.pool.opened(cell)
        return adapter.read_capacity() if isinstance(adapter, CapacityAdapter) else ()
    except CellUnreachableError:
        return ()


async def _items(app: Any, what: str, fields: Sequence[str], cell: str | None) -> tuple[_Items, bool]:
    """All items of a type by their cell, each with its fields; and whether these are all there are."""
    from fleetlight.api.http.in_process import call  # noqa: PLC0415  # other commands would start a quarter later

    question = {
        "what": what,
        "fields": ["cell", *fields],
        "filter": None if cell is None else ["==", "cell", cell],
        "all_projects": True,
    }
    found = defaultdict[str, list[Mapping[str, Any]]](list)
    is_complete, marker = True, None
    while True:
        body = msgspec.json.encode({**question, "marker": marker})
        answer = await call(app, "POST", "/fleetlight/query", body=body)
        page = document_of(answer)
        for (_, of_cell), *values in page["data"]:
            read = (value if status == CellStatus.NORMAL else None for status, value in values)
            found[of_cell].append(dict(zip(fields, read, strict=True)))
        is_complete &= answer.headers["fleetlight-complete"] == "true"
        marker = page["marker"]
        if marker is None:
            return found, is_complete
