"""A small fleet that can be listed by every route, filled with any rows: the index, the cells, and both mixed."""

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import msgspec
from sqlalchemy import Engine, delete, insert

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine, writing
from fleetlight.cells.fan_out.cell_pool import CellPool
from fleetlight.cells.fleet.fleet import Fleet, InstanceMapping
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.migrations import upgrade_cell, upgrade_fleet
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import instances
from fleetlight.indexer.backends.base import HORIZONS, CellProgress, IndexWriter
from fleetlight.indexer.backends.opening import open_searcher, open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.transform.documents import to_document
from fleetlight.listing.answer import Consistency, Page, ReadOptions
from fleetlight.listing.count_instances import CountResult, InstanceCounter
from fleetlight.listing.find_instance import InstanceFinder
from fleetlight.listing.index_gateway import IndexGateway
from fleetlight.listing.list_instances import InstanceLister
from fleetlight.listing.settings import SearchSettings
from fleetlight.query.counts import CountRequest
from fleetlight.query.filters import EVERYTHING
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import SortOrder
from fleetlight.resources.clock import system_clock
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.views.projection import FieldValues
from tests.support.fleets.documents import TEMPLATE
from tests.support.fleets.instance_operations import InstanceOperations

_DECODE_ITEMS = msgspec.json.Decoder(list[msgspec.Raw]).decode

Rows = Mapping[str, Sequence[dict[str, Any]]]
"""Records by cell name."""

# A machine under load answers late, which is another route and no fault.
_TIMEOUT_S = 60


@dataclass(frozen=True)
class Listed:
    """One page, as the caller sees it."""

    uuids: list[str]
    items: list[bytes]
    page: Page


class ListedFleet:
    """Cells, their index, and the lister over both; filled anew for each example.

    Each filling gets cells with uuids of their own, so that what earlier ones left in the index cannot be seen.
    """

    def __init__(self, fleet: Fleet, engines: Mapping[str, Engine], index: IndexSettings) -> None:
        self._fleet = fleet
        self._engines = engines
        self._registered = {cell.name: cell for cell in fleet.cells()}
        self._writer: IndexWriter = open_writer(index)
        self._writer.prepare()
        self._searcher = open_searcher(index)
        self._runner = asyncio.Runner()
        self.cells: dict[str, Cell] = {}
        self._pool: CellPool | None = None

    def fill(self, rows: Rows) -> None:
        """Replace everything: `rows` are in the cells and in the index, which is fresh."""
        self._close_lister()
        self.cells = {name: replace(cell, uuid=str(uuid4())) for name, cell in self._registered.items()}
        for name, engine in self._engines.items():
            with writing(engine) as connection:
                connection.execute(delete(instances))
                if records := [{**record, "revision": 1} for record in rows.get(name, ())]:
                    connection.execute(insert(instances), records)
        mappings = {
            record["uuid"]: InstanceMapping(record["uuid"], self.cells[name].uuid, record["project_id"], None, 0)
            for name, records in rows.items()
            for record in records
        }
        for name in self.cells:
            self.index_cell(name)
        cells = tuple(self.cells.values())
        self._pool = CellPool(lambda: cells, open_adapter)
        settings = SearchSettings(
            enabled=True, staleness_limit_s=1000, index_deadline_s=_TIMEOUT_S, cell_timeout_s=_TIMEOUT_S
        )
        self._index = IndexGateway(self._searcher, settings)
        self.lister = InstanceLister(self._pool, self._index, settings)
        self.counter = InstanceCounter(self._pool, self._index)
        self._finder = InstanceFinder(self._pool, mappings.get, self._index, settings)

    def index_cell(self, name: str) -> None:
        """Write the rows of a cell as they are now into the index, which then is complete for it."""
        adapter = open_adapter(self.cells[name])
        request = PageRequest(EVERYTHING, SortOrder.of(INSTANCE_FIELDS, ()), limit=10_000)
        documents = [to_document(row.cell_uuid, row.revision, row.record) for row in adapter.read_page(request)]
        adapter.close()
        result = self._writer.write(documents)
        assert not result.rejected
        self._writer.make_searchable()
        self.save_progress(name, is_complete=True)

    def save_progress(self, name: str, *, is_complete: bool) -> None:
        """Say whether the index has every row of the cell; lists of `bounded` consistency ask the cell if not."""
        self._writer.save_progress([CellProgress(self.cells[name].uuid, 0, system_clock(), is_complete)])

    def purge(self, name: str, horizon: int) -> None:
        """Remove what is forgotten at `horizon` from the index, as the indexer would, and say so."""
        self._writer.save_state(HORIZONS, {self.cells[name].uuid: horizon})
        self._writer.purge(self.cells[name].uuid, horizon)

    def operations(self, name: str) -> InstanceOperations:
        return InstanceOperations(self._engines[name], self._fleet, self.cells[name])

    def values(self, request: PageRequest, names: Sequence[str], consistency: Consistency) -> tuple[Page, list[Any]]:
        """One page of the values of these fields."""
        projection = FieldValues(INSTANCE_FIELDS, names)
        page = self._runner.run(self.lister.list_page(request, projection, _options(consistency)))
        return page, json.loads(b"[%b]" % page.items)

    def list(self, request: PageRequest, consistency: Consistency) -> Listed:
        page = self._runner.run(self.lister.list_page(request, TEMPLATE, _options(consistency)))
        items = [bytes(item) for item in _DECODE_ITEMS(b"[%b]" % page.items)]
        assert len(items) == page.rows
        return Listed([json.loads(item)["id"] for item in items], items, page)

    def counted(self, request: CountRequest, consistency: Consistency) -> CountResult:
        return self._runner.run(self.counter.count(request, _options(consistency)))

    def shown(self, request: PageRequest, consistency: Consistency) -> Sequence[str]:
        """The uuids of the servers of all pages."""
        return self.list(replace(request, limit=1000), consistency).uuids

    def behind(self, listed: Listed, request: PageRequest, consistency: Consistency) -> PageRequest:
        """The request for the page that follows `listed`, found through its marker."""
        position = self._runner.run(
            self._finder.position_of(listed.uuids[-1], request.order, consistency, may_see=lambda _project, _user: True)
        )
        return replace(request, after=position)

    def close(self) -> None:
        self._close_lister()
        self._runner.run(self._searcher.close())
        self._runner.close()
        self._writer.close()
        self._fleet.close()
        for engine in self._engines.values():
            engine.dispose()

    def _close_lister(self) -> None:
        if self._pool is not None:
            self._index.close()
            self._runner.run(self._pool.close())
            self._pool = None


@contextmanager
def listed_fleet(fleet_url: str, cell_urls: Mapping[str, str], index: IndexSettings) -> Iterator[ListedFleet]:
    """A fleet of native cells (name -> empty database) and an index of its own."""
    fleet_engine = create_database_engine(fleet_url)
    upgrade_fleet(fleet_engine)
    fleet = Fleet(fleet_engine)
    engines = {}
    for name, url in cell_urls.items():
        engines[name] = create_database_engine(url)
        upgrade_cell(engines[name])
        fleet.add_cell(name, CellKind.NATIVE, url, "memory://")
    listed = ListedFleet(fleet, engines, index)
    try:
        yield listed
    finally:
        listed.close()


def _options(consistency: Consistency) -> ReadOptions:
    return ReadOptions(consistency, (), _TIMEOUT_S)
