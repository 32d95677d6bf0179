"""`scripts/bench sync`: from the databases of the cells to the index, against a bare bulk of the same documents.

The bare loop, by hand, has every document in memory, as the dict that it is in the index. It encodes them with msgspec
and keeps as many bulk requests of 500 in flight as ours has: two for each cell. So does `parallel_bulk` of the official
client with its fastest JSON, which is only reported (docs/performance.md). Ours, a sync and a rebuild, reads the rows
of the cells, renders them (docs/decisions/0007) and writes the same documents. Each round is into an empty index, and
ends when all of it can be found.
"""

import itertools
import os
import statistics
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any
from uuid import uuid4

import msgspec
from elasticsearch import Elasticsearch, OrjsonSerializer
from elasticsearch.helpers import parallel_bulk
from sqlalchemy import Engine

from bench import fleet as made_up
from bench.measure import Figure, at_least, figure, seconds
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine, writing
from fleetlight.cells.database.leases import open_leases
from fleetlight.cells.kinds.native.instance_rows import add_rows
from fleetlight.cells.kinds.opening import open_changelog_adapter
from fleetlight.cells.migrations import upgrade_cell
from fleetlight.cells.model import Cell, InstanceRow
from fleetlight.indexer.backends.base import IndexWriter
from fleetlight.indexer.backends.elasticsearch.documents import to_bulks
from fleetlight.indexer.backends.opening import open_generations, open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.reconcile.fill import CellRows, sync
from fleetlight.indexer.reconcile.rebuild import RebuildParts, RebuildPhase, rebuild_index
from fleetlight.indexer.settings import IndexerSettings
from fleetlight.indexer.writing.leases import CellLeases
from fleetlight.indexer.writing.searchable_meanwhile import searchable_meanwhile
from fleetlight.indexer.writing.throttle import Throttle

_CELLS = 4
_BATCH = IndexerSettings().sync_batch_size
_PACE = Throttle(None, Event())
_IN_FLIGHT = 2 * _CELLS
_BULK = 500
_OTHERS = {"bare": "a bare bulk", "parallel_bulk": "the client's parallel_bulk"}


def run(directory: Path, quick: bool) -> Iterator[Figure]:
    """quick: 4,000 instances a round instead of 80,000. Only where the URL of an Elasticsearch is given."""
    url = os.environ.get("FLEETLIGHT_TEST_ELASTICSEARCH_URL")
    if not url:
        return
    count = 4_000 if quick else 80_000
    rounds = 3 if quick else 5
    cells = [filled_cell(directory, number, count // _CELLS, of=_CELLS) for number in range(_CELLS)]
    documents = _as_dicts(cells)
    fleet = create_database_engine(f"sqlite:///{directory}/fleet.db")  # for its leases alone
    ways: dict[str, Callable[[EmptyIndex], float]] = {
        "sync": lambda index: seconds(_sync(cells, index.writer)),
        "rebuild": lambda index: _filling_s(cells, index, fleet, whole_s),
        "parallel_bulk": lambda index: seconds(_parallel_bulk(url, index.settings.prefix, documents)),
        "bare": lambda index: seconds(_bare(url, index.settings.prefix, documents)),
    }
    whole_s: list[float] = []
    rates: list[dict[str, float]] = []
    for number in range(rounds + 1):
        rate = {}
        for name in sorted(ways, reverse=bool(number % 2)):
            with EmptyIndex(url) as index:
                rate[name] = count / ways[name](index)
                assert index.count() == count
        if number:
            rates.append(rate)
    fleet.dispose()
    medians = {name: statistics.median(rate[name] for rate in rates) for name in ways}
    to_what = {"sync": "to the index", "rebuild": "to the next index, until it is compared with them,"}
    for (name, what), (other, kind) in itertools.product(to_what.items(), _OTHERS.items()):
        yield figure(
            f"{name}.elasticsearch" if other == "bare" else f"{name}.elasticsearch.{other}",
            statistics.median(rate[name] / rate[other] for rate in rates),
            "ratio",
            f"{medians[name]:,.0f} instances/s from {_CELLS} SQLite cells {what} / {medians[other]:,.0f} of {kind} of "
            f"the same documents, {count} instances a round",
            runs=rounds,
            goal=at_least(0.8) if other == "bare" else None,
        )
    yield figure(
        "rebuild.elasticsearch.whole",
        statistics.median(whole_s),
        "seconds",
        f"a rebuild of {count} instances: making the next index, filling and comparing it, putting it in place",
        runs=len(whole_s),
    )


class _NoMoves:
    """Mappings that give no instance to another cell."""

    def cells_of(self, instance_uuids: Collection[str]) -> Mapping[str, str]:
        return {}

    def living_elsewhere(self, cell_uuid: str, instance_uuids: Collection[str]) -> Mapping[str, str]:
        return {}

    def cells_of_deployment(self, api_database_url: str) -> Mapping[str, str]:
        return {}


def _sync(cells: Sequence[Cell], writer: IndexWriter) -> Callable[[], None]:
    def sync_one(cell: Cell) -> None:
        with closing(open_changelog_adapter(cell)) as adapter:
            sync(CellRows(adapter, batch_size=_BATCH), writer)

    def sync_all() -> None:
        with searchable_meanwhile(writer, _PACE), ThreadPoolExecutor(_CELLS) as threads:
            list(threads.map(sync_one, cells))
        writer.make_searchable()

    return sync_all


def _filling_s(cells: Sequence[Cell], index: "EmptyIndex", fleet: Engine, whole_s: list[float]) -> float:
    """Seconds in which a rebuild fills the next index; those of all that it does are added to `whole_s`.

    The rest, above all what Elasticsearch needs to make and rename indexes, does not depend on the number of instances,
    and a bare bulk writes to an index that is there.
    """
    watch = _Watch()

    def rebuild() -> None:
        with (
            closing(open_generations(index.settings)) as generations,
            closing(CellLeases(open_leases(fleet, "a benchmark"))) as leases,
        ):
            parts = RebuildParts(
                cells=lambda: cells,
                open_adapter=open_changelog_adapter,
                current=index.writer,
                generations=generations,
                leases=leases,
                owners=_NoMoves(),
                pace=_PACE,
                batch_size=_BATCH,
                parallel=_CELLS,
            )
            rebuild_index(parts, watch, back=False)

    whole_s.append(seconds(rebuild))
    return watch.begun_s[RebuildPhase.VERIFYING] - watch.begun_s[RebuildPhase.FILLING]


class _Watch:
    """Notes when each phase of a rebuild begins (fleetlight.indexer.reconcile.rebuild.Watcher)."""

    def __init__(self) -> None:
        self.begun_s: dict[RebuildPhase, float] = {}

    def on_step(self) -> None: ...

    def on_phase(self, phase: RebuildPhase) -> None:
        self.begun_s[phase] = time.perf_counter()

    def on_rows(self, cell: Cell, rows: int) -> None: ...

    def on_notice(self, text: str) -> None:
        raise AssertionError(text)


def _bare(url: str, prefix: str, documents: Sequence[tuple[str, dict[str, Any]]]) -> Callable[[], None]:
    path = f"/{prefix}-instances-write/_bulk?filter_path=errors"
    headers = {"content-type": "application/x-ndjson", "accept": "application/json"}
    encode = msgspec.json.Encoder().encode

    def bulk_all() -> None:
        with Elasticsearch(url) as client, ThreadPoolExecutor(_IN_FLIGHT) as threads:

            def send(start: int) -> None:
                lines: list[bytes] = []
                for uuid, document in documents[start : start + _BULK]:
                    action = {"index": {"_id": uuid, "version": 1, "version_type": "external"}}
                    lines += [encode(action), encode(document)]
                body = b"\n".join([*lines, b""])
                answer = client.perform_request("POST", path, headers=headers, body=body)
                assert answer.body == {"errors": False}

            list(threads.map(send, range(0, len(documents), _BULK)))
            client.indices.refresh(index=f"{prefix}-instances-write")

    return bulk_all


def _parallel_bulk(url: str, prefix: str, documents: Sequence[tuple[str, dict[str, Any]]]) -> Callable[[], None]:
    index = f"{prefix}-instances-write"

    def bulk_all() -> None:
        actions = (
            {"_id": uuid, "version": 1, "version_type": "external", "_source": document} for uuid, document in documents
        )
        with Elasticsearch(url, serializer=OrjsonSerializer(), connections_per_node=_IN_FLIGHT) as client:
            # It raises an error for what is not written.
            for _ in parallel_bulk(
                client, actions, thread_count=_IN_FLIGHT, queue_size=_IN_FLIGHT, chunk_size=_BULK, index=index
            ):
                pass
            client.indices.refresh(index=index)

    return bulk_all


def filled_cell(directory: Path, number: int, count: int, *, of: int) -> Cell:
    """A cell in SQLite with `count` instances; the `number`th (from 0) of `of` cells, each with others."""
    url, uuid = f"sqlite:///{directory}/cell{number}.db", made_up.cell_uuids(of)[number]
    engine = create_database_engine(url)
    upgrade_cell(engine)
    records = made_up.records(count, seed=number + 2)
    while batch := list(itertools.islice(records, 1000)):
        with writing(engine) as connection:
            add_rows(connection, [InstanceRow(uuid, 1, record) for record in batch])
    engine.dispose()
    return Cell(uuid, f"cell{number}", CellKind.NATIVE, url, "memory://")


def _as_dicts(cells: Sequence[Cell]) -> list[tuple[str, dict[str, Any]]]:
    """What our documents are in the index, decoded from what we send."""
    texts: list[tuple[str, bytes]] = []
    for cell in cells:
        with closing(open_changelog_adapter(cell)) as adapter:
            for page in CellRows(adapter, batch_size=_BATCH).pages(None):
                for row in page.documents:
                    [bulk] = to_bulks([row], {})
                    texts.append((row.id, bulk.body.splitlines()[1]))
    # All at once, so that they lie together, and what a sync makes finds room beside them instead of among them.
    return [(uuid, msgspec.json.decode(text)) for uuid, text in texts]


class EmptyIndex:
    """An empty index, removed at the end."""

    def __init__(self, url: str) -> None:
        prefix = f"fleetlight-bench-{uuid4().hex}"
        self.settings = IndexSettings(backend="elasticsearch", urls=(url,), prefix=prefix, replicas=0)
        self._client = Elasticsearch(url, request_timeout=30)
        self.writer = open_writer(self.settings)

    def __enter__(self) -> "EmptyIndex":
        self.writer.prepare()
        return self

    def count(self) -> int:
        return int(self._client.count(index=f"{self.settings.prefix}-instances").body["count"])

    def processor_s(self) -> float:
        """Seconds of a processor that the servers have taken since they began."""
        nodes = self._client.nodes.stats(metric="process").body["nodes"].values()
        return sum(int(node["process"]["cpu"]["total_in_millis"]) for node in nodes) / 1000

    def __exit__(self, *_: object) -> None:
        self.writer.close()
        self._client.indices.delete(index=list(self._client.indices.get(index=f"{self.settings.prefix}-*").body))
        self._client.close()
