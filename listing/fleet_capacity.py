"""Capacity of the nodes of all cells and what of it is used, by cell, zone and group. The cells themselves are
asked."""

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
    """Of the nodes of one cell, zone and group, or of several, or of one node.

    zone: None where there are none. free: of available nodes, since nothing goes to the others. largest_hole: what is
    free of the one with the most memory free, then the most disk. unknown: what is not known of some of the nodes (see
    NodeCapacity). silent_nodes: those that should have said what they have, and have not; nothing of them counts.
    fits: how many more instances of the size that was asked for fit, each on one available node;
    fits_without_reservations: as if nothing were reserved. None where no size was asked for. node: the name of the one
    that it is of; None unless it is of one.
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
    """cells: those that answered, each as a whole. parts: the same by zone and group. nodes: each by itself, in the
    order of their names, where that was asked for. proof: which cells were asked, and what they answered."""

    cells: Sequence[CapacitySummary]
    parts: Sequence[CapacitySummary]
    nodes: Sequence[CapacitySummary]
    proof: Page


class CapacityLister:
    """Reads the capacity of the nodes of all cells, all at once."""

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
        """What all cells have.

        cell_timeout_s: what one cell may cost. only: uuids of the cells to ask; None for all. size: of which it
            is counted how many more fit. with_nodes: whether to tell of each node, too. admission: of the request.
        A cell that does not answer, or is of a kind that does not know, is skipped, and the answer not complete; nor is
        it with a node that has not said what it has. Raises FleetUnreachableError when it is not known which cells
        there are, and what `admission` raises.
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
