"""A fleet whose cells are those of a Nova deployment, and the application over it in this process."""

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from fleetlight.api.app import create_app
from fleetlight.api.parts import ApiParts
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fan_out.cell_pool import CellPool
from fleetlight.cells.fan_out.native_cells import NativeCells
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.migrations import upgrade_fleet
from fleetlight.cli.cells.nova_cells import add_all_nova_cells
from fleetlight.indexer.backends.base import CellProgress, IndexWriter
from fleetlight.indexer.backends.opening import open_searcher, open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.reconcile.external_cell import ExternalComparison, UnindexedMoves, compare_cell
from fleetlight.indexer.reconcile.ranges import ignore
from fleetlight.listing.settings import SearchSettings
from fleetlight.resources.clock import system_clock
from tests.contract.compute_fleet import Api


class FleetWithHook(Fleet):
    """Calls `before_write` once, when it is asked whose the documents are that are about to be written."""

    before_write: Callable[[], object] | None = None

    def living_elsewhere(self, cell_uuid: str, instance_uuids: Collection[str]) -> Mapping[str, str]:
        hook, self.before_write = self.before_write, None
        if hook is not None:
            hook()
        return super().living_elsewhere(cell_uuid, instance_uuids)


class NovaFleet:
    """fleet: with every cell of the deployment, and one for its build requests. index: where an index may be.

    rejected: by uuid, why the index did not take what was compared.
    """

    def __init__(
        self, folder: Path, urls: Mapping[str, str], main_url: str | None, index: IndexSettings | None = None
    ) -> None:
        """urls: of `api` and others. main_url: what fills in addresses that are templates."""
        engine = create_database_engine(f"sqlite:///{folder}/fleet.db")
        upgrade_fleet(engine)
        self.fleet = FleetWithHook(engine)
        joined = add_all_nova_cells(self.fleet, urls["api"], main_database_url=main_url, transport_url="", prefix="")
        assert [each.problem for each in joined] == [None] * len(urls)
        self.cells = {cell.name: cell for cell in self.fleet.cells()}
        self.index = index or IndexSettings(backend="sqlite", path=folder / "index")
        self._runner = asyncio.Runner()
        self._pool = CellPool(self.fleet.cells, open_adapter)
        self._native = NativeCells(self.fleet.cells, self._pool)
        self._searcher = open_searcher(self.index)
        self._apis: list[Api] = []
        self.rejected: dict[str, str] = {}
        self._seen_at: dict[str, dict[str, int]] = {}

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

    def fill_index(self, first: Sequence[str] = ()) -> None:
        """Compare every cell with the index, as an indexer does, which makes them equal. first: those that begin."""
        with closing(open_writer(self.index)) as writer:
            writer.prepare()
            self.compare(writer, *first, *(name for name in self.cells if name not in first))
            progress = writer.load_progress()
            self.compare(writer, *(name for name, cell in self.cells.items() if not progress[cell.uuid].is_complete))
        assert not self.rejected

    def compare(
        self,
        writer: IndexWriter,
        *names: str,
        ahead_s: int = 0,
        before_write: Callable[[], object] | None = None,
        after_page: Callable[[], object] | None = None,
    ) -> None:
        """Make the index equal to these cells, one after the other.

        ahead_s: how far the clock of who reads them is ahead. before_write: called once, between reading rows and
        documents and writing. after_page: called once, when a page of rows has been read and written.
        """

        def on_progress(_rows: int) -> None:
            nonlocal after_page
            hook, after_page = after_page, None
            if hook is not None:
                hook()

        for name in names:
            cell = self.cells[name]
            self.fleet.before_write = before_write
            with closing(open_adapter(cell, clock=lambda: system_clock() + ahead_s * 1_000_000)) as adapter:
                compared = compare_cell(
                    adapter,
                    writer,
                    batch_size=20,
                    owners=self.fleet,
                    on_progress=on_progress if after_page else ignore,
                )
                moves = UnindexedMoves(adapter, writer, self.fleet, self._seen_at.setdefault(name, {}))
                is_complete = not (compared.rejected or moves.unsettled(compared.homeless.values()))
            self.rejected |= compared.rejected
            writer.save_progress([CellProgress(cell.uuid, 0, compared.began_at, is_complete=is_complete)])
        writer.make_searchable()

    @contextmanager
    def comparison(self, writer: IndexWriter, name: str, *, repair: bool) -> Iterator[ExternalComparison]:
        """As `index verify` compares a cell, but that what differs has no time to arrive."""
        with closing(open_adapter(self.cells[name])) as adapter:
            yield ExternalComparison(
                adapter, writer, batch_size=20, owners=self.fleet, confirm_timeout_s=None if repair else 0
            )

    def close(self) -> None:
        for api in self._apis:
            api.close()
        self._runner.run(self._pool.close())
        self._runner.run(self._searcher.close())
        self._runner.close()
        self.fleet.close()


@contextmanager
def nova_fleet(
    folder: Path, urls: Mapping[str, str], main_url: str | None = None, index: IndexSettings | None = None
) -> Iterator[NovaFleet]:
    fleet = NovaFleet(folder, urls, main_url, index)
    try:
        yield fleet
    finally:
        fleet.close()
