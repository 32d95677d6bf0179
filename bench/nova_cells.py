"""Part of `scripts/bench list`: a page from cells of Nova, against Nova's own list over the same databases.

Nova lists with what the newest microversion shows (bench.nova_peer), as objects: it does not read faults, volumes and
request specs then, and renders nothing. What is compared with it is the whole page as items of JSON.
"""

import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import msgspec
from sqlalchemy import Engine, event

from bench.measure import Figure, Goal, at_least, figure, interleaved
from bench.nova_databases import NovaDatabases, NovaServer, Peer
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.fan_out.cell_pool import CellPool
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.model import Cell
from fleetlight.indexer.backends.base import CellProgress
from fleetlight.indexer.backends.opening import open_searcher, open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.transform.documents import to_document
from fleetlight.listing.answer import Consistency, Page, ReadOptions
from fleetlight.listing.index_gateway import IndexGateway
from fleetlight.listing.list_instances import InstanceLister
from fleetlight.listing.settings import SearchSettings
from fleetlight.query.filters import EVERYTHING, Eq, IsNull, Ne, all_of, any_of
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import INSTANCES_BY_UUID, Direction, SortKey, SortOrder
from fleetlight.resources.clock import system_clock
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.views.compute.view import ItemTemplate
from tests.support.session.requirements import NOVA, POSTGRESQL

CELLS = (1, 16, 64)
# Its default, and as many as there are cells.
_THREADS = 5
_PAGES = (1000, 50)
_DELAY_S = 0.005
_TIMEOUT_S = 60
_FRESH_S = 86_400
_MOST_OF_A_CELL = 100_000
_NEWEST_FIRST = SortOrder.of(INSTANCE_FIELDS, [SortKey("created_at", Direction.DESC)])
# As a list without filters has it.
_LIVE = all_of(Eq("deleted", False), Eq("hidden", False), any_of(Ne("vm_state", "soft-delete"), IsNull("vm_state")))

Run = Callable[[Coroutine[Any, Any, Any]], Any]


def run(
    loop_run: Run, directory: Path, template: ItemTemplate, quick: bool, cells_of: Sequence[int] = CELLS
) -> Iterator[Figure]:
    """Nothing without the URL of a PostgreSQL server and the environment that Nova is in (scripts/nova-environment).

    loop_run: runs a coroutine in one event loop. quick: 6,400 instances instead of 64,000. cells_of: how many cells
    they are in, one deployment after the other.
    """
    url, ready = POSTGRESQL.locate(), NOVA.locate()
    if not url or not ready:
        return
    count = 6_400 if quick else 64_000
    with closing(NovaServer(url, Path(ready).parent / "bin" / "python", directory, count)) as server:
        server.prepare()
        for cells in cells_of:
            rows = f"{count} instances in {cells} cells of Nova"
            with server.deployment(cells) as databases, _ours(loop_run, databases) as (lister, indexed):
                for threads in (_THREADS, cells) if cells > _THREADS else (_THREADS,):
                    with server.peer(threads) as nova:
                        compared = _Compared(
                            run=loop_run, lister=lister, template=template, nova=nova, rows=rows, threads=threads
                        )
                        yield from compared.pages(f"{cells}_cells", quick, is_slowed=cells == max(CELLS))
                        if threads == _THREADS:
                            name, goal = f"list.nova.index.{_PAGES[0]}.{cells}_cells", at_least(200)
                            compared = replace(compared, lister=indexed, consistency=Consistency.BOUNDED)
                            yield compared.page(name, _PAGES[0], goal, 5 if quick else 15)


@dataclass(frozen=True, kw_only=True)
class _Compared:
    """Pages of ours and of Nova's. rows: what they are pages of. threads: how many cells Nova asks at once."""

    run: Run
    lister: InstanceLister
    template: ItemTemplate
    nova: Peer
    rows: str
    threads: int
    consistency: Consistency = Consistency.STRONG

    def pages(self, cells: str, quick: bool, *, is_slowed: bool) -> Iterator[Figure]:
        """is_slowed: whether also with slow statements. With more threads than Nova has by itself: not a goal."""
        is_default = self.threads == _THREADS
        of_threads = "" if is_default else f".{self.threads}_threads"
        for limit in _PAGES:
            goal = at_least(5) if is_default else None
            yield self.page(f"list.nova.{limit}.{cells}{of_threads}", limit, goal, 3 if quick else 9)
        if is_slowed:
            name, goal = f"list.nova.{_PAGES[0]}.{cells}{of_threads}.slow", at_least(15) if is_default else None
            yield self.page(name, _PAGES[0], goal, 3 if quick else 5, delay_s=_DELAY_S)

    def page(self, name: str, limit: int, goal: Goal | None, runs: int, *, delay_s: float = 0.0) -> Figure:
        """delay_s: what is added to each statement, on both sides."""
        request = PageRequest(_LIVE, _NEWEST_FIRST, limit)

        def ours() -> Page:
            listed: Page = self.run(
                self.lister.list_page(request, self.template, ReadOptions(self.consistency, (), _TIMEOUT_S))
            )
            return listed

        nova = partial(self.nova.ask, limit=limit, delay_s=delay_s)
        listed = ours()
        assert listed.is_complete
        is_indexed = self.consistency is not Consistency.STRONG
        assert (listed.summary == "index") is is_indexed
        source = "index" if is_indexed else "cells"
        assert nova() == {"count": limit, "down": []}
        shown = msgspec.json.decode(b"[%b]" % listed.items)
        assert [server["id"] for server in shown] == self.nova.ask(tell=True)
        with _slowed(delay_s):
            pair = interleaved(nova, ours, runs)
        late = f", {delay_s * 1e3:g} ms added to each statement" if delay_s else ""
        return figure(
            name,
            pair.ratio,
            "ratio",
            f"Nova's own list ({pair.ours_s * 1e3:.0f} ms) / a page from the {source} ({pair.bare_s * 1e3:.0f} ms), "
            f"{limit} of {self.rows} on PostgreSQL, as the newest microversion shows them, of which Nova asks "
            f"{self.threads} at once{late}",
            runs=pair.runs,
            goal=goal,
        )


@contextmanager
def _ours(loop_run: Run, databases: NovaDatabases) -> Iterator[tuple[InstanceLister, InstanceLister]]:
    """Lists by the cells, and by a SQLite index that is made of them, and fresh for as long as this takes."""
    cells = [
        Cell(uuid, f"cell{number}", CellKind.NOVA_DB, url, "", api_database_url=databases.api_url, nova_uuid=uuid)
        for number, (uuid, url) in enumerate(databases.cells.items())
    ]
    pool = CellPool(lambda: cells, open_adapter, deadline_s=_TIMEOUT_S)
    settings = SearchSettings(cell_timeout_s=_TIMEOUT_S)
    index = IndexSettings(path=databases.folder / f"index-{uuid4().hex}.db")
    _fill(index, cells)
    searcher = open_searcher(index)
    with_index = SearchSettings(enabled=True, staleness_limit_s=_FRESH_S)
    yield (
        InstanceLister(pool, IndexGateway(None, settings), settings),
        InstanceLister(pool, IndexGateway(searcher, with_index), with_index),
    )
    loop_run(searcher.close())
    loop_run(pool.close())


def _fill(index: IndexSettings, cells: Sequence[Cell]) -> None:
    with closing(open_writer(index)) as writer:
        writer.prepare()
        for cell in cells:
            with closing(open_adapter(cell)) as adapter:
                rows = adapter.read_page(PageRequest(EVERYTHING, INSTANCES_BY_UUID, _MOST_OF_A_CELL))
            writer.write([to_document(cell.uuid, 1, row.record) for row in rows])
        writer.make_searchable()
        writer.save_progress([CellProgress(cell.uuid, 0, system_clock(), is_complete=True) for cell in cells])


@contextmanager
def _slowed(delay_s: float) -> Iterator[None]:
    """Every statement of this process waits that long before it is sent."""

    def wait(*_: object) -> None:
        time.sleep(delay_s)

    if not delay_s:
        yield
        return
    event.listen(Engine, "before_cursor_execute", wait)
    yield
    event.remove(Engine, "before_cursor_execute", wait)
