"""`scripts/bench scale`: how costs grow from 10,000 to 1,000,000 instances, and with the number of cells.

What docs/explanation/scale.md reckons with. Fleets of several sizes are synced from cells in SQLite into an index of
their own, and each figure says what the same thing cost in the fleet before. Only where the URL of an Elasticsearch is
given.
"""

import asyncio
import os
import statistics
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from uuid import uuid4

from elasticsearch import Elasticsearch

from bench import fleet as made_up
from bench.measure import Figure, at_most, figure, seconds
from bench.sync import filled_cell
from fleetlight.cells.kinds.opening import open_changelog_adapter
from fleetlight.cells.model import Cell
from fleetlight.indexer.backends.base import CellProgress, IndexSearcher, IndexWriter
from fleetlight.indexer.backends.opening import open_searcher, open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.reconcile.fill import CellRows, sync
from fleetlight.indexer.reconcile.ranges import ComparisonCounts, IndexRanges, differing
from fleetlight.indexer.settings import IndexerSettings
from fleetlight.query.counts import CountRequest
from fleetlight.query.filters import And, Eq, Filter
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import Direction, SortKey, SortOrder
from fleetlight.resources.clock import system_clock
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.views.compute.view import ItemTemplate

_SIZES = (10_000, 100_000, 1_000_000)
_QUICK_SIZES = (1_000, 4_000)
_CELL = 100_000
"""A fleet of more instances than that has more cells, not larger ones."""
_PARALLEL = 2
_BATCH = IndexerSettings().sync_batch_size
_CELL_COUNTS = (10, 100, 1_000)
_ROUNDS = 15
_NEWEST_FIRST = SortOrder.of(INSTANCE_FIELDS, [SortKey("created_at", Direction.DESC)])
_LIVING = Eq("deleted", False)
_TEMPLATE = ItemTemplate.full(104, is_admin=True, versioned_base="http://api/v2.1", plain_base="http://api")
# Tenfold the instances may make a page of the same length dearer by no more than this.
_PAGE_GROWTH = 2.0


def run(directory: Path, quick: bool) -> Iterator[Figure]:
    """quick: 1,000 and 4,000 instances instead of 10,000 to 1,000,000."""
    url = os.environ.get("FLEETLIGHT_TEST_ELASTICSEARCH_URL")
    if not url:
        return
    sizes = _QUICK_SIZES if quick else _SIZES
    largest = [filled_cell(directory, n, min(_CELL, sizes[-1]), of=_count(sizes[-1])) for n in range(_count(sizes[-1]))]
    before: dict[str, float] = {}
    for size in sizes:
        whole = _count(size)
        cells = largest[:whole] if size >= _CELL else [_smaller(directory, size)]
        with _Index(url) as index:
            costs = _costs(index, cells, size)
        for name, (value, unit, what) in costs.items():
            yield figure(f"scale.{name}.{size}", value, unit, f"{what}; {size} instances in {len(cells)} cells", runs=1)
            if name.startswith("page") and name in before:
                yield figure(
                    f"scale.{name}.growth.{size}",
                    value / before[name],
                    "ratio",
                    "the same page in the fleet before",
                    runs=1,
                    goal=None if quick else at_most(_PAGE_GROWTH),
                )
            before[name] = value
    yield from _of_many_cells(url)


def _count(size: int) -> int:
    return max(1, size // _CELL)


def _smaller(directory: Path, size: int) -> Cell:
    folder = directory / str(size)
    folder.mkdir(exist_ok=True)
    return filled_cell(folder, 0, size, of=1)


Costs = dict[str, tuple[float, str, str]]


def _costs(index: "_Index", cells: Sequence[Cell], size: int) -> Costs:
    sync_s = seconds(partial(_sync, cells, index.writer))
    index.merge()
    costs: Costs = {
        "sync": (size / sync_s, "instances/s", "rows of cells into an index, until they are found"),
        "bytes": (index.size() / size, "bytes/instance", "primary shards of the index, merged"),
        "cell_bytes": (_file_size(cells) / size, "bytes/instance", "files of the cells"),
        "digests": (
            seconds(partial(_compare, cells, index.writer)) * 1e6 / size,
            "s/million",
            "comparing revisions of all ranges, both sides together",
        ),
    }
    uuids = [cell.uuid for cell in cells]
    with asyncio.Runner() as runner:
        searcher = open_searcher(index.settings)
        measure = _Searches(runner, searcher, uuids)
        tenant = And((_LIVING, Eq("project_id", f"{7:032x}")))
        costs["page.50"] = (measure.page(_LIVING, 50), "ms", "first page of 50")
        costs["page.1000"] = (measure.page(_LIVING, 1000), "ms", "first page of 1,000")
        costs["page.project"] = (measure.page(tenant, 50), "ms", "first page of 50 of a project of 1 %")
        costs["count"] = (measure.count(_LIVING), "ms", "counting all that live")
        runner.run(searcher.close())
    return costs


def _sync(cells: Sequence[Cell], writer: IndexWriter) -> None:
    def sync_one(cell: Cell) -> None:
        with closing(open_changelog_adapter(cell)) as adapter:
            sync(CellRows(adapter, batch_size=_BATCH), writer)

    with ThreadPoolExecutor(_PARALLEL) as threads:
        list(threads.map(sync_one, cells))
    writer.make_searchable()


def _compare(cells: Sequence[Cell], writer: IndexWriter) -> None:
    for cell in cells:
        with closing(open_changelog_adapter(cell)) as adapter:
            ranges = IndexRanges(writer, cell.uuid, horizon=0, external=False)
            assert not list(differing(adapter, ranges, ComparisonCounts(), lambda: None))


def _file_size(cells: Sequence[Cell]) -> int:
    return sum(Path(cell.database_url.removeprefix("sqlite:///")).stat().st_size for cell in cells)


def _of_many_cells(url: str) -> Iterator[Figure]:
    """What is said of each cell: how far it is followed is saved each second, and read by each API process."""
    for count in _CELL_COUNTS:
        with _Index(url) as index, asyncio.Runner() as runner:
            progress = [CellProgress(uuid, 1000, system_clock(), True) for uuid in made_up.cell_uuids(count)]
            saved_s = _median_s(partial(index.writer.save_progress, progress))
            searcher = open_searcher(index.settings)
            read_s = _median_s(partial(_read_progress, runner, searcher))
            runner.run(searcher.close())
        yield figure(f"scale.progress.saved.{count}", saved_s * 1e3, "ms", f"progress of {count} cells", runs=_ROUNDS)
        yield figure(f"scale.progress.read.{count}", read_s * 1e3, "ms", f"progress of {count} cells", runs=_ROUNDS)


def _read_progress(runner: asyncio.Runner, searcher: IndexSearcher) -> None:
    runner.run(searcher.progress())


def _median_s(action: Callable[[], object]) -> float:
    return statistics.median(seconds(action) for _ in range(_ROUNDS))


class _Searches:
    """Milliseconds of what lists ask, medians."""

    def __init__(self, runner: asyncio.Runner, searcher: IndexSearcher, cells: Sequence[str]) -> None:
        self._runner = runner
        self._searcher = searcher
        self._cells = cells

    def page(self, condition: Filter, limit: int) -> float:
        request = PageRequest(condition, _NEWEST_FIRST, limit)
        return self._ms(lambda: self._runner.run(self._searcher.page(request, self._cells, _TEMPLATE)))

    def count(self, condition: Filter) -> float:
        return self._ms(
            lambda: self._runner.run(self._searcher.count(CountRequest(condition, INSTANCE_FIELDS), self._cells))
        )

    def _ms(self, ask: Callable[[], object]) -> float:
        ask()
        return _median_s(ask) * 1e3


class _Index:
    """An empty index of one shard, removed at the end."""

    def __init__(self, url: str) -> None:
        prefix = f"fleetlight-bench-{uuid4().hex}"
        self.settings = IndexSettings(
            backend="elasticsearch",
            urls=(url,),
            prefix=prefix,
            replicas=0,
            # Each page is measured as it is the first time.
            page_cache=False,
            search_timeout_s=60,
            write_timeout_s=600,
        )
        self.writer = open_writer(self.settings)
        self._client = Elasticsearch(url, request_timeout=600)

    def __enter__(self) -> "_Index":
        self.writer.prepare()
        return self

    def __exit__(self, *_: object) -> None:
        self.writer.close()
        names = list(self._client.indices.get(index=f"{self.settings.prefix}-*").body)
        self._client.indices.delete(index=names)
        self._client.close()

    def merge(self) -> None:
        """To one segment, so that sizes can be compared."""
        self._client.indices.forcemerge(index=f"{self.settings.prefix}-instances", max_num_segments=1)

    def size(self) -> int:
        """Bytes of the instances' primary shards."""
        stats = self._client.indices.stats(index=f"{self.settings.prefix}-instances", metric="store")
        return int(stats["_all"]["primaries"]["store"]["size_in_bytes"])
