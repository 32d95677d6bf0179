"""A fleet whose cells are those of a Nova deployment, and the application over it in this process."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

from fleetlight.api.app import ApiParts, create_app
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fan_out.cell_pool import CellPool
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.migrations import upgrade_fleet
from fleetlight.cli.cells.nova_cells import add_all_nova_cells
from fleetlight.indexer.backends.base import CellProgress
from fleetlight.indexer.backends.opening import open_searcher, open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.reconcile.external_cell import compare_cell
from fleetlight.listing.settings import SearchSettings
from fleetlight.operations.native_cells import NativeCells
from tests.contract.compute_fleet import Api


class NovaFleet:
    """fleet: with every cell of the deployment, and one for its build requests. index: where an index may be."""

    def __init__(self, folder: Path, urls: Mapping[str, str], main_url: str | None) -> None:
        """urls: of `api` and others. main_url: what fills in addresses that are templates."""
        engine = create_database_engine(f"sqlite:///{folder}/fleet.db")
        upgrade_fleet(engine)
        self.fleet = Fleet(engine)
        joined = add_all_nova_cells(self.fleet, urls["api"], main_database_url=main_url, transport_url="", prefix="")
        assert [each.problem for each in joined] == [None] * len(urls)
        self.cells = {cell.name: cell for cell in self.fleet.cells()}
        self.index = IndexSettings(backend="sqlite", path=folder / "index")
        self._runner = asyncio.Runner()
        self._pool = CellPool(self.fleet.cells, open_adapter)
        self._native = NativeCells(self.fleet.cells, self._pool)
        self._searcher = open_searcher(self.index)
        self._apis: list[Api] = []

    def api(self, *, uses_index: bool = False) -> Api:
        """An application over the fleet; closed with it."""
        parts = ApiParts(
            cells=self._pool,
            fleet=self.fleet,
            native=self._native,
            searcher=self._searcher,
            search=SearchSettings(enabled=uses_index, staleness_limit_s=1000, index_deadline_s=60, cell_timeout_s=60),
        )
        self._apis.append(Api(create_app(parts), self._runner))
        return self._apis[-1]

    def fill_index(self) -> None:
        """Compare every cell with the index, as an indexer does, which makes them equal."""
        with closing(open_writer(self.index)) as writer:
            writer.prepare()
            for cell in self.cells.values():
                with closing(open_adapter(cell)) as adapter:
                    compared = compare_cell(adapter, writer, batch_size=20)
                assert not compared.rejected
                writer.save_progress([CellProgress(cell.uuid, 0, compared.began_at, is_complete=True)])
            writer.make_searchable()

    def close(self) -> None:
        for api in self._apis:
            api.close()
        self._runner.run(self._pool.close())
        self._runner.run(self._searcher.close())
        self._runner.close()
        self.fleet.close()


@contextmanager
def nova_fleet(folder: Path, urls: Mapping[str, str], main_url: str | None = None) -> Iterator[NovaFleet]:
    fleet = NovaFleet(folder, urls, main_url)
    try:
        yield fleet
    finally:
        fleet.close()
