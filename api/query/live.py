"""Live fields in the results of queries: values that only nodes know, read from their agents.

A query asks nodes only if its fields, filter or order need live fields, and only the nodes of items that match the rest
of its filter (contracts/ganeti-query, 8).
"""

import asyncio
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from fleetlight.cells.daemon_threads import DaemonThreads
from fleetlight.cells.kinds.native.agent_addresses import AgentAddress
from fleetlight.cells.kinds.native.items.agents import AGENT
from fleetlight.cells.model import Cell
from fleetlight.listing.answer import ReadOptions
from fleetlight.listing.list_items import ItemLister
from fleetlight.resources.fields import Record
from fleetlight.resources.query_fields.cluster_parameters import CLUSTER, Parameters
from fleetlight.resources.query_fields.instance_status import Seen
from fleetlight.views.query2.projection import Row, UnfinishedRow, UnfinishedRows


class NodeObserver(Protocol):
    """Asks the nodes of one cell for one answer. Calls block, and come one after the other."""

    def node_values(self, nodes: Collection[str], fields: Collection[str]) -> Mapping[str, Record]:
        """Return the values of live fields, by node; nodes that cannot be asked are left out."""
        ...

    def seen(self, records: Sequence[Record]) -> Sequence[Seen | None]:
        """Return what nodes report about instances (records with OBSERVED_FIELDS); None if no node was asked."""
        ...


Observe = Callable[[Cell, Sequence[AgentAddress], Parameters, float], NodeObserver | None]
"""Makes the observer of these agents of a cell, by the cell's configuration and a time limit in seconds; or None."""
Observers = Mapping[str, NodeObserver]
"""Observers by cell uuid; a cell without agents has none."""

_THREADS = 32
# So long the agents and the configuration of a cell are cached, so that lists of fleets without agents do not ask for
# them each time.
_KNOWN_FOR_S = 5.0


@dataclass(frozen=True, slots=True)
class _Agents:
    """The agents of a cell, read at a moment of the monotonic clock."""

    at: float
    agents: Sequence[AgentAddress]


@dataclass(frozen=True, slots=True)
class _Cluster:
    """The configuration of a cell, read at a moment of the monotonic clock."""

    at: float
    parameters: Parameters


class LiveNodes:
    """The nodes of all cells. observe: makes observers of nodes with agents; None if no part calls agents."""

    def __init__(self, items: ItemLister, observe: Observe | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._items = items
        self._observe = observe
        self._clock = clock
        self._threads = DaemonThreads(_THREADS, "live_nodes")
        self._agents: dict[str, _Agents] = {}
        self._clusters: dict[str, _Cluster] = {}

    def close(self) -> None:
        self._threads.shutdown(wait=False)

    async def observers(self, cells: Sequence[Cell], only: Collection[str] | None, fresh: ReadOptions) -> Observers:
        """Make the observers of the cells in `only` (None: all) for one answer; see `observers_of`.

        For a cell that does not answer, the agents that were known last count.
        """
        if self._observe is None:
            return {}
        asked = [cell for cell in cells if cell.can.takes_changes and (only is None or cell.uuid in only)]
        now = self._clock()
        due = {cell.uuid for cell in asked if self._is_due(cell.uuid, now)}
        for uuid, records in (await self._read(AGENT, due, fresh)).items():
            self._agents[uuid] = _Agents(now, [AgentAddress(**record) for record in records])
        agents = {cell.uuid: self._agents[cell.uuid].agents for cell in asked if cell.uuid in self._agents}
        return await self.observers_of(cells, agents, fresh)

    async def observers_of(
        self, cells: Sequence[Cell], agents: Mapping[str, Sequence[AgentAddress]], fresh: ReadOptions
    ) -> Observers:
        """Make the observers of these agents, by cell uuid, for one answer.

        fresh: has the time limit of each cell, and then of each node. Leaves out agents for which this process has no
        certificate, and those of a cell whose configuration cannot be read: then the database's values are shown.
        """
        found: dict[str, NodeObserver] = {}
        having = {uuid: of_cell for uuid, of_cell in agents.items() if of_cell}
        if self._observe is None or not having:
            return found
        await self._look_at_clusters(having, fresh)
        for cell in cells:
            cluster = self._clusters.get(cell.uuid)
            if cell.uuid not in having or cluster is None:
                continue
            observer = self._observe(cell, having[cell.uuid], cluster.parameters, fresh.cell_timeout_s)
            if observer is not None:
                found[cell.uuid] = observer
        return found

    async def node_values(
        self, observers: Observers, nodes: Mapping[str, Collection[str]], fields: Collection[str]
    ) -> Mapping[tuple[str, str], Record]:
        """Ask `nodes` (by cell) for these fields; returns values by cell and node, without unreachable nodes."""
        asked = {uuid: names for uuid, names in nodes.items() if uuid in observers}
        calls = (
            self._threads.run(partial(observers[uuid].node_values, names, fields)) for uuid, names in asked.items()
        )
        said = zip(asked, await asyncio.gather(*calls), strict=True)
        return {(uuid, name): values for uuid, of_cell in said for name, values in of_cell.items()}

    async def finish(
        self, projection: UnfinishedRows, rows: Sequence[UnfinishedRow], observers: Observers
    ) -> Sequence[Row]:
        """Ask nodes for the live values of instances' rows; returns the finished rows."""
        records: dict[str, list[Record]] = {}
        for row in rows:
            if row.cell_uuid in observers and not row.cell_is_down:
                records.setdefault(row.cell_uuid, []).append(row.record)
        calls = (partial(observers[uuid].seen, of_cell) for uuid, of_cell in records.items())
        seen = dict(zip(records, map(iter, await asyncio.gather(*map(self._threads.run, calls))), strict=True))
        return await self._threads.run(partial(projection.finished, rows, seen))

    def _is_due(self, cell_uuid: str, now: float) -> bool:
        known = self._agents.get(cell_uuid)
        return known is None or bool(known.agents) or now - known.at >= _KNOWN_FOR_S

    async def _look_at_clusters(self, cell_uuids: Collection[str], fresh: ReadOptions) -> None:
        now = self._clock()
        known = {uuid for uuid, cluster in self._clusters.items() if now - cluster.at < _KNOWN_FOR_S}
        for uuid, [record] in (await self._read(CLUSTER, set(cell_uuids) - known, fresh)).items():
            self._clusters[uuid] = _Cluster(now, record)

    async def _read(
        self, item_type: str, cell_uuids: Collection[str], fresh: ReadOptions
    ) -> Mapping[str, Sequence[Record]]:
        """Read the items of the cells that answer."""
        if not cell_uuids:
            return {}
        items = await self._items.list_items(
            item_type, (), cell_timeout_s=fresh.cell_timeout_s, only=cell_uuids, admission=fresh.admission
        )
        return {each.answer.cell.uuid: each.records for each in items.by_cell if each.answer.is_complete}
