"""The compute API over a small real fleet: cells, an index, and the application in this process.

Everything is in SQLite files unless a test names other databases and another index.
"""

import asyncio
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
from prometheus_client import generate_latest
from sqlalchemy import Engine, delete

from fleetlight.api.app import Application, create_app
from fleetlight.api.identity import NoIdentity
from fleetlight.api.identity.browser import BrowserIdentity
from fleetlight.api.parts import ApiParts
from fleetlight.api.settings import ApiSettings, DeliverySettings
from fleetlight.bus.bus import Message
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine, writing
from fleetlight.cells.epochs import Position
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.fan_out.cell_pool import CellPool
from fleetlight.cells.fan_out.native_cells import NativeCells
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.native.adapter import NativeAdapter
from fleetlight.cells.kinds.native.relay import Relay
from fleetlight.cells.kinds.opening import open_adapter, open_changelog_adapter
from fleetlight.cells.migrations import upgrade_cell, upgrade_fleet
from fleetlight.cells.model import Cell, CellAdapter, InstanceRow
from fleetlight.cells.settings import RelaySettings
from fleetlight.cells.tables import changes
from fleetlight.indexer.backends.base import EPOCHS, CellProgress, FoundPage, FoundRow
from fleetlight.indexer.backends.opening import open_searcher, open_writer
from fleetlight.indexer.backends.seal import SealState
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.errors import IndexUnavailableError
from fleetlight.indexer.reconcile.other_items import reconcile_other_items
from fleetlight.indexer.stream.liveness import Probes
from fleetlight.indexer.transform.documents import to_document
from fleetlight.listing.explanation import DescribesSearches
from fleetlight.listing.settings import SearchSettings
from fleetlight.listing.sources import CellReader
from fleetlight.manager.operations.cell_worker import new_worker
from fleetlight.manager.operations.hosts.cell_nodes import NewHost
from fleetlight.manager.operations.native_cells import nodes_in
from fleetlight.query.counts import CountRequest, Counts
from fleetlight.query.filters import EVERYTHING
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import SortOrder
from fleetlight.resources.amount import Amount
from fleetlight.resources.clock import Clock, system_clock
from fleetlight.resources.fields import Record
from fleetlight.resources.indexed_items import INDEXED_ITEMS
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.views.projection import Projection
from tests.support.fleets.instance_operations import InstanceOperations

T = TypeVar("T")

CELLS = ("north", "east", "south")
MEMBER = {"X-Roles": "member"}
# Method, address, headers, and the content as arguments of httpx.
AnyRequest = tuple[str, str, Mapping[str, str], Mapping[str, Any]]


def microversion(version: str) -> dict[str, str]:
    return {"OpenStack-API-Version": f"compute {version}"}


class Api:
    """One application and a client of it. Calls block."""

    def __init__(self, application: Application, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._client = httpx.AsyncClient(
            transport=httpx.ASGITransport(application.web, raise_app_exceptions=False), base_url="http://api.test"
        )
        self.application = application
        self.app = application.web
        self.services = application.services
        self.index = application.services.index

    def get(self, url: str, *headers: Mapping[str, str]) -> httpx.Response:
        return self._runner.run(self.fetch(url, *headers))

    async def fetch(self, url: str, *headers: Mapping[str, str]) -> httpx.Response:
        """As `get`, for what runs in the event loop of the application."""
        merged = {name: value for group in headers for name, value in group.items()}
        return await self._client.get(url, headers=merged)

    def request(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, **content: Any
    ) -> httpx.Response:
        return self._runner.run(self.ask(method, url, headers, **content))

    async def ask(
        self, method: str, url: str, headers: Mapping[str, str] | None = None, **content: Any
    ) -> httpx.Response:
        """As `request`, for what runs in the event loop of the application."""
        return await self._client.request(method, url, headers=headers, **content)

    def at_once(
        self, count: int, method: str, url: str, headers: Mapping[str, str] | None = None, **content: Any
    ) -> Sequence[httpx.Response]:
        """The answers to the same request, made `count` times before the first answer is there."""

        return self.together([(method, url, headers or {}, content)] * count)

    def together(self, requests: Sequence[AnyRequest]) -> list[httpx.Response]:
        """The answers to requests that are all made before the first answer is there."""

        async def send_all() -> list[httpx.Response]:
            sent = (self._client.request(method, url, headers=sent, **body) for method, url, sent, body in requests)
            return await asyncio.gather(*sent)

        return self._runner.run(send_all())

    def send(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str],
        params: Mapping[str, Any] | None,
        content: str | bytes | None,
    ) -> httpx.Response:
        """A request as it is, with a body that may be no JSON."""
        request = self._client.build_request(method, url, headers=headers, params=params or None, content=content)
        return self._runner.run(self._client.send(request))

    def ids(self, url: str, *headers: Mapping[str, str]) -> list[str]:
        """The ids of a page that must be a success."""
        response = self.get(url, *headers)
        assert response.status_code == 200, response.text
        return [server["id"] for server in response.json()["servers"]]

    def walk(self, url: str, *headers: Mapping[str, str]) -> Iterator[httpx.Response]:
        """Every page from `url` on, by following the links."""
        next_url: str | None = url
        while next_url is not None:
            response = self.get(next_url, *headers)
            assert response.status_code == 200, response.text
            yield response
            links = response.json().get("servers_links", [])
            next_url = links[0]["href"] if links else None

    def readiness(self) -> Mapping[str, Any]:
        """What the monitoring is told."""
        return self._runner.run(self.application.health.readyz()).body

    def metrics(self) -> str:
        """What the monitoring measures."""
        health = self.application.health
        self._runner.run(health.measure())
        return b"".join(map(generate_latest, health.metrics.registries)).decode()

    def run(self, scenario: Coroutine[Any, Any, T]) -> T:
        """Run `scenario` in the event loop of the application."""
        return self._runner.run(scenario)

    def close(self) -> None:
        self.application.close()
        self._runner.run(self._client.aclose())


class CountingSearcher:
    """The real searcher, which can be reconnected, and how often it was asked, and for counts."""

    def __init__(self, settings: IndexSettings) -> None:
        self._settings = settings
        self._inner = open_searcher(settings)
        self.asked = 0
        self.counted = 0
        self.is_broken = False

    async def search(self, request: PageRequest, cells: Collection[str], projection: Projection) -> Sequence[FoundRow]:
        self._count()
        return await self._inner.search(request, cells, projection)

    async def page(self, request: PageRequest, cells: Collection[str], projection: Projection) -> FoundPage:
        self._count()
        return await self._inner.page(request, cells, projection)

    async def count(self, request: CountRequest, cells: Collection[str]) -> Mapping[str, Counts]:
        self._count()
        self.counted += 1
        return await self._inner.count(request, cells)

    async def progress(self) -> Mapping[str, CellProgress]:
        self._count()
        return await self._inner.progress()

    async def seal(self) -> SealState:
        self._count()
        return await self._inner.seal()

    async def items(self, item_type: str, cells: Collection[str]) -> Mapping[str, Sequence[Record]]:
        self._count()
        return await self._inner.items(item_type, cells)

    def describe(self, request: PageRequest, cells: Collection[str]) -> Mapping[str, Any]:
        assert isinstance(self._inner, DescribesSearches)
        return self._inner.describe(request, cells)

    def _count(self) -> None:
        self.asked += 1
        if self.is_broken:
            raise IndexUnavailableError("somebody broke it")

    async def reconnect(self) -> None:
        await self._inner.close()
        self._inner = open_searcher(self._settings)

    async def close(self) -> None:
        await self._inner.close()


class Nobody:
    """A bus without listeners."""

    def publish(self, messages: Sequence[Message]) -> None: ...


def searching(**changes: float) -> SearchSettings:
    """Settings of lists that wait for nothing, and for which the index is never too old, unless `changes` say so."""
    return SearchSettings(
        **({"enabled": True, "staleness_limit_s": 1000, "index_deadline_s": 60, "token_wait_s": 0} | changes)
    )


SEARCH = searching()
_SETTINGS = ApiSettings()


class ComputeFleet:
    """Three cells in a folder, and an index: in the folder too, unless `index` names another one.

    new_database: a function that returns the URL of an empty database for the fleet and for each cell.
    """

    def __init__(
        self, folder: Path, index: IndexSettings | None = None, new_database: Callable[[], str] | None = None
    ) -> None:
        self._runner = asyncio.Runner()
        self.folder = folder
        self._new_database = new_database
        self.fleet_url = self._database("fleet")
        fleet_engine = create_database_engine(self.fleet_url)
        upgrade_fleet(fleet_engine)
        self.fleet = Fleet(fleet_engine)
        self._engines: dict[str, Engine] = {}
        self.cells: dict[str, Cell] = {}
        for name in CELLS:
            self.add_cell(name)
        self._index = folder / "index"
        self.index_settings = index or IndexSettings(backend="sqlite", path=self._index / "index.db")
        self._writer = open_writer(self.index_settings)
        self._writer.prepare()
        self.searcher = CountingSearcher(self.index_settings)
        self.pool = CellPool(self.fleet.cells, open_adapter)
        self.native = NativeCells(self.fleet.cells, self.pool)
        self._apis: list[Api] = []

    def add_cell(self, name: str) -> Cell:
        """A new native cell."""
        url = self._database(name)
        self._engines[name] = create_database_engine(url)
        upgrade_cell(self._engines[name])
        self.cells[name] = self.fleet.add_cell(name, CellKind.NATIVE, url, "memory://")
        return self.cells[name]

    def remove_cell(self, name: str) -> None:
        """Disable a cell and take it out of the fleet."""
        cell = self.cells.pop(name)
        self.fleet.set_disabled(cell.uuid, True)
        self.fleet.remove_cell(self.fleet.cell(cell.uuid))

    def engine(self, cell: str) -> Engine:
        """The database of a cell."""
        return self._engines[cell]

    def _database(self, name: str) -> str:
        return f"sqlite:///{self.folder}/{name}.db" if self._new_database is None else self._new_database()

    def operations(self, cell: str) -> InstanceOperations:
        return InstanceOperations(self._engines[cell], self.fleet, self.cells[cell])

    def create(self, cell: str, **values: Any) -> str:
        """A new instance; returns its uuid."""
        defaults = {"project_id": "demo", "user_id": "ada", "display_name": "server", "image_ref": ""}
        return self.operations(cell).create(defaults | values).uuid

    def add_hosts(self, count: int = 2) -> None:
        """Some hosts in each cell, in a zone called like the cell."""
        size = Amount.of_gib(vcpus=64, memory_mib=262_144, disk_gib=4000)
        for name, cell in self.cells.items():
            hosts = [NewHost(f"{name}-host{number}", size, name) for number in range(count)]
            nodes_in(self.native, cell).add_hosts(hosts)

    def work(self, nodes: Any = None) -> None:
        """Let the workers of all native cells finish what was accepted. nodes: as of `api`."""
        for name in sorted(self._engines.keys() & self.cells.keys()):
            worker = new_worker(self._engines[name], self.fleet, self.cells[name], rpcs=nodes)
            while worker.run_once():
                pass

    def fill(self, count: int = 12, **values: Any) -> list[str]:
        """Instances over all cells, the newest first; they are indexed too."""
        uuids = [
            self.create(CELLS[number % len(CELLS)], display_name=f"web-{number}", **values) for number in range(count)
        ]
        self.index()
        return uuids[::-1]

    def number_changes(self) -> None:
        """Let the relays of all cells give out numbers; nobody listens to what they publish."""
        for name, cell in self.cells.items():
            relay = Relay(self._engines[name], cell, Nobody(), RelaySettings())
            while relay.run_once():
                pass
            relay.close()

    def forget_changes(self, *cells: str) -> None:
        """Let changelogs (all unless named) forget what they have, as relays do when it is old."""
        for name in cells or self.cells:
            with writing(self._engines[name]) as connection:
                connection.execute(delete(changes))

    def index(
        self,
        *cells: str,
        age_s: float = 0,
        is_complete: bool = True,
        watermark: int | None = None,
        fresh_as_of: int | None = None,
    ) -> None:
        """Bring cells (all unless named) into the index as they are now."""
        everything = PageRequest(EVERYTHING, SortOrder.of(INSTANCE_FIELDS, ()), limit=10_000)
        for name in cells or CELLS:
            adapter = open_changelog_adapter(self.cells[name])
            rows: Sequence[InstanceRow] = adapter.read_page(everything)
            for item_type in INDEXED_ITEMS:
                reconcile_other_items(adapter, self._writer, item_type)
            epoch = adapter.epoch_history().current
            adapter.close()
            if epoch is not None:
                self._writer.save_state(EPOCHS, {self.cells[name].uuid: epoch})
            self._writer.write([to_document(row.cell_uuid, row.revision, row.record) for row in rows])
            moment = system_clock() - round(age_s * 1e6) if fresh_as_of is None else fresh_as_of
            reached = len(rows) if watermark is None else watermark
            self._writer.save_progress([CellProgress(self.cells[name].uuid, reached, moment, is_complete)])
        self._writer.make_searchable()
        if self.index_settings.backend != "sqlite":
            # As the sealer of an indexer does each half second.
            self._writer.open_seal(lambda: max(system_clock(), fresh_as_of or 0)).check(lambda _: False, 0)

    def api(
        self,
        *,
        search: SearchSettings = SEARCH,
        settings: ApiSettings = _SETTINGS,
        clock: Clock = system_clock,
        pool: CellReader | None = None,
        native: NativeCells | None = None,
        soft_deletes: bool = False,
        identity: BrowserIdentity | None = None,
        indexer: Probes | None = None,
        rapi_users_file: Path | None = None,
        nodes: Any = None,
        delivery: DeliverySettings | None = None,
    ) -> Api:
        """An application over the fleet; closed with it.

        search: see `searching`.
        native: other than by `pool`, or by that of the fleet where `pool` is none.
        nodes: what calls the agents of hosts (NodeRpcs, or PlayedHosts in its place).
        """
        if native is None:
            native = NativeCells(self.fleet.cells, pool) if isinstance(pool, CellPool) else self.native
        parts = ApiParts(
            cells=pool or self.pool,
            fleet=self.fleet,
            native=native,
            searcher=self.searcher,
            index_backend=self.index_settings.backend,
            soft_deletes=soft_deletes,
            api=settings,
            search=search,
            identity=identity or NoIdentity(),
            indexer=indexer,
            rapi_users_file=rapi_users_file,
            clock=clock,
            nodes=nodes,
            delivery=delivery or DeliverySettings(),
        )
        api = Api(create_app(parts), self._runner)
        self._apis.append(api)
        return api

    def close_pool(self, pool: CellPool) -> None:
        self._runner.run(pool.close())

    def take_index_away(self) -> None:
        """As if the disk of the index had gone: connections closed, files removed."""
        self._writer.close()
        self._runner.run(self.searcher.reconnect())
        shutil.rmtree(self._index)

    def close(self) -> None:
        for api in self._apis:
            api.close()
        self._runner.run(self.pool.close())
        self._runner.run(self.searcher.close())
        self._runner.close()
        self._writer.close()
        self.fleet.close()
        for engine in self._engines.values():
            engine.dispose()


@contextmanager
def compute_fleet(
    folder: Path, index: IndexSettings | None = None, new_database: Callable[[], str] | None = None
) -> Iterator[ComputeFleet]:
    fleet = ComputeFleet(folder, index, new_database)
    try:
        yield fleet
    finally:
        fleet.close()


class HangingPool:
    """A cell pool of real adapters, of which those of some cells answer only while `gate` is set.

    pages: how many pages each cell, by its name, was asked for.
    """

    def __init__(self, fleet: ComputeFleet, hanging: Collection[str]) -> None:
        self.gate = threading.Event()
        self.pages: Counter[str] = Counter()
        self._hanging = hanging
        self.cells = CellPool(fleet.fleet.cells, self._open, deadline_s=0.2, probe_interval_s=0.05, list_timeout_s=60)

    def _open(self, cell: Cell) -> CellAdapter:
        return _HangingAdapter(cell, self)

    def wait(self, cell: str) -> None:
        if cell in self._hanging:
            self.gate.wait(120)


class _HangingAdapter(NativeAdapter):
    def __init__(self, cell: Cell, pool: HangingPool) -> None:
        super().__init__(cell)
        self._pool = pool

    def read_page(self, request: PageRequest) -> Sequence[InstanceRow]:
        self._pool.pages[self.cell.name] += 1
        self._pool.wait(self.cell.name)
        return super().read_page(request)

    def find(self, uuid: str) -> InstanceRow | None:
        self._pool.wait(self.cell.name)
        return super().find(uuid)

    def position(self) -> Position:
        self._pool.wait(self.cell.name)
        return super().position()


@contextmanager
def hanging_pool(fleet: ComputeFleet, *hanging: str) -> Iterator[HangingPool]:
    """A pool in which the cells `hanging` (names) hang until its gate is set, at the latest at the end."""
    pool = HangingPool(fleet, hanging)
    try:
        yield pool
    finally:
        pool.gate.set()
        fleet.close_pool(pool.cells)


class BrokenCells:
    """A CellReader in which some cells hang, or fail from a certain question on.

    waited: how many questions were put to cells that hang.
    """

    def __init__(
        self, fleet: ComputeFleet, *, hanging: Sequence[str] = (), failing_after: Mapping[str, int] | None = None
    ) -> None:
        """hanging: names of cells that never answer. failing_after: how many answers a cell (name) still gives."""
        self._pool = fleet.pool
        self.waited = 0
        self._hanging = {fleet.cells[name].uuid for name in hanging}
        self._answers_left = {fleet.cells[name].uuid: answers for name, answers in (failing_after or {}).items()}

    async def cells(self) -> tuple[Cell, ...]:
        return await self._pool.cells()

    async def knows_all_cells(self, cell_uuids: Collection[str] = ()) -> bool:
        return await self._pool.knows_all_cells(cell_uuids)

    async def read_page(self, cell_uuid: str, request: PageRequest, timeout_s: float) -> Sequence[InstanceRow]:
        await self._misbehave(cell_uuid, timeout_s)
        return await self._pool.read_page(cell_uuid, request, timeout_s)

    async def find(self, cell_uuid: str, uuid: str, timeout_s: float) -> InstanceRow | None:
        await self._misbehave(cell_uuid, timeout_s)
        return await self._pool.find(cell_uuid, uuid, timeout_s)

    async def ask(self, cell_uuid: str, question: Callable[[CellAdapter], T], timeout_s: float) -> T:
        await self._misbehave(cell_uuid, timeout_s)
        return await self._pool.ask(cell_uuid, question, timeout_s)

    def hanging(self) -> Collection[str]:
        return self._pool.hanging()

    async def _misbehave(self, cell_uuid: str, timeout_s: float) -> None:
        if cell_uuid in self._hanging:
            self.waited += 1
            await asyncio.sleep(timeout_s)
            raise CellUnreachableError(cell_uuid, "no answer")
        left = self._answers_left.get(cell_uuid)
        if left is not None:
            self._answers_left[cell_uuid] = left - 1
            if left <= 0:
                raise CellUnreachableError(cell_uuid, "connection lost")
