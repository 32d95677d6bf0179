"""Capacity and usage of the nodes of all cells, by cell, zone and group, read from the cells."""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from fleetlight.cells.errors import CellUnreachableError, UnknownCellError
from fleetlight.cells.model import CapacityAdapter, Cell, CellAdapter
from fleetlight.cells.node_capacity import NodeCapacity
from fleetlight.listing.admission import NO_LIMIT, Admission
from fleetlight.listing.answer import CellAnswer, Page, Route
from fleetlight.listing.sources import CellReader, log_failure
from fleetlight.resources.amount import Amount


@dataclass(frozen=True, slots=True)
class CapacitySummary:
    """The capacity of a set of nodes: those of a cell, those of a zone and group in it, or a single node.

    zone: None in cells without zones. free: of available nodes only, since no instance goes to the others.
    largest_hole: the free amount of the node with the most free memory, then disk. unknown: names of amounts that some
    nodes do not report (see NodeCapacity). silent_nodes: nodes that should have reported and have not; they count as
    nothing. fits: number of further instances of the requested size that available nodes can hold;
    fits_without_reservations: the same if nothing were reserved; both None without a size. node: name of the single
    node; None for a set.
    """

    cell: str
    zone: str | None
    group: str | None
    nodes: int
    available_nodes: int
    total: Amount
    used: Amount
    reserved: Amount
    free: Amount
    largest_hole: Amount
    unknown: Sequence[str]
    silent_nodes: Sequence[str]
    fits: int | None = None
    fits_without_reservations: int | None = None
    node: str | None = None


@dataclass(frozen=True, slots=True)
class FleetCapacity:
    """The capacity of the fleet. cells: a summary of each cell that answered. parts: the same by zone and group.
    nodes: a summary of each node, by name; empty unless requested. proof: the cells asked and their answers."""

    cells: Sequence[CapacitySummary]
    parts: Sequence[CapacitySummary]
    nodes: Sequence[CapacitySummary]
    proof: Page


class CapacityLister:
    """Reads the capacity of the nodes of all cells concurrently."""

    def __init__(self, reader: CellReader) -> None:
        self._reader = reader

    async def capacity(
        self,
        *,
        cell_timeout_s: float,
        only: Collection[str] | None = None,
        size: Amount | None = None,
        with_nodes: bool = False,
        admission: Admission = NO_LIMIT,
    ) -> FleetCapacity:
        """Read and sum up the capacity of all cells.

        cell_timeout_s: time limit of one cell. only: uuids of the cells to ask; None for all. size: size of the
            instances to fit; None: do not count them. with_nodes: whether to return each node, too.
        A cell that does not answer, or whose kind reports no capacity, is skipped; then, or with silent nodes, the
        answer is incomplete. Raises FleetUnreachableError when the list of cells cannot be read, and the errors of
        `admission`.
        """
        async with admission.page() as slot:
            has_all_cells = await self._reader.knows_all_cells()
            cells = [cell for cell in await self._reader.cells() if only is None or cell.uuid in only]
            await slot.ask_cells()
            answers = await asyncio.gather(*(self._ask(cell, cell_timeout_s) for cell in cells))
        answered = [(answer.cell, nodes) for answer, nodes in answers if answer.route is Route.LIVE]
        return FleetCapacity(
            [_summary(cell.name, None, None, nodes, size) for cell, nodes in answered],
            [part for cell, nodes in answered for part in _parts(cell.name, nodes, size)],
            [each for cell, nodes in answered for each in _nodes(cell.name, nodes, size)] if with_nodes else [],
            Page(b"", 0, None, [answer for answer, _ in answers], has_all_cells),
        )

    async def _ask(self, cell: Cell, timeout_s: float) -> tuple[CellAnswer, Sequence[NodeCapacity]]:
        def read(adapter: CellAdapter) -> Sequence[NodeCapacity] | None:
            return adapter.read_capacity() if isinstance(adapter, CapacityAdapter) else None

        try:
            nodes = await self._reader.ask(cell.uuid, read, timeout_s)
        except (CellUnreachableError, UnknownCellError) as error:
            log_failure(cell.uuid, error)
            return _skipped(cell, str(error)), []
        if nodes is None:
            return _skipped(cell, f"cells of kind '{cell.kind}' do not report the capacity of their nodes"), []
        silent = _silent(nodes)
        failure = f"nodes have not said what they have: {', '.join(silent)}" if silent else None
        return CellAnswer(cell, Route.LIVE, is_complete=not silent, failure=failure), nodes


def _skipped(cell: Cell, reason: str) -> CellAnswer:
    return CellAnswer(cell, Route.SKIPPED, is_complete=False, failure=reason)


def _parts(cell: str, nodes: Iterable[NodeCapacity], size: Amount | None) -> Sequence[CapacitySummary]:
    found = defaultdict[tuple[str | None, str | None], list[NodeCapacity]](list)
    for node in nodes:
        found[node.zone, node.group].append(node)
    ordered = sorted(found.items(), key=lambda each: (each[0][0] or "", each[0][1] or ""))
    return [_summary(cell, zone, group, members, size) for (zone, group), members in ordered]


def _nodes(cell: str, nodes: Iterable[NodeCapacity], size: Amount | None) -> Sequence[CapacitySummary]:
    ordered = sorted(nodes, key=lambda each: each.name)
    return [replace(_summary(cell, node.zone, node.group, [node], size), node=node.name) for node in ordered]


def _summary(
    cell: str, zone: str | None, group: str | None, nodes: Sequence[NodeCapacity], size: Amount | None
) -> CapacitySummary:
    available = [node for node in nodes if node.is_available]
    holes = (node.free for node in available)
    return CapacitySummary(
        cell,
        zone,
        group,
        len(nodes),
        len(available),
        _sum(node.total for node in nodes),
        _sum(node.used for node in nodes),
        _sum(node.reserved for node in nodes),
        _sum(node.free for node in available),
        max(holes, key=lambda free: (free.memory_mib, free.disk_mib, free.vcpus), default=Amount()),
        sorted({what for node in nodes for what in node.unknown}),
        _silent(nodes),
        None if size is None else sum(size.times_in(node.free) for node in available),
        None if size is None else sum(size.times_in(node.free + node.reserved) for node in available),
    )


def _silent(nodes: Iterable[NodeCapacity]) -> Sequence[str]:
    return sorted(node.name for node in nodes if node.is_silent)


def _sum(amounts: Iterable[Amount]) -> Amount:
    return sum(amounts, Amount())
