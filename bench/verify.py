"""`scripts/bench verify`: what comparing index and cell reads, with no, one and many differences, and by content."""

import itertools
import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from random import Random
from uuid import uuid4

from elasticsearch import Elasticsearch
from sqlalchemy import Engine, insert, select, update

from bench import fleet as made_up
from bench.measure import Figure, at_most, figure, seconds
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine, writing
from fleetlight.cells.kinds.opening import open_changelog_adapter
from fleetlight.cells.migrations import upgrade_cell
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import instances
from fleetlight.indexer.backends.base import IndexWriter
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.reconcile.differences import Verification
from fleetlight.indexer.reconcile.fill import sync_cell
from fleetlight.indexer.reconcile.native_cell import NativeComparison
from fleetlight.indexer.reconcile.reconcile import verify

_BATCH = 1000
_FEW, _MANY = 1, 1000
# A range is read when it has at most 16 rows, from both stores; what differs is then read once more from each.
_GOAL_PER_DIFFERENCE = 2 * 16 + 3


def run(directory: Path, quick: bool) -> Iterator[Figure]:
    """quick: 20,000 instances instead of 200,000."""
    count = 20_000 if quick else 200_000
    url = f"sqlite:///{directory}/cell.db"
    engine = create_database_engine(url)
    upgrade_cell(engine)
    cell = Cell(made_up.cell_uuids(1)[0], "one", CellKind.NATIVE, url, "memory://")
    _fill(engine, count)
    for name, index in _indexes(directory).items():
        with closing(open_writer(index)) as writer:
            writer.prepare()
            yield from _compare(name, cell, engine, writer, count)
        _remove(index)
    engine.dispose()


def _indexes(directory: Path) -> Mapping[str, IndexSettings]:
    indexes = {"embedded": IndexSettings(path=directory / "index.db")}
    if url := os.environ.get("FLEETLIGHT_TEST_ELASTICSEARCH_URL"):
        prefix = f"fleetlight-bench-{uuid4().hex}"
        indexes["elasticsearch"] = IndexSettings(backend="elasticsearch", urls=(url,), prefix=prefix, replicas=0)
    return indexes


def _compare(name: str, cell: Cell, engine: Engine, writer: IndexWriter, count: int) -> Iterator[Figure]:
    with closing(open_changelog_adapter(cell)) as adapter:
        sync_cell(adapter, writer, batch_size=_BATCH)
    writer.make_searchable()
    verify = _Verify(cell, writer)
    verify()
    for differences in (0, _FEW, _MANY):
        _change(engine, differences)
        took_s = seconds(verify)
        assert len(verify.result.differences) == differences
        asked = f"{count} instances, {differences} differences, {name} index"
        goal = at_most(differences * _GOAL_PER_DIFFERENCE)
        rows = verify.result.rows_read
        yield figure(f"verify.{name}.rows_read.{differences}", rows, "rows", asked, runs=1, goal=goal)
        yield figure(f"verify.{name}.time.{differences}", took_s, "s", asked, runs=1)
        verify(repair=True)
        assert verify.result.remaining == ()
    by_content = _Verify(cell, writer, contents_at_once=_BATCH)
    took_s = seconds(by_content)
    assert by_content.result.differences == ()
    yield figure(f"verify.{name}.time.content", took_s, "s", f"{count} instances, by content, {name} index", runs=1)


class _Verify:
    """Verifies a cell that nothing happens in; `result` is what came of it last."""

    result: Verification

    def __init__(self, cell: Cell, writer: IndexWriter, *, contents_at_once: int | None = None) -> None:
        self._cell = cell
        self._writer = writer
        self._contents_at_once = contents_at_once

    def __call__(self, *, repair: bool = False) -> None:
        with closing(open_changelog_adapter(self._cell)) as adapter:
            comparison = NativeComparison(
                adapter, self._writer, catch_up_timeout_s=0, contents_at_once=self._contents_at_once
            )
            self.result = verify(comparison, repair=repair)


def _fill(engine: Engine, count: int) -> None:
    records = made_up.records(count)
    while batch := list(itertools.islice(records, _BATCH)):
        with writing(engine) as connection:
            connection.execute(insert(instances), [{**record, "revision": 1} for record in batch])


def _change(engine: Engine, count: int) -> None:
    """One revision more for some rows, without an announcement."""
    with writing(engine) as connection:
        uuids = Random(count).sample(sorted(connection.execute(select(instances.c.uuid)).scalars()), count)
        changed = update(instances).where(instances.c.uuid.in_(uuids))
        connection.execute(changed.values(revision=instances.c.revision + 1))


def _remove(index: IndexSettings) -> None:
    if index.backend == "elasticsearch":
        with Elasticsearch(list(index.urls), request_timeout=30) as client:
            client.indices.delete(index=list(client.indices.get(index=f"{index.prefix}-*").body))
