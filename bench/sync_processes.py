"""`scripts/bench sync-processes`: a sync in two processes against one, into Elasticsearch and a free index.

Elasticsearch, on the same machine, takes most of the processors by itself. A free index takes what a writer would
send, and drops it: so it is with an Elasticsearch that has processors of its own.
"""

import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from threading import Event

from bench.measure import Figure, at_least, figure, seconds
from bench.sync import EmptyIndex, filled_cell
from fleetlight.cells.kinds.opening import open_changelog_adapter
from fleetlight.cells.model import Cell
from fleetlight.cells.settings import FleetSettings
from fleetlight.cli.index.cell_processes import CellProcesses, cell_processes
from fleetlight.cli.options import CELLS_AT_ONCE
from fleetlight.cli.settings import Settings
from fleetlight.cli.work_progress import Show
from fleetlight.indexer.backends.base import Document, WriteResult
from fleetlight.indexer.backends.elasticsearch.documents import to_bulks
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.reconcile.fill import CellRows, sync
from fleetlight.indexer.reconcile.ranges import ignore
from fleetlight.indexer.settings import IndexerSettings
from fleetlight.indexer.writing.searchable_meanwhile import searchable_meanwhile
from fleetlight.indexer.writing.throttle import Throttle

_CELLS = 8
_FREE, _ELASTICSEARCH = "free_index", "elasticsearch"

Job = tuple[Cell, IndexSettings | None]


def run(directory: Path, quick: bool) -> Iterator[Figure]:
    """quick: 8,000 instances a round instead of 80,000. Only where the URL of an Elasticsearch is given."""
    url = os.environ.get("FLEETLIGHT_TEST_ELASTICSEARCH_URL")
    if not url:
        return
    count, rounds = (8_000, 3) if quick else (80_000, 5)
    cells = [filled_cell(directory, number, count // _CELLS, of=_CELLS) for number in range(_CELLS)]
    settings = Settings(fleet=FleetSettings.model_validate({"database_url": "sqlite://"}))
    rounds_of: dict[tuple[str, int], list[_Round]] = {}
    with cell_processes(settings, 2, CELLS_AT_ONCE, None, _working) as children:
        assert children is not None
        for number in range(rounds + 1):
            ways = list(product((_FREE, _ELASTICSEARCH), (1, 2)))
            for index, processes in reversed(ways) if number % 2 else ways:
                work = _synced if processes == 1 else _ByChildren(children)
                done = _into_free(cells, work) if index == _FREE else _into_elasticsearch(url, cells, work)
                if number:
                    rounds_of.setdefault((index, processes), []).append(done)
    for index, goal in ((_FREE, at_least(1.6)), (_ELASTICSEARCH, None)):
        one, two = rounds_of[index, 1], rounds_of[index, 2]
        yield figure(
            f"sync.processes.{index}",
            statistics.median(a.whole_s / b.whole_s for a, b in zip(one, two, strict=True)),
            "ratio",
            f"{_rate(count, two)} instances/s from {_CELLS} SQLite cells in two processes / {_rate(count, one)} in "
            f"one, {count} instances a round; in one, an instance takes "
            f"{_each_us(count, [each.ours_s for each in one])} us of our processor and "
            f"{_each_us(count, [each.elasticsearch_s for each in one])} of Elasticsearch's",
            runs=rounds,
            goal=goal,
        )


def _rate(count: int, rounds: Sequence["_Round"]) -> str:
    return f"{count / statistics.median(each.whole_s for each in rounds):,.0f}"


def _each_us(count: int, all_s: Sequence[float]) -> str:
    return f"{1e6 * statistics.median(all_s) / count:.0f}"


@dataclass(frozen=True, slots=True)
class _Round:
    """Seconds: by the clock, and of the processors of this process and of Elasticsearch."""

    whole_s: float
    ours_s: float
    elasticsearch_s: float


def _into_free(cells: Sequence[Cell], work: Callable[[Job, Show], None]) -> _Round:
    began_s = time.process_time()
    whole_s = seconds(lambda: _all_synced(cells, None, work))
    return _Round(whole_s, time.process_time() - began_s, 0.0)


def _into_elasticsearch(url: str, cells: Sequence[Cell], work: Callable[[Job, Show], None]) -> _Round:
    def sync_all() -> None:
        with searchable_meanwhile(index.writer, Throttle(None, Event())):
            _all_synced(cells, index.settings, work)
        index.writer.make_searchable()

    with EmptyIndex(url) as index:
        began_s, index_began_s = time.process_time(), index.processor_s()
        whole_s = seconds(sync_all)
        return _Round(whole_s, time.process_time() - began_s, index.processor_s() - index_began_s)


def _all_synced(cells: Sequence[Cell], index: IndexSettings | None, work: Callable[[Job, Show], None]) -> None:
    with ThreadPoolExecutor(CELLS_AT_ONCE) as threads:
        list(threads.map(lambda cell: work((cell, index), ignore), cells))


@dataclass(frozen=True, slots=True)
class _ByChildren:
    children: CellProcesses[Job, None]

    def __call__(self, job: Job, on_progress: Show) -> None:
        self.children.do(job[0].name, job, on_progress)


@contextmanager
def _working(_settings: Settings, _rate: float | None, _stop: Event) -> Iterator[Callable[[Job, Show], None]]:
    yield _synced


def _synced(job: Job, on_progress: Show) -> None:
    cell, index = job
    with closing(open_changelog_adapter(cell)) as adapter:
        rows = CellRows(adapter, batch_size=IndexerSettings().sync_batch_size)
        if index is None:
            sync(rows, _FreeIndex(), on_progress=on_progress)
            return
        with closing(open_writer(index)) as writer:
            sync(rows, writer, on_progress=on_progress)


class _FreeIndex:
    """An index that takes all documents, as they would be sent, and has none."""

    def write(self, documents: Iterable[Document]) -> WriteResult:
        sent = sum(len(bulk.numbers) for bulk in to_bulks(documents, {}))
        return WriteResult(sent, 0, (), 0)
