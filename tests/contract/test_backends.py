"""What every index backend promises: one suite, run over each of them."""

import asyncio
import itertools
import json
import random
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from elasticsearch import Elasticsearch
from msgspec.structs import replace

from fleetlight.cells.digests import digests_of
from fleetlight.indexer.backends.base import (
    BEING_RECONCILED,
    EPOCHS,
    HORIZONS,
    OLDEST_TIME_VERSION,
    REPAIRS,
    CellProgress,
    Document,
    FoundPage,
    FoundRow,
    IndexSearcher,
    IndexWriter,
    WriteResult,
)
from fleetlight.indexer.backends.elasticsearch.mapping import MAPPING_VERSION, instance_mapping, state_mapping
from fleetlight.indexer.backends.opening import open_generations, open_searcher, open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.errors import IndexReplacedError, IndexUnavailableError, IndexVersionError, RebuildError
from fleetlight.indexer.extra_fields import Extra
from fleetlight.indexer.reconcile.retention import has_forgotten
from fleetlight.query.counts import CountRequest, Counts
from fleetlight.query.errors import NotExpressibleError
from fleetlight.query.filters import (
    EVERYTHING,
    And,
    Eq,
    Filter,
    Ge,
    Gt,
    Has,
    In,
    IsNotNull,
    IsNull,
    Lacks,
    Le,
    Lt,
    Matches,
    Ne,
    NotIn,
    NotMatches,
    Or,
)
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import Collation, Direction, SortKey, SortOrder
from fleetlight.resources.errors import UnknownFieldError
from fleetlight.resources.fields import Kind, Record, from_microseconds
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.views.compute.view import BriefTemplate, FullTemplate
from fleetlight.views.projection import FieldValues, Projection
from tests.support.fleets.documents import CREATED_AT, TEMPLATE, make_document, make_record, make_uuid
from tests.support.fleets.other_version_indexes import make_newer
from tests.support.oracles.filter_oracle import expected_page
from tests.support.oracles.shown_items import stored_item
from tests.support.servers.index_server import index_at, index_client

pytestmark = pytest.mark.no_rerun

BACKENDS = ["sqlite", pytest.param("elasticsearch", marks=pytest.mark.elasticsearch)]
DEFAULT_ORDER = SortOrder.of(INSTANCE_FIELDS, [SortKey("created_at", Direction.DESC)])
BY_LOCKED = SortOrder.of(INSTANCE_FIELDS, [SortKey("locked")])
NOWHERE = "http://127.0.0.1:9"
BASES: dict[str, Any] = {"versioned_base": "http://api/v2.1", "plain_base": "http://api"}
TEMPLATES = (
    BriefTemplate(1, **BASES),
    FullTemplate(1, is_admin=False, **BASES),
    FullTemplate(104, is_admin=False, **BASES),
    FullTemplate(104, is_admin=True, host_statuses={"c0": {b'"node-1"': b'"UP"'}}, **BASES),
)


class Index:
    """Both sides of one index, with the asynchronous one made blocking."""

    def __init__(self, writer: IndexWriter, searcher: IndexSearcher, runner: asyncio.Runner) -> None:
        self.writer = writer
        self._searcher = searcher
        self._run = runner.run

    def write(self, *documents: Document) -> WriteResult:
        result = self.writer.write(documents)
        self.writer.make_searchable()
        return result

    def search(
        self,
        node: Filter = EVERYTHING,
        *,
        order: SortOrder = DEFAULT_ORDER,
        limit: int = 1000,
        after: tuple[Any, ...] | None = None,
        cells: Sequence[str] = ("c0", "c1", "c2"),
        projection: Projection = TEMPLATE,
    ) -> Sequence[FoundRow]:
        """The rows of a search, which are those of the page that nothing is merged with."""
        request = PageRequest(node, order, limit, after)
        rows: Sequence[FoundRow] = self._run(self._searcher.search(request, cells, projection))
        items = b",".join([row.item for row in rows])
        page = self._run(self._searcher.page(request, cells, projection))
        assert page == FoundPage(items, len(rows), rows[-1].position if rows else None)
        return rows

    def uuids(self, node: Filter = EVERYTHING, **arguments: Any) -> list[str]:
        return [row.position[-1] for row in self.search(node, **arguments)]

    def count(self, request: CountRequest, cells: Sequence[str]) -> Mapping[str, Counts]:
        return self._run(self._searcher.count(request, cells))

    def counts(self, request: CountRequest, cells: Sequence[str]) -> dict[str, Mapping[tuple[Any, ...], int]]:
        """The numbers of what is not partial."""
        found = self.count(request, cells)
        assert not any(counts.is_partial for counts in found.values())
        return {cell_uuid: counts.groups for cell_uuid, counts in found.items()}

    def find(self, uuid: str) -> Record | None:
        """The record of one instance, as the values of all fields are."""
        rows = self.search(Eq("uuid", uuid), projection=FieldValues(INSTANCE_FIELDS, [*INSTANCE_FIELDS]))
        return dict(zip(INSTANCE_FIELDS, json.loads(rows[0].item), strict=True)) if rows else None

    def progress(self) -> dict[str, CellProgress]:
        return dict(self._run(self._searcher.progress()))


@pytest.fixture(params=BACKENDS)
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> IndexSettings:
    if request.param == "sqlite":
        return IndexSettings(backend="sqlite", path=tmp_path / "index.db")
    return index_at(
        request.getfixturevalue("elasticsearch_url"),
        request.getfixturevalue("elasticsearch_prefix"),
        search_timeout_s=30,
    )


@pytest.fixture
def index(settings: IndexSettings) -> Iterator[Index]:
    writer, searcher = open_writer(settings), open_searcher(settings)
    with asyncio.Runner() as runner:
        try:
            writer.prepare()
            yield Index(writer, searcher, runner)
        finally:
            runner.run(searcher.close())
            writer.close()


def test_newer_version_replaces_older(index: Index) -> None:
    assert index.write(make_document(1, version=1, display_name="old")) == WriteResult(1, 0)
    assert index.write(make_document(1, version=2, display_name="new")) == WriteResult(1, 0)
    assert index.uuids(Eq("display_name", "new")) == [make_uuid(1)]
    assert index.uuids(Eq("display_name", "old")) == []


@pytest.mark.parametrize("version", [1, 2])
def test_older_or_equal_version_is_stale(index: Index, version: int) -> None:
    index.write(make_document(1, version=2, display_name="new"))
    assert index.write(make_document(1, version=version, display_name="old")) == WriteResult(0, 1)
    assert index.uuids(Eq("display_name", "new")) == [make_uuid(1)]


@pytest.mark.dialect
def test_result_counts_applied_and_stale_in_one_write(index: Index) -> None:
    index.write(make_document(1, version=5))
    result = index.write(make_document(1, version=4), make_document(2), make_document(2), make_document(2, version=2))
    assert result == WriteResult(2, 2)


def test_writing_nothing_is_allowed(index: Index) -> None:
    assert index.write() == WriteResult(0, 0)
    assert index.writer.read([]) == {}
    index.writer.save_progress([])


def test_any_order_and_repetition_leaves_the_same_index(index: Index) -> None:
    generator = random.Random(7)
    for number in range(8):
        changes = [make_document(number, version=version, display_name=f"name-{version}") for version in (1, 2, 3)]
        repeated = generator.sample([*changes, *changes], 6)
        for start in range(0, len(repeated), 2):
            index.write(*repeated[start : start + 2])
        assert index.writer.read([make_uuid(number)]) == {make_uuid(number): changes[-1]}
    assert len(index.uuids(Eq("display_name", "name-3"))) == len(index.uuids()) == 8


def test_late_update_does_not_revive_deleted_instance(index: Index) -> None:
    index.write(make_document(1, version=3, deleted=True))
    index.write(make_document(1, version=2, deleted=False))
    assert index.uuids(Eq("deleted", True)) == [make_uuid(1)]
    assert index.uuids(Eq("deleted", False)) == []


def test_only_asked_cells_are_searched(index: Index) -> None:
    index.write(*(make_document(number, cell_uuid=f"c{number % 3}") for number in range(9)))
    assert index.uuids(cells=["c1"]) == [make_uuid(number) for number in (7, 4, 1)]
    assert len(index.search(cells=["c0", "c2"])) == 6
    assert index.search(cells=[]) == []


def test_items_are_those_that_the_template_makes_of_the_view(index: Index) -> None:
    document = make_document(1, display_name='quoted "name" \\u002f é \u2028 \U0001f600', tags=["a"])
    index.write(document)
    for template in TEMPLATES:
        (row,) = index.search(projection=template)
        assert row.item == stored_item(template, document.view, "c0")


@pytest.mark.parametrize("order", [DEFAULT_ORDER, BY_LOCKED], ids=["by time", "by flag"])
def test_values_of_fields_are_those_of_the_record(index: Index, order: SortOrder) -> None:
    documents = [
        make_document(1, display_name='quoted "name" \\u002f é \u2028 \U0001f600', tags=["b", "a"], locked=True),
        make_document(2, tags=[], user_data=None, metadata={}, progress=-(2**53) - 1, deleted=True, locked=None),
    ]
    index.write(*documents)
    for names in ([*INSTANCE_FIELDS], ["display_name"], ["tags", "uuid", "locked"], ["progress", "locked", "host"]):
        rows = index.search(projection=FieldValues(INSTANCE_FIELDS, names), order=order)
        assert len(rows) == 2
        for row in rows:
            [record] = [document.record for document in documents if document.id == row.position[-1]]
            assert json.loads(row.item) == [record[name] for name in names]
            assert row.position == order.values(record)


def test_find_returns_the_record_also_of_a_deleted_instance(index: Index) -> None:
    document = make_document(
        1,
        version=OLDEST_TIME_VERSION,
        deleted=True,
        tags=["b", "a"],
        metadata={"k": None, "é": "\x00"},
        fault={"code": 500, "created_at": CREATED_AT, "message": "no host", "details": None},
    )
    index.write(document)
    assert index.find(make_uuid(1)) == document.record
    assert index.find(make_uuid(2)) is None
    assert index.find("not a uuid, nor a path: ../_search?*") is None


@pytest.mark.dialect
def test_read_returns_documents_that_cannot_be_found_yet(index: Index) -> None:
    documents = [make_document(number, version=number + 7, cell_uuid="c1", tags=["x"]) for number in (1, 2)]
    index.writer.write(documents)
    found = index.writer.read([make_uuid(1), make_uuid(2), make_uuid(3)])
    assert found == {document.id: document for document in documents}


@pytest.mark.parametrize("version", [1, OLDEST_TIME_VERSION - 1, OLDEST_TIME_VERSION])
def test_whole_record_is_kept_whichever_way_it_came(index: Index, version: int) -> None:
    others: dict[str, Any] = {
        name: {"of": [name, None, 1.5, {"é": True}]}
        for name, field in INSTANCE_FIELDS.items()
        if field.kind is Kind.OTHER and not field.is_list
    }
    # Longer than what Lucene takes as a term, and other than objects.
    others |= {"user_data": "IyEv" * 16_384, "block_devices": [], "security_groups": ["default", "\x7f"]}
    document = make_document(1, version=version)
    whole = replace(document, record={**document.record, **others})
    assert index.write(whole) == WriteResult(1, 0)
    assert index.find(whole.id) == whole.record
    assert index.writer.read([whole.id]) == {whole.id: whole}
    [row] = index.search()
    assert row.item == stored_item(TEMPLATE, whole.view)


BY = [
    (),
    ("vm_state",),
    ("tags",),
    ("tags", "locked"),
    ("locked", "progress", "host"),
    ("created_at",),
    ("tags", "uuid"),
]


def counted_by_hand(documents: Sequence[Document], by: Sequence[str]) -> dict[str, dict[tuple[Any, ...], int]]:
    counts: dict[str, dict[tuple[Any, ...], int]] = {}
    for document in documents:
        groups: set[tuple[Any, ...]] = {()}
        for name in by:
            value = document.record[name]
            values = (value or [None]) if name == "tags" else [value]
            groups = {(*group, each) for group in groups for each in values}
        for group in groups:
            of_cell = counts.setdefault(document.cell_uuid, {})
            of_cell[group] = of_cell.get(group, 0) + 1
    return counts


@pytest.mark.parametrize("by", BY, ids=map(",".join, BY))
def test_counts_are_those_of_the_documents_by_cell_and_group(index: Index, by: tuple[str, ...]) -> None:
    generator = random.Random(3)
    documents = [
        make_document(
            number,
            cell_uuid=f"c{number % 3}",
            vm_state=generator.choice(("active", "error", "\uffff", "😀", None)),
            tags=generator.sample(["a", "A", "é", ""], generator.randrange(4)),
            locked=generator.choice((True, False, None)),
            progress=generator.choice((None, -1, 2**62)),
            host=generator.choice((None, "", "n1")),
            created_at=generator.choice((None, 0, CREATED_AT)),
        )
        for number in range(60)
    ]
    index.write(*documents)
    request = CountRequest(EVERYTHING, INSTANCE_FIELDS, by)
    assert index.counts(request, ["c0", "c2"]) == counted_by_hand(
        [document for document in documents if document.cell_uuid != "c1"], by
    )
    errors = CountRequest(Eq("vm_state", "error"), INSTANCE_FIELDS, by)
    of_errors = [document for document in documents if document.record["vm_state"] == "error"]
    assert index.counts(errors, ["c0", "c1", "c2"]) == counted_by_hand(of_errors, by)
    assert index.counts(request, []) == {}


@pytest.mark.dialect
def test_counts_of_more_groups_than_there_may_be_are_partial(index: Index) -> None:
    documents = [make_document(number, cell_uuid=f"c{number % 2}", host=f"n{number}") for number in range(6)]
    index.write(*documents)
    for most, is_partial in ((6, False), (5, True), (1, True)):
        request = CountRequest(EVERYTHING, INSTANCE_FIELDS, ("host",), most)
        counts = index.count(request, ["c0", "c1"])
        assert sum(len(of_cell.groups) for of_cell in counts.values()) == most
        assert {of_cell.is_partial for of_cell in counts.values()} == {is_partial}
        assert counts.keys() <= {"c0", "c1"}
    with pytest.raises(UnknownFieldError, match="metadata"):
        CountRequest(EVERYTHING, INSTANCE_FIELDS, ("metadata",))


def test_progress_is_kept(index: Index) -> None:
    first = CellProgress("c0", 10, CREATED_AT, is_complete=False)
    index.writer.save_progress([first, CellProgress("c1", 1, 2, is_complete=True)])
    index.writer.save_progress([CellProgress("c1", 3, 4, is_complete=True)])
    expected = {"c0": first, "c1": CellProgress("c1", 3, 4, is_complete=True)}
    assert index.writer.load_progress() == expected
    assert index.progress() == expected


def test_progress_is_not_saved_over_what_another_process_has_saved_meanwhile(index: Index) -> None:
    taken_back = CellProgress("c0", 0, 0, is_complete=False)
    index.writer.save_progress([CellProgress(uuid, 5, 2, is_complete=True) for uuid in ("c0", "c1")])
    loaded = index.writer.load_progress()
    index.writer.save_progress([taken_back])
    higher = [CellProgress(uuid, 6, 2, is_complete=True) for uuid in ("c0", "c1", "c2")]
    assert index.writer.save_progress(higher, loaded) == {"c0"}
    assert index.writer.load_progress() == {"c0": taken_back, "c1": higher[1], "c2": higher[2]}
    assert index.writer.save_progress(higher, index.writer.load_progress()) == frozenset()
    assert index.writer.load_progress()["c0"] == higher[0]


def test_state_is_kept_by_kind_and_name_until_it_is_forgotten(index: Index) -> None:
    assert index.writer.load_state("sync") == {}
    index.writer.save_state("sync", {"c0": {"rows": 3, "after": ["é", None]}, "c1": [1.5]})
    index.writer.save_state("other", {"c0": "text"})
    index.writer.save_state("sync", {"c0": {"rows": 4}, "c1": None, "never there": None})
    assert index.writer.load_state("sync") == {"c0": {"rows": 4}}
    assert index.writer.load_state("other") == {"c0": "text"}
    assert index.progress() == {}, "state is no progress"


@pytest.mark.dialect
def test_fields_that_nobody_here_knows_are_kept_counted_and_found(index: Index) -> None:
    extras = [
        Extra("nova/InstancePayload-2.9", {"rack": "r7", "load": 1}, {"rack": "text", "load": "text"}),
        Extra("nova/InstancePayload-2.9", {"rack": "r7"}, {"rack": "text"}),
        Extra("nova/InstancePayload-2.9", {"rack": {"row": 1}}, {}),
    ]
    documents = [replace(make_document(number), extra=extra) for number, extra in enumerate(extras)]
    index.write(*documents, make_document(9))
    assert index.writer.count_extra_fields() == {"rack:text": 2, "rack:-": 1, "load:!text": 1}
    assert index.writer.find_extra(["rack=r7", "rack=none"], 10) == [make_uuid(0), make_uuid(1)]
    assert index.writer.find_extra(["rack=r7"], 1) == [make_uuid(0)]
    read = index.writer.read([document.id for document in documents])
    assert [read[document.id].extra for document in documents] == extras


@pytest.mark.dialect
def test_digests_and_revisions_are_those_of_the_cells_documents(index: Index) -> None:
    generator = random.Random(5)
    uuids = [str(UUID(int=generator.getrandbits(128), version=4)) for _ in range(300)]
    versions = {uuid: generator.choice([1, 2, 2**31, OLDEST_TIME_VERSION - 1]) for uuid in uuids}
    index.write(
        *(make_document(uuid=uuid, version=version) for uuid, version in versions.items()),
        make_document(1, cell_uuid="c1"),
        make_document(uuid=str(uuid4()), version=OLDEST_TIME_VERSION),
    )
    prefix, other = uuids[0][:2], uuids[1][:1]
    for prefixes, length in (([""], 1), ([""], 2), ([prefix, other], 3), ([prefix[:1]], 3), ([uuids[0][:8]], 10)):
        expected = digests_of(versions, prefixes, length)
        assert index.writer.digests("c0", prefixes, length) == expected
        within = {uuid: version for uuid, version in versions.items() if uuid.startswith(tuple(prefixes))}
        assert index.writer.revisions("c0", prefixes) == within
    assert index.writer.digests("c2", [""], 1) == {}
    assert index.writer.revisions("c2", [""]) == {}
    assert index.writer.digests("c0", ["no uuid begins like this"], 25) == {}


def deleted(number: int, *, at: int | None, updated_at: int | None = None, **changes: Any) -> Document:
    return make_document(number, deleted=True, deleted_at=at, updated_at=updated_at, **changes)


@pytest.mark.dialect
def test_purge_removes_what_was_deleted_before_the_horizon_and_nothing_else(index: Index) -> None:
    staying = [
        make_document(1),
        make_document(2, deleted_at=5),
        deleted(3, at=100),
        deleted(4, at=99, updated_at=100),
        deleted(5, at=None),
        deleted(6, at=99, cell_uuid="c1"),
    ]
    leaving = [deleted(7, at=99), deleted(8, at=5, updated_at=99), deleted(9, at=5, version=OLDEST_TIME_VERSION)]
    index.write(*staying, *leaving)
    removed: list[int] = []
    assert has_forgotten(index.writer, "c0", 100)
    assert index.writer.purge("c0", 100, removed.append) == 3
    assert removed[-1] == 3
    index.writer.make_searchable()
    assert not has_forgotten(index.writer, "c0", 100)
    assert sorted(index.uuids()) == [document.id for document in staying]
    assert index.writer.purge("c0", 100) == 0
    assert index.writer.purge("c0", 0) == 0


def test_purge_takes_any_number_of_batches(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    for backend in ("sqlite", "elasticsearch"):
        monkeypatch.setattr(f"fleetlight.indexer.backends.{backend}.writer._REMOVE_BATCH", 2)
    index.write(*(deleted(number, at=1) for number in range(5)), make_document(6))
    assert index.writer.purge("c0", 2) == 5
    assert index.uuids() == [make_uuid(6)]


def test_what_is_forgotten_is_in_no_digest_whether_it_was_purged_or_not(index: Index) -> None:
    index.write(make_document(1, version=3), deleted(2, at=99, version=4), deleted(3, at=100, version=5))
    expected = {make_uuid(1): 3, make_uuid(3): 5}
    for _ in range(2):
        assert index.writer.digests("c0", [""], 1, horizon=100) == digests_of(expected, [""], 1)
        assert index.writer.revisions("c0", [""], horizon=100) == expected
        index.writer.purge("c0", 100)
    assert index.writer.revisions("c0", [""]) == expected


def test_horizon_of_a_cell_is_told_with_its_progress_and_survives_it(index: Index) -> None:
    def horizon() -> int:
        return index.progress()["c0"].horizon

    index.writer.save_progress([CellProgress("c0", 1, 2, is_complete=True)])
    assert horizon() == 0
    index.writer.save_state(HORIZONS, {"c0": 2**50, "another": 7})
    assert horizon() == 2**50
    index.writer.save_progress([CellProgress("c0", 2, 3, is_complete=True)])
    assert horizon() == 2**50


def test_cell_that_is_being_repaired_is_not_complete_whatever_somebody_saves_meanwhile(index: Index) -> None:
    """An indexer that stands by knows nothing of the restore, and may have read again what it could not index."""
    index.writer.save_progress([CellProgress(uuid, 7, 2, is_complete=True) for uuid in ("c0", "c1")])
    index.writer.save_state(EPOCHS, {"c0": BEING_RECONCILED, "c1": "first"})
    index.writer.save_progress([CellProgress("c0", 7, 3, is_complete=True)])
    assert {uuid: cell.is_complete for uuid, cell in index.progress().items()} == {"c0": False, "c1": True}
    index.writer.save_state(EPOCHS, {"c0": "second"})
    assert index.progress()["c0"].is_complete


def test_cell_of_which_rows_make_place_for_others_is_not_complete(index: Index) -> None:
    index.writer.save_progress([CellProgress(uuid, 7, 2, is_complete=True) for uuid in ("c0", "c1")])
    index.writer.save_state(REPAIRS, {"c0": True})
    assert {uuid: cell.is_complete for uuid, cell in index.progress().items()} == {"c0": False, "c1": True}
    index.writer.save_state(REPAIRS, {"c0": None})
    assert index.progress()["c0"].is_complete


def test_sums_of_many_large_numbers_are_exact(index: Index) -> None:
    versions = {make_uuid(number): number for number in range(1, 3000)}
    index.write(*(make_document(number, version=number) for number in range(1, 3000)))
    assert index.writer.digests("c0", [""], 1) == digests_of(versions, [""], 1)


def test_external_documents_are_counted_apart(index: Index) -> None:
    index.write(
        make_document(1),
        make_document(2, version=OLDEST_TIME_VERSION),
        make_document(3, version=CREATED_AT),
        make_document(4, version=CREATED_AT, cell_uuid="c1"),
    )
    assert index.writer.count_external("c0") == 2
    assert index.writer.count_external("c2") == 0


@pytest.mark.dialect
def test_removed_document_makes_place_for_any_version_and_a_newer_one_stays(index: Index) -> None:
    index.write(make_document(1, version=5), make_document(2, version=5), make_document(3, version=5))
    index.writer.remove({make_uuid(1): 5, make_uuid(2): 4, make_uuid(4): 1})
    index.writer.make_searchable()
    assert sorted(index.uuids()) == [make_uuid(2), make_uuid(3)]
    assert index.write(make_document(1, version=3), make_document(3, version=3)) == WriteResult(1, 1)
    assert index.writer.read([make_uuid(1)])[make_uuid(1)].version == 3
    index.writer.remove({})


@pytest.mark.dialect
def test_removing_a_cell_leaves_no_row_of_it_and_touches_no_other(index: Index) -> None:
    index.write(*(make_document(number, cell_uuid=f"c{number % 3}", deleted=number % 2 == 0) for number in range(9)))
    index.writer.save_progress([CellProgress(uuid, 1, 2, is_complete=True) for uuid in ("c0", "c1")])
    index.writer.write([make_document(9, cell_uuid="c0")])  # not searchable yet
    removed: list[int] = []
    assert index.writer.remove_cell("c0", removed.append) == 4
    assert removed == [4]
    assert index.uuids(cells=["c0"]) == []
    assert len(index.uuids()) == 6
    assert index.writer.read([make_uuid(0), make_uuid(9)]) == {}
    assert index.progress().keys() == index.writer.load_progress().keys() == {"c1"}
    assert index.writer.remove_cell("c0") == 0


def test_cell_of_several_batches_is_removed_with_its_progress_told(index: Index) -> None:
    for start in range(0, 6000, 1500):
        index.writer.write([make_document(number, cell_uuid="c0") for number in range(start, start + 1500)])
    index.write(make_document(6000, cell_uuid="c1"))
    removed: list[int] = []
    assert index.writer.remove_cell("c0", removed.append) == 6000
    assert removed == sorted(set(removed))
    assert len(removed) > 1
    assert removed[-1] == 6000
    assert index.uuids() == [make_uuid(6000)]


def test_instances_of_a_removed_cell_can_be_written_again_at_once(index: Index) -> None:
    index.write(make_document(1, version=5, cell_uuid="c0"))
    index.writer.remove_cell("c0")
    assert index.write(make_document(1, version=5, cell_uuid="c1")) == WriteResult(1, 0)
    assert index.uuids(cells=["c1"]) == [make_uuid(1)]


def test_prepare_twice_keeps_what_is_there(index: Index, settings: IndexSettings) -> None:
    index.write(make_document(1))
    index.writer.save_progress([CellProgress("c0", 1, 2, is_complete=True)])
    again = open_writer(settings)
    again.prepare()
    assert again.load_progress().keys() == {"c0"}
    again.close()
    assert index.uuids() == [make_uuid(1)]


@pytest.mark.dialect
def test_several_processes_may_prepare_at_once(settings: IndexSettings) -> None:
    writers = [open_writer(settings) for _ in range(4)]
    with ThreadPoolExecutor(len(writers)) as threads:
        list(threads.map(lambda writer: writer.prepare(), writers))
    for number, writer in enumerate(writers):
        assert writer.write([make_document(number)]) == WriteResult(1, 0)
    writers[0].make_searchable()
    assert len(writers[0].read([make_uuid(number) for number in range(4)])) == 4
    for writer in writers:
        writer.close()


@pytest.mark.dialect
def test_rejected_document_is_named_and_the_others_are_written(index: Index) -> None:
    bad = make_document(2, progress=2**70)
    other_bad = replace(make_document(3), record=make_record(3, display_name="\ud800"))
    worse = make_document(4, power_state="running")
    result = index.write(make_document(1), bad, other_bad, worse, make_document(5))
    assert (result.applied, result.stale) == (2, 0)
    assert {rejection.document.id for rejection in result.rejected} == {bad.id, other_bad.id, worse.id}
    assert all(rejection.reason for rejection in result.rejected)
    assert sorted(index.uuids()) == [make_uuid(1), make_uuid(5)]


def test_batch_of_several_bulks_is_written_and_counted(index: Index) -> None:
    documents = [make_document(number) for number in range(1700)]
    assert index.write(*documents) == WriteResult(1700, 0)
    assert index.write(*documents) == WriteResult(0, 1700)
    assert index.uuids(limit=5) == [make_uuid(number) for number in range(1699, 1694, -1)]


@pytest.mark.parametrize(
    "away",
    [
        IndexSettings(backend="sqlite", path=Path("no-such-folder/index.db")),
        IndexSettings(backend="elasticsearch", urls=(NOWHERE,)),
    ],
    ids=["sqlite", "elasticsearch"],
)
def test_index_that_does_not_answer_is_unavailable(away: IndexSettings) -> None:
    searcher = open_searcher(away)
    with asyncio.Runner() as runner:
        for ask in (searcher.search(PageRequest(EVERYTHING, DEFAULT_ORDER, 1), ["c0"], TEMPLATE), searcher.progress()):
            with pytest.raises(IndexUnavailableError):
                runner.run(ask)
        with pytest.raises(IndexUnavailableError):
            runner.run(searcher.page(PageRequest(EVERYTHING, DEFAULT_ORDER, 1), ["c0"], TEMPLATE))
        runner.run(searcher.close())


@pytest.mark.dialect
def test_index_that_was_never_prepared_is_unavailable(settings: IndexSettings) -> None:
    searcher, writer = open_searcher(settings), open_writer(settings)
    with asyncio.Runner() as runner:
        with pytest.raises(IndexUnavailableError):
            runner.run(searcher.search(PageRequest(EVERYTHING, DEFAULT_ORDER, 1), ["c0"], TEMPLATE))
        with pytest.raises(IndexUnavailableError):
            runner.run(searcher.progress())
        runner.run(searcher.close())
    with pytest.raises(IndexUnavailableError):
        writer.write([make_document(1)])
    with pytest.raises(IndexUnavailableError):
        writer.load_progress()
    writer.close()


# A small world in which every comparison, null and tie happens: what the oracle is asked about, too.
WORLD = [
    make_document(
        number,
        cell_uuid=f"c{number % 3}",
        display_name=name,
        host=host,
        created_at=None if number % 7 == 6 else CREATED_AT + number // 4,
        updated_at=CREATED_AT if number % 2 else None,
        power_state=(None, 0, 1, -5)[number % 4],
        locked=(True, False, None)[number % 3],
        deleted=number % 5 == 0,
        tags=[[], ["a"], ["a", "b"]][number % 3],
    )
    for number, (name, host) in enumerate(
        itertools.product(
            ["web", "Web", "", None, "wéb", "we\u0301b", "\U0001f600", "\uffff", "web-10", "web-9", "a b", "we.b"],
            ["node-1", None, ""],
        )
    )
]
FILTERS: list[Filter] = [
    EVERYTHING,
    Or(()),
    Eq("display_name", "web"),
    Eq("display_name", ""),
    Ne("display_name", "web"),
    In("host", ("node-1", "")),
    In("host", ()),
    NotIn("host", ("node-1",)),
    NotIn("host", ()),
    IsNull("host"),
    IsNotNull("display_name"),
    Lt("display_name", "web"),
    Ge("display_name", "\uffff"),
    Gt("power_state", -1),
    Le("power_state", 0),
    Ge("updated_at", from_microseconds(CREATED_AT)),
    Ge("created_at", from_microseconds(CREATED_AT + 4)),
    Eq("locked", True),
    Ne("locked", True),
    Eq("deleted", False),
    Has("tags", "b"),
    Lacks("tags", "b"),
    IsNull("tags"),
    Matches("display_name", "^w.b$"),
    NotMatches("display_name", "b-[0-9]"),
    And((Eq("deleted", False), Or((Matches("display_name", "e"), IsNull("host"))), Ne("power_state", 1))),
]
ORDERS = [
    SortOrder.of(INSTANCE_FIELDS, [SortKey(name, direction) for name, direction in keys])
    for keys in (
        [("created_at", Direction.DESC)],
        [("created_at", Direction.ASC)],
        [("display_name", Direction.ASC)],
        [("display_name", Direction.DESC), ("host", Direction.ASC)],
        [("host", Direction.DESC), ("power_state", Direction.DESC)],
        [("power_state", Direction.ASC), ("locked", Direction.DESC)],
        [("locked", Direction.ASC), ("updated_at", Direction.DESC), ("display_name", Direction.ASC)],
        [("uuid", Direction.DESC)],
    )
]


@pytest.mark.dialect
def test_every_filter_and_order_paged_to_the_end_agrees_with_the_oracle(index: Index) -> None:
    index.write(*WORLD)
    records = [document.record for document in WORLD]
    for node, order in [*((node, DEFAULT_ORDER) for node in FILTERS), *((EVERYTHING, order) for order in ORDERS)]:
        expected = expected_page(records, PageRequest(node, order, 1000), INSTANCE_FIELDS)
        rows: list[FoundRow] = []
        while page := index.search(node, order=order, limit=7, after=rows[-1].position if rows else None):
            rows.extend(page)
        assert [row.position for row in rows] == [order.values(record) for record in expected], (node, order)


@pytest.mark.dialect
@pytest.mark.parametrize(
    ("direction", "flags"), [(Direction.ASC, [None, None, False, True]), (Direction.DESC, [True, False, None, None])]
)
def test_page_begins_behind_each_value_of_a_flag(
    index: Index, direction: Direction, flags: Sequence[bool | None]
) -> None:
    index.write(*(make_document(number, locked=(False, True, None, None)[number]) for number in range(4)))
    order = SortOrder.of(INSTANCE_FIELDS, [SortKey("locked", direction)])
    positions = [row.position for row in index.search(order=order)]
    assert [position[0] for position in positions] == flags
    for number, position in enumerate(positions):
        assert [row.position for row in index.search(order=order, after=position)] == positions[number + 1 :]


def test_position_of_a_row_that_is_gone_still_starts_a_page(index: Index) -> None:
    index.write(*(make_document(number) for number in (1, 3, 5)))
    position = (CREATED_AT + 4, make_uuid(4))
    assert index.uuids(after=position) == [make_uuid(3), make_uuid(1)]


@pytest.mark.parametrize(
    "request_",
    [
        PageRequest(Matches("display_name", r"\bweb\b"), DEFAULT_ORDER, 10),
        PageRequest(EVERYTHING, DEFAULT_ORDER, 10, (CREATED_AT, "NOT-A-UUID")),
        PageRequest(EVERYTHING, DEFAULT_ORDER, 10_001),
    ],
    ids=["pattern", "position", "limit"],
)
def test_what_elasticsearch_cannot_express_exactly_is_refused_before_it_is_asked(request_: PageRequest) -> None:
    searcher = open_searcher(IndexSettings(backend="elasticsearch", urls=(NOWHERE,)))
    with asyncio.Runner() as runner:
        with pytest.raises(NotExpressibleError):
            runner.run(searcher.search(request_, ["c0"], TEMPLATE))
        runner.run(searcher.close())


@pytest.mark.parametrize("direction", list(Direction))
def test_names_are_in_nice_order_page_by_page(index: Index, direction: Direction) -> None:
    names = ["web10", "web9", None, "web", "Web1", "9", "10", "web09", "a\1", "a\2", "é2", "é10", ""]
    documents = [make_document(number, display_name=name, node=name) for number, name in enumerate(names)]
    index.write(*documents)
    for field in ("display_name", "node"):
        order = SortOrder.of(INSTANCE_FIELDS, [SortKey(field, direction, Collation.NICE)])
        whole = PageRequest(EVERYTHING, order, 100)
        expected = expected_page([document.record for document in documents], whole, INSTANCE_FIELDS)
        found: list[str] = []
        after: tuple[Any, ...] | None = None
        while len(found) < len(names):
            rows = index.search(order=order, limit=4, after=after)
            found += [row.position[-1] for row in rows]
            after = rows[-1].position
        assert found == [record["uuid"] for record in expected]


@pytest.mark.dialect
@pytest.mark.elasticsearch
def test_text_longer_than_a_term_is_rejected_rather_than_lost_from_the_order(
    elasticsearch_url: str, elasticsearch_prefix: str
) -> None:
    writer = open_writer(index_at(elasticsearch_url, elasticsearch_prefix))
    writer.prepare()
    result = writer.write([make_document(1, display_description="é" * 17_000), make_document(2)])
    writer.close()
    assert [rejection.document.id for rejection in result.rejected] == [make_uuid(1)]
    assert "display_description" in result.rejected[0].reason
    assert result.applied == 1


@pytest.mark.elasticsearch
def test_index_that_was_removed_by_hand_is_made_anew_without_its_progress(
    elasticsearch_url: str, elasticsearch_prefix: str
) -> None:
    settings = index_at(elasticsearch_url, elasticsearch_prefix)
    writer = open_writer(settings)
    writer.prepare()
    writer.save_progress([CellProgress("c0", 10, CREATED_AT, is_complete=True)])
    with index_client(elasticsearch_url) as client:
        client.indices.delete(index=list(client.indices.get_alias(name=f"{elasticsearch_prefix}-instances").body))
    with pytest.raises(IndexUnavailableError):
        writer.write([make_document(1)])
    writer.prepare()
    assert writer.load_progress() == {}
    assert writer.write([make_document(1)]) == WriteResult(1, 0)
    writer.close()


@pytest.mark.elasticsearch
def test_progress_is_not_saved_for_an_index_that_another_process_made_anew(
    elasticsearch_url: str, elasticsearch_prefix: str
) -> None:
    settings = index_at(elasticsearch_url, elasticsearch_prefix)
    progress = CellProgress("c0", 2, 3, is_complete=True)
    writer, other = open_writer(settings), open_writer(settings)
    writer.prepare()
    writer.save_progress([progress])
    with index_client(elasticsearch_url) as client:
        client.indices.delete(index=list(client.indices.get_alias(name=f"{elasticsearch_prefix}-instances").body))
    with pytest.raises(IndexReplacedError):
        writer.save_progress([progress])
    other.prepare()
    with pytest.raises(IndexReplacedError):
        writer.save_progress([progress])
    assert other.load_progress() == {}
    writer.prepare()
    writer.save_progress([progress])
    assert other.load_progress() == {"c0": progress}
    writer.close()
    other.close()


@pytest.mark.elasticsearch
@pytest.mark.parametrize("state", ["closed", "write", "read_only"])
@pytest.mark.parametrize("name", [pytest.param("instances", marks=pytest.mark.dialect), "items", "progress", "state"])
def test_index_that_takes_nothing_is_away_until_it_is_made_to(
    elasticsearch_url: str, elasticsearch_prefix: str, name: str, state: str
) -> None:
    """It is the fault of the index: no document is refused for it, and no progress lost."""
    settings = index_at(elasticsearch_url, elasticsearch_prefix)
    progress = CellProgress("c0", 2, 3, is_complete=True)
    node = make_document(2)
    with closing(open_writer(settings)) as writer, index_client(elasticsearch_url, request_timeout=30) as client:
        writer.prepare()
        writer.save_progress([progress])
        index = f"{elasticsearch_prefix}-{name}"
        if state == "closed":
            client.indices.close(index=index)
        else:
            client.indices.put_settings(index=index, settings={f"index.blocks.{state}": True})

        def write_everywhere() -> None:
            writer.write([make_document(1)])
            writer.write([node])
            writer.mark_items("node", "c0", are_whole=True)
            writer.save_state("kind", {"name": 1})
            writer.make_searchable()
            writer.save_progress([progress])

        with pytest.raises(IndexUnavailableError):
            write_everywhere()
        writer.allow_writes()
        write_everywhere()
        assert writer.load_progress() == {"c0": progress}
        assert writer.read([make_uuid(1)]).keys() == {make_uuid(1)}


@pytest.mark.dialect
@pytest.mark.elasticsearch
def test_rebuild_does_not_end_the_write_block_of_a_person(elasticsearch_url: str, elasticsearch_prefix: str) -> None:
    settings = index_at(elasticsearch_url, elasticsearch_prefix)
    with closing(open_writer(settings)) as writer, closing(open_generations(settings)) as generations:
        writer.prepare()
        with index_client(elasticsearch_url) as client:
            client.indices.put_settings(
                index=f"{elasticsearch_prefix}-instances", settings={"index.blocks.write": True}
            )
        with pytest.raises(IndexUnavailableError, match="blocked by"):
            writer.write([make_document(1)])
        generations.create_next()
        with pytest.raises(RebuildError, match=r"blocked \(index\.blocks\.write\), and not by a rebuild"):
            generations.switch(lambda: None)


def _recreated(client: Elasticsearch, name: str) -> None:
    """As a snapshot restored in the place of an index: all is the same but its uuid."""
    [(physical, found)] = client.indices.get(index=name).body.items()
    documents = client.search(index=physical, size=100, version=True).body["hits"]["hits"]
    client.indices.delete(index=physical)
    # Who has it open may write meanwhile, which makes it too, with another uuid all the same.
    create = client.options(ignore_status=400).indices.create
    create(index=physical, mappings=found["mappings"], aliases=found["aliases"])
    for hit in documents:
        client.index(index=physical, id=hit["_id"], document=hit["_source"], refresh=True)


def _deleted(client: Elasticsearch, name: str) -> None:
    client.indices.delete(index=list(client.indices.get(index=name).body))


@pytest.mark.elasticsearch
@pytest.mark.parametrize("damage", [_recreated, _deleted])
@pytest.mark.parametrize("name", [pytest.param("instances", marks=pytest.mark.dialect), "items", "state"])
def test_nothing_is_promised_of_an_index_that_has_the_same_name_only(
    elasticsearch_url: str, elasticsearch_prefix: str, name: str, damage: Callable[[Elasticsearch, str], None]
) -> None:
    """Who has it open notices when it saves, who starts later sees no progress and no items that are whole."""
    settings = index_at(elasticsearch_url, elasticsearch_prefix)
    progress = CellProgress("c0", 2, 3, is_complete=True)
    with closing(open_writer(settings)) as writer, index_client(elasticsearch_url, request_timeout=120) as client:
        writer.prepare()
        writer.write([make_document(1)])
        writer.mark_items("node", "c0", are_whole=True)
        writer.save_state("sync", {"cells:c0": {"position": []}})
        writer.make_searchable()
        writer.save_progress([progress])
        assert writer.are_items_whole("node", "c0")
        damage(client, f"{elasticsearch_prefix}-{name}")
        for notices in (writer.make_searchable, lambda: writer.save_progress([progress])):
            with pytest.raises(IndexReplacedError):
                notices()
        for prepared in (writer, open_writer(settings)):
            prepared.prepare()
            assert prepared.load_progress() == ({"c0": progress} if name == "items" else {})
            assert prepared.are_items_whole("node", "c0") == (name != "items")
            assert bool(prepared.load_state("sync")) == (name == "items" or (name == "state" and damage is _recreated))
        prepared.close()
        writer.save_progress([progress])
        assert writer.load_progress() == {"c0": progress}


@pytest.mark.elasticsearch
@pytest.mark.parametrize("alias", ["instances", "instances-write"])
@pytest.mark.parametrize("stands_for", ["nothing", "another index", pytest.param("both", marks=pytest.mark.dialect)])
def test_alias_that_was_moved_by_hand_is_put_right(
    elasticsearch_url: str, elasticsearch_prefix: str, alias: str, stands_for: str
) -> None:
    """Where the alias for writing stands for an index alone, that is the one, and the old progress is not about it."""
    settings = index_at(elasticsearch_url, elasticsearch_prefix)
    progress = CellProgress("c0", 2, 3, is_complete=True)
    name, other = f"{elasticsearch_prefix}-{alias}", f"{elasticsearch_prefix}-other"
    with closing(open_writer(settings)) as writer, index_client(elasticsearch_url, request_timeout=30) as client:
        writer.prepare()
        writer.save_progress([progress])
        [physical] = client.indices.get_alias(name=name).body
        client.indices.create(index=other, mappings=instance_mapping())
        if stands_for != "both":
            client.indices.delete_alias(index=physical, name=name)
        if stands_for != "nothing":
            client.indices.put_alias(index=other, name=name)
        with pytest.raises(IndexReplacedError):
            writer.make_searchable()
        writer.prepare()
        is_other = alias == "instances-write" and stands_for == "another index"
        for each in ("instances", "instances-write"):
            behind = client.indices.get_alias(name=f"{elasticsearch_prefix}-{each}").body
            assert list(behind) == [other if is_other else physical]
        assert writer.load_progress() == ({} if is_other else {"c0": progress})
        assert writer.write([make_document(1)]).applied == 1
        writer.make_searchable()


@pytest.mark.elasticsearch
@pytest.mark.parametrize("name", ["progress", pytest.param("state", marks=pytest.mark.dialect)])
def test_index_that_the_server_has_made_for_a_document_is_made_anew(
    elasticsearch_url: str, elasticsearch_prefix: str, name: str
) -> None:
    """Between the look and the document it may have been removed."""
    settings = index_at(elasticsearch_url, elasticsearch_prefix)
    progress, index = CellProgress("c0", 2, 3, is_complete=True), f"{elasticsearch_prefix}-{name}"
    with closing(open_writer(settings)) as writer, index_client(elasticsearch_url, request_timeout=30) as client:
        writer.prepare()
        client.indices.delete(index=index)
        client.index(index=index, id="c0", document={"watermark": 2, "index_uuid": "one-two", "kind": "a"})
        with pytest.raises(IndexReplacedError):
            writer.make_searchable()
        writer.prepare()
        writer.save_state("kind", {"name": 1})
        writer.save_progress([progress])
        assert writer.load_progress() == {"c0": progress}


@pytest.mark.elasticsearch
def test_progress_stays_true_of_the_index_that_a_rebuild_has_filled(
    elasticsearch_url: str, elasticsearch_prefix: str
) -> None:
    """Also of cells that no indexer follows, and when two rebuilds come one after the other."""
    settings = index_at(elasticsearch_url, elasticsearch_prefix)
    progress = CellProgress("c0", 2, 3, is_complete=True)
    with closing(open_writer(settings)) as writer, closing(open_generations(settings)) as generations:
        writer.prepare()
        writer.save_progress([progress])
        for _ in range(2):
            generations.create_next()
            generations.switch(lambda: None)
            writer.make_searchable()
            assert writer.load_progress() == {"c0": progress}
            with closing(open_writer(settings)) as other:
                other.prepare()
                assert other.load_progress() == {"c0": progress}


@pytest.mark.elasticsearch
def test_progress_of_an_earlier_program_is_not_believed(elasticsearch_url: str, elasticsearch_prefix: str) -> None:
    settings = index_at(elasticsearch_url, elasticsearch_prefix)
    name = f"{elasticsearch_prefix}-progress"
    earlier = {"watermark": 2, "fresh_as_of": 3, "is_complete": True}
    with closing(open_writer(settings)) as writer, index_client(elasticsearch_url, request_timeout=30) as client:
        writer.prepare()
        [found] = client.indices.get(index=name).body.values()
        mapping = found["mappings"]
        for added in ("index_uuid", "state_uuid", "check"):
            del mapping["properties"][added]
        client.indices.delete(index=name)
        client.indices.create(index=name, mappings=mapping)
        client.index(index=name, id="c0", document=earlier, refresh=True)
        writer.prepare()
        assert writer.load_progress() == {}
        writer.save_progress([CellProgress("c0", 1, 3, is_complete=True)])
        assert writer.load_progress() == {"c0": CellProgress("c0", 1, 3, is_complete=True)}


def test_file_that_was_put_in_the_place_of_the_index_is_used_from_then_on(tmp_path: Path) -> None:
    settings = IndexSettings(backend="sqlite", path=tmp_path / "index.db")
    progress = CellProgress("c0", 2, 3, is_complete=True)
    with asyncio.Runner() as runner, closing(open_writer(settings)) as writer:
        searcher = open_searcher(settings)
        writer.prepare()
        writer.save_progress([progress])
        index = Index(writer, searcher, runner)
        assert index.progress() == {"c0": progress}
        for suffix in ("", "-wal", "-shm"):
            Path(f"{settings.path}{suffix}").unlink(missing_ok=True)
        with pytest.raises(IndexReplacedError):
            writer.save_progress([progress])
        writer.prepare()
        assert index.progress() == {}
        index.write(make_document(1))
        assert index.uuids() == [make_uuid(1)]
        runner.run(searcher.close())


@pytest.mark.parametrize("table", ["documents", "progress", "state"])
def test_table_that_was_dropped_is_made_anew(tmp_path: Path, table: str) -> None:
    settings = IndexSettings(backend="sqlite", path=tmp_path / "index.db")
    with closing(open_writer(settings)) as writer:
        writer.prepare()
        writer.save_progress([CellProgress("c0", 2, 3, is_complete=True)])
        with closing(sqlite3.connect(settings.path)) as connection:
            connection.execute(f"DROP TABLE {table}")
        writer.prepare()
        assert writer.load_progress() == {}
        assert writer.write([make_document(1)]).applied == 1
        assert writer.load_state("kind") == {}


def test_damaged_file_is_put_aside(tmp_path: Path) -> None:
    settings = IndexSettings(backend="sqlite", path=tmp_path / "index.db")
    with closing(open_writer(settings)) as writer:
        writer.prepare()
        writer.write([make_document(number) for number in range(500)])
    text = settings.path.read_bytes()
    # The first pages are those that it is prepared with.
    kept = 16 * 4096
    settings.path.write_bytes(text[:kept] + b"\xff" * (len(text) - kept))
    with closing(open_writer(settings)) as writer:
        writer.prepare()
        with pytest.raises(IndexReplacedError, match="damaged"):
            writer.write([make_document(number) for number in range(500)])
        with pytest.raises(IndexReplacedError):
            writer.make_searchable()
        writer.prepare()
        assert writer.write([make_document(1)]).applied == 1
    assert len(list(tmp_path.glob("index.db.damaged-*"))) >= 1


@pytest.mark.dialect
@pytest.mark.elasticsearch
def test_fields_that_a_mapping_lacks_are_added_in_place(
    elasticsearch_url: str, elasticsearch_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older mapping that can still be used, and that a rebuild had put in its place."""
    monkeypatch.setattr("fleetlight.indexer.backends.elasticsearch.mapping.OLDEST_MAPPING_VERSION", MAPPING_VERSION - 1)
    name = f"{elasticsearch_prefix}-instances"
    mapping = instance_mapping()
    for added in ("extra", "extra_terms", "extra_fields"):
        del mapping["properties"][added]
    mapping["_meta"] |= {"mapping_version": MAPPING_VERSION - 1, "continues": "the index before"}
    settings = index_at(elasticsearch_url, elasticsearch_prefix)
    known = make_document(1)
    newer = replace(make_document(2), extra=Extra("ns/Payload-1.9", {"rack": "r7"}, {"rack": "text"}))
    with index_client(elasticsearch_url, request_timeout=30) as client, closing(open_writer(settings)) as writer:
        client.indices.create(index=f"{name}-older", mappings=mapping, aliases={name: {}, f"{name}-write": {}})
        client.indices.create(index=f"{elasticsearch_prefix}-state", mappings=state_mapping())
        assert writer.write([known, newer]).rejected, "the mapping is strict"
        writer.prepare()
        assert writer.write([newer]).applied == 1
        writer.make_searchable()
        found = writer.read([known.id, newer.id])
        assert {uuid: document.view for uuid, document in found.items()} == {known.id: known.view, newer.id: newer.view}
        assert writer.find_extra(["rack=r7"], 10) == [newer.id]
        [meta] = [found["mappings"]["_meta"] for found in client.indices.get_mapping(index=name).body.values()]
        assert (meta["mapping_version"], meta["continues"]) == (MAPPING_VERSION, "the index before")


@pytest.mark.elasticsearch
@pytest.mark.parametrize("is_newer", [pytest.param(False, marks=pytest.mark.dialect), True])
def test_writer_follows_a_rebuild_unless_it_is_of_another_version(
    elasticsearch_url: str, elasticsearch_prefix: str, is_newer: bool
) -> None:
    """Whatever was under way: no document gets into an index that its writer has not looked at."""
    settings = index_at(elasticsearch_url, elasticsearch_prefix)
    with closing(open_writer(settings)) as writer, closing(open_generations(settings)) as generations:
        writer.prepare()
        generations.create_next()
        if is_newer:
            make_newer(settings, f"{elasticsearch_prefix}-instances-next")
        generations.switch(lambda: None)
        with pytest.raises(IndexUnavailableError, match=f"version {MAPPING_VERSION + 1}" if is_newer else "blocked"):
            writer.write([make_document(1)])
        if is_newer:
            with pytest.raises(IndexUnavailableError, match=f"version {MAPPING_VERSION + 1}"):
                writer.write([make_document(1)])
            for use in (
                writer.make_searchable,
                lambda: writer.save_progress([CellProgress("c0", 2, 3, True)]),
                writer.prepare,
            ):
                with pytest.raises(IndexVersionError):
                    use()
            assert writer.read([make_uuid(1)]) == {}
        else:
            assert writer.write([make_document(1)]).applied == 1
            assert writer.read([make_uuid(1)]).keys() == {make_uuid(1)}
