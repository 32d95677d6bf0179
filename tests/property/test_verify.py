"""Whatever the differences of index and cell: verify finds each of them, invents none, and repair repairs them all."""

from collections.abc import Iterator
from contextlib import closing
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fleetlight.cells.model import InstanceRow
from fleetlight.indexer.backends.base import OLDEST_TIME_VERSION, IndexWriter
from fleetlight.indexer.backends.sqlite.writer import SqliteWriter
from fleetlight.indexer.reconcile.differences import DifferenceKind
from fleetlight.indexer.reconcile.native_cell import NativeComparison
from fleetlight.indexer.reconcile.reconcile import verify
from fleetlight.indexer.transform.documents import to_document
from tests.support.examples import examples
from tests.support.fleets.documents import make_record
from tests.support.memory.memory_cell import CELL_UUID, MemoryCell
from tests.support.memory.stage import kinds

# Random ones, and ones with long common beginnings.
UUIDS = st.one_of(st.uuids().map(str), st.integers(0, 300).map(lambda number: str(UUID(int=number))))
REVISIONS = st.integers(1, 4)
FOREIGN = st.just(OLDEST_TIME_VERSION)
INSTANCES = st.dictionaries(UUIDS, st.tuples(st.none() | REVISIONS, st.none() | REVISIONS | FOREIGN), max_size=60)


def expected_kind(revision: int | None, version: int | None) -> DifferenceKind | None:
    match revision, version:
        case None, None:
            return None
        case None, int(found):
            return DifferenceKind.ONLY_IN_INDEX if found < OLDEST_TIME_VERSION else None
        case int(), None:
            return DifferenceKind.MISSING
        case int(have), int(found):
            return None if have == found else DifferenceKind.OLDER if found < have else DifferenceKind.NEWER
    raise AssertionError((revision, version))


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IndexWriter]:
    with closing(SqliteWriter(tmp_path_factory.mktemp("index") / "index.db")) as writer:
        writer.prepare()
        yield writer


@settings(max_examples=examples(100))
@given(INSTANCES)
def test_differences_are_found_exactly_and_repaired(
    writer: IndexWriter, instances: dict[str, tuple[int | None, int | None]]
) -> None:
    writer.remove_cell(CELL_UUID)
    cell = MemoryCell()
    for uuid, (revision, version) in instances.items():
        record: dict[str, Any] = make_record(uuid=uuid)
        if revision is not None:
            cell.rows[uuid] = InstanceRow(CELL_UUID, revision, record)
        if version is not None:
            writer.write([to_document(CELL_UUID, version, record)])
    writer.make_searchable()
    wanted = {uuid: kind for uuid, versions in instances.items() if (kind := expected_kind(*versions)) is not None}
    is_external = {uuid for uuid, (_, version) in instances.items() if version == OLDEST_TIME_VERSION}

    found = verify(NativeComparison(cell, writer, catch_up_timeout_s=0), repair=False)
    assert kinds(found) == wanted
    assert found.remaining == found.differences
    assert found.external == len(is_external)
    assert found.has_caught_up

    repaired = verify(NativeComparison(cell, writer, catch_up_timeout_s=0), repair=True)
    assert kinds(repaired) == wanted
    assert repaired.remaining == ()
    again = verify(NativeComparison(cell, writer, catch_up_timeout_s=0), repair=False)
    assert (again.differences, again.rows_read) == ((), 0)
    assert again.rows == again.documents == len(cell.rows)
    assert again.external == len(is_external - cell.rows.keys())
