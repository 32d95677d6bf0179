"""Reading a native cell gives what the plain-Python oracle gives, in SQL, on both databases."""

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from random import Random
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event, insert, select, text, update

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.counting import count_by_pages
from fleetlight.cells.database.engines import create_database_engine, writing
from fleetlight.cells.digests import digests_of
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.kinds.native.adapter import NativeAdapter
from fleetlight.cells.kinds.opening import open_adapter, open_changelog_adapter
from fleetlight.cells.migrations import upgrade_cell
from fleetlight.cells.model import Cell, InstanceRow
from fleetlight.cells.tables import changes, instances
from fleetlight.indexer.backends.base import Document
from fleetlight.indexer.backends.elasticsearch.documents import to_bulks
from fleetlight.indexer.backends.sqlite.schema import row_of
from fleetlight.indexer.transform.documents import to_document
from fleetlight.indexer.transform.native_messages import read_record
from fleetlight.indexer.writing.rereading import RenderedRows
from fleetlight.manager.operations.actions.new_instance import new_record
from fleetlight.manager.operations.simulation.simulated_instances import new_instance
from fleetlight.query.counts import CountRequest, Counts
from fleetlight.query.filters import EVERYTHING, And, Eq, Filter, Ge, Has, In, IsNull, Lacks, Matches, Ne, Or
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import Direction, SortKey, SortOrder
from fleetlight.resources.fields import Record, from_microseconds
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.support.fleets.instance_operations import InstanceOperations
from tests.support.oracles.filter_oracle import expected_page, is_kept

NOW = 1_800_000_000_000_000
NAMES = ["web", "Web", "wéb", "zebra", "Ωmega", "", "😀", None]
NEWEST_FIRST = [SortKey("created_at", Direction.DESC)]


@pytest.fixture
def records(operations: InstanceOperations, cell: Cell) -> list[Record]:
    """Instances with equal keys, nulls, unicode and deleted ones, as the cell has them."""
    random = Random(7)
    created = operations.create_many(
        [
            {
                "display_name": random.choice(NAMES),
                "project_id": random.choice(["demo", "other", None]),
                "host": random.choice(["h1", "h2", None]),
                "power_state": random.choice([0, 1, 4, None]),
                "locked": random.choice([True, False]),
                "created_at": random.choice([NOW, NOW + 1, NOW + 2, None]),
                "tags": random.sample(["blue", "red", "ünï"], random.randrange(3)),
            }
            for _ in range(60)
        ]
    )
    for changed in created[::5]:
        operations.delete(changed.uuid)
    adapter = NativeAdapter(cell)
    rows = [adapter.find(changed.uuid) for changed in created]
    adapter.close()
    return [row.record for row in rows if row is not None]


@pytest.fixture
def adapter(cell: Cell, engine: Engine) -> Iterator[NativeAdapter]:
    adapter = NativeAdapter(cell)
    yield adapter
    adapter.close()


FILTERS: list[Filter] = [
    EVERYTHING,
    Eq("deleted", False),
    And((Eq("deleted", False), Eq("project_id", "demo"))),
    Ne("project_id", "demo"),
    Or((IsNull("host"), Eq("display_name", "wéb"))),
    In("power_state", (1, 4)),
    Ge("created_at", from_microseconds(NOW + 1)),
    Has("tags", "ünï"),
    And((Lacks("tags", "red"), Eq("locked", True))),
    Matches("display_name", "^[wW].b$"),
    Matches("display_name", r"\pL{4}"),
    And((Matches("display_name", r"(?i)^\x{57}EB"), Eq("deleted", False))),
]
ORDERS = [
    NEWEST_FIRST,
    [SortKey("display_name"), SortKey("power_state", Direction.DESC)],
    [SortKey("display_name", Direction.DESC), SortKey("created_at")],
    [SortKey("deleted", Direction.DESC), SortKey("updated_at", Direction.DESC)],
    [SortKey("uuid", Direction.DESC)],
]


@pytest.mark.parametrize("limit", [7, 100])
def test_pages_are_those_of_the_oracle(adapter: NativeAdapter, records: list[Record], limit: int) -> None:
    for wanted in FILTERS:
        for keys in ORDERS:
            order = SortOrder.of(INSTANCE_FIELDS, keys)
            request = PageRequest(wanted, order, limit)
            expected = expected_page(records, PageRequest(wanted, order, len(records)), INSTANCE_FIELDS)
            found: list[Record] = []
            while True:
                page = adapter.read_page(request)
                found.extend(row.record for row in page)
                if len(page) < limit:
                    break
                request = PageRequest(wanted, order, limit, after=order.values(found[-1]))
            assert found == expected, (wanted, keys)


@pytest.mark.parametrize("names", [(), ("host", "tags"), ("flavor",), ("deleted", "metadata", "fault")])
def test_page_reads_the_fields_that_are_asked_for_and_the_place_of_its_rows(
    adapter: NativeAdapter, records: list[Record], names: tuple[str, ...]
) -> None:
    by_uuid = {record["uuid"]: record for record in records}
    order = SortOrder.of(INSTANCE_FIELDS, [SortKey("display_name")])
    # The second pattern is tried in Python, on PostgreSQL.
    for wanted, tried in ((Eq("deleted", False), set()), (Matches("hostname", r"\pL?"), {"hostname"})):
        request = PageRequest(wanted, order, 1000, fields=names)
        for rows in (adapter.read_page(request), adapter.scan(request)):
            assert rows
            for row in rows:
                assert {"uuid", "display_name", *names} <= row.record.keys()
                assert row.record.keys() <= {"uuid", "display_name", *names, *tried}
                assert row.record == {name: by_uuid[row.uuid][name] for name in row.record}
        selected = adapter.describe(request)["sql"].partition(" FROM ")[0]
        assert ("user_data" in selected, "flavor" in selected) == (False, "flavor" in names)


@pytest.mark.parametrize("by", [(), ("deleted",), ("tags",), ("tags", "power_state", "locked"), ("updated_at",)])
def test_counts_are_those_of_the_records_by_the_database_and_page_by_page(
    adapter: NativeAdapter, records: list[Record], by: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetlight.cells.counting._PAGE_ROWS", 7)
    for wanted in FILTERS:
        expected = Counter[tuple[Any, ...]]()
        for record in (record for record in records if is_kept(wanted, record, INSTANCE_FIELDS)):
            expected.update(product(*((record[name] or [None]) if name == "tags" else [record[name]] for name in by)))
        request = CountRequest(wanted, INSTANCE_FIELDS, by)
        assert adapter.count(request) == Counts(expected), wanted
        assert count_by_pages(adapter, request) == Counts(expected), wanted
    some = adapter.count(CountRequest(EVERYTHING, INSTANCE_FIELDS, ("uuid",), 5))
    assert (len(some.groups), some.is_partial) == (5, True)
    assert count_by_pages(adapter, CountRequest(EVERYTHING, INSTANCE_FIELDS), 14) == Counts({(): 14}, is_partial=True)


def test_page_is_one_statement(adapter: NativeAdapter, records: list[Record]) -> None:
    statements: list[str] = []

    def note(_connection: Connection, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("SELECT"):
            statements.append(statement)

    event.listen(adapter._engine, "before_cursor_execute", note)
    order = SortOrder.of(INSTANCE_FIELDS, NEWEST_FIRST)
    rows = adapter.read_page(PageRequest(Eq("deleted", False), order, 10))
    assert len(rows) == 10
    assert len(statements) == 1


@pytest.mark.parametrize(
    ("wanted", "keys", "indexes"),
    [
        (Eq("deleted", False), NEWEST_FIRST, {"ix_instances_by_age"}),
        (And((Eq("deleted", False), Eq("project_id", "demo"))), NEWEST_FIRST, {"ix_instances_project_by_age"}),
        (Eq("deleted", False), [], {"sqlite_autoindex_instances_1", "pk_instances"}),
    ],
)
def test_default_list_and_whole_reading_read_an_index_in_order_and_sort_nothing(
    adapter: NativeAdapter, records: list[Record], wanted: Filter, keys: list[SortKey], indexes: set[str]
) -> None:
    statements: list[tuple[str, Any]] = []

    def note(_connection: Connection, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        statements.append((statement, parameters))

    event.listen(adapter._engine, "before_cursor_execute", note)
    order = SortOrder.of(INSTANCE_FIELDS, keys)
    first = adapter.read_page(PageRequest(wanted, order, 5))
    adapter.read_page(PageRequest(wanted, order, 5, after=order.values(first[-1].record)))
    selects = [(statement, parameters) for statement, parameters in statements if statement.startswith("SELECT inst")]
    assert len(selects) == 2
    with adapter._engine.connect() as connection:
        is_sqlite = connection.dialect.name == "sqlite"
        if not is_sqlite:
            # On a few rows it would prefer to read all of them, whatever the index.
            connection.execute(text("SET LOCAL enable_seqscan = off"))
            connection.execute(text("SET LOCAL enable_bitmapscan = off"))
        for statement, parameters in selects:
            explain = "EXPLAIN QUERY PLAN " if is_sqlite else "EXPLAIN "
            plan = str(connection.exec_driver_sql(explain + statement, parameters).all())
            assert any(f" {index}" in plan for index in indexes)
            assert "TEMP B-TREE" not in plan
            assert "Sort" not in plan
        # Where the page begins is looked up: nothing before it is read.
        begins = ("created_at<?", "(created_at <= '") if keys else ("uuid>?", "(uuid >")
        assert begins[0] in plan if is_sqlite else begins[1] in plan.partition("Filter:")[0]


def test_rows_that_have_no_value_to_sort_by_follow_a_page_that_ends_among_those_that_have_one(
    adapter: NativeAdapter, records: list[Record]
) -> None:
    order = SortOrder.of(INSTANCE_FIELDS, NEWEST_FIRST)
    expected = expected_page(records, PageRequest(EVERYTHING, order, len(records)), INSTANCE_FIELDS)
    first_without = next(place for place, record in enumerate(expected) if record["created_at"] is None)
    for place in range(first_without - 4, first_without + 1):
        position = order.values(expected[place - 1])
        page = [row.record for row in adapter.read_page(PageRequest(EVERYTHING, order, 3, after=position))]
        assert page == expected[place : place + 3]
        scanned = adapter.scan(PageRequest(EVERYTHING, order, 3, after=position))
        assert [row.uuid for row in scanned] == [record["uuid"] for record in page]


@pytest.mark.postgresql
def test_page_is_planned_for_its_own_limit_however_often_it_was_asked(postgresql_database: str) -> None:
    engine = create_database_engine(postgresql_database)
    upgrade_cell(engine)
    engine.dispose()
    adapter = NativeAdapter(Cell("u", "one", CellKind.NATIVE, postgresql_database, "memory://"))
    order = SortOrder.of(INSTANCE_FIELDS, NEWEST_FIRST)
    for _ in range(20):
        adapter.read_page(PageRequest(Eq("deleted", False), order, 50))
    # A plan for any limit is made of what outlives a transaction.
    with adapter._engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM pg_prepared_statements")).scalar_one() == 0
    adapter.close()


def test_scan_gives_the_rows_of_a_page_again_and_again(adapter: NativeAdapter, records: list[Record]) -> None:
    order = SortOrder.of(INSTANCE_FIELDS, NEWEST_FIRST)
    for wanted in (EVERYTHING, Eq("project_id", "demo"), Matches("display_name", "^[wW]")):
        request = PageRequest(wanted, order, limit=40)
        scanned, page = adapter.scan(request), adapter.read_page(request)
        expected = documents_of(page)
        assert documents_of(scanned) == documents_of(scanned) == expected
        assert (len(scanned), scanned[-1].uuid) == (len(page), page[-1].uuid)
        assert documents_of(scanned[2:5]) == expected[2:5]


def documents_of(rows: Iterable[InstanceRow]) -> list[tuple[Any, ...]]:
    """What the index keeps of rows, as values."""
    return [row_of(document) for document in RenderedRows(rows)]


def test_scanned_rows_become_the_documents_that_their_notifications_become(
    adapter: NativeAdapter, operations: InstanceOperations, engine: Engine
) -> None:
    created = operations.create_many([new_instance(Random(seed), "one", created_at=NOW) for seed in range(40)])
    for number, changed in enumerate(created):
        operations.update(
            changed.uuid,
            {"metadata": {"é": '"\n\\', "number": str(number)}, "tags": ["blue", "ünï", "red"][: number % 4]},
        )
        if not number % 5:
            operations.delete(changed.uuid)
    statement = select(changes.c.instance_uuid, changes.c.revision, changes.c.message).order_by(changes.c.id)
    with engine.connect() as connection:
        announced = {uuid: (revision, message) for uuid, revision, message in connection.execute(statement)}
    documents = []
    for _, (revision, message) in sorted(announced.items()):
        record = read_record(message)
        assert record is not None
        documents.append(to_document(adapter.cell.uuid, revision, record))
    scanned = RenderedRows(adapter.scan(PageRequest(EVERYTHING, SortOrder.of(INSTANCE_FIELDS, ()), limit=100)))
    assert lines_of(scanned) == lines_of(documents)
    assert [values_of(document) for document in scanned] == [values_of(document) for document in documents]


def lines_of(documents: Iterable[Document]) -> list[Any]:
    """What Elasticsearch is sent. Members of structures may come in any order: a message has that of its payload."""
    return [json.loads(line) for bulk in to_bulks(documents, {}) for line in bulk.body.splitlines()]


def values_of(document: Document) -> list[Any]:
    """What SQLite keeps, structures read."""
    return [json.loads(value) if isinstance(value, str) and value[:1] == "{" else value for value in row_of(document)]


def test_texts_numbers_and_booleans_are_read_as_they_were_written(
    adapter: NativeAdapter, operations: InstanceOperations
) -> None:
    """A row comes as JSON that the database makes."""
    strange = '\x01\x1f\x7f\u2028é😀\\/\t\r\n"],[1,{"a":1}'
    written: Record = {
        "display_name": strange,
        "display_description": "[]",
        "key_name": "",
        "user_id": None,
        "progress": -(2**63),
        "launched_at": 253_402_300_799_999_999,
        "locked": True,
        "auto_disk_config": False,
        "hidden": False,
        "metadata": {"é": strange, "null": "null"},
        "tags": [],
        "fault": None,
    }
    [changed] = operations.create_many([dict(written)])
    row = adapter.find(changed.uuid)
    assert row is not None
    assert {name: row.record[name] for name in written} == written
    assert {name: type(row.record[name]) for name in written} == {name: type(written[name]) for name in written}


def test_row_that_moves_while_rows_are_filtered_in_batches_is_found(
    adapter: NativeAdapter, operations: InstanceOperations, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PostgreSQL cannot express the pattern, so Python filters what it gives, 500 rows at a time."""
    operations.create_many([{"display_name": f"n{number}"} for number in range(500)])
    [moving] = operations.create_many([{"display_name": "web"}])
    read = adapter._read

    def and_then_it_moves(connection: Connection, request: PageRequest, *among: Any) -> list[InstanceRow]:
        rows = read(connection, request, *among)
        operations.update(moving.uuid, {"display_name": "a web"})
        return rows

    monkeypatch.setattr(adapter, "_read", and_then_it_moves)
    by_name = SortOrder.of(INSTANCE_FIELDS, [SortKey("display_name")])
    page = adapter.read_page(PageRequest(Matches("display_name", "(?i)WEB"), by_name, 10))
    assert [row.uuid for row in page] == [moving.uuid]


def test_find_knows_deleted_instances_and_no_others(
    adapter: NativeAdapter, operations: InstanceOperations, records: list[Record]
) -> None:
    deleted = next(record for record in records if record["deleted"])
    row = adapter.find(deleted["uuid"])
    assert row is not None
    assert (row.record, row.revision) == (deleted, 2)
    assert adapter.find("no-such") is None


def test_digests_and_revisions_are_those_of_the_rows(adapter: NativeAdapter, records: list[Record]) -> None:
    revisions = {record["uuid"]: 2 if record["deleted"] else 1 for record in records}
    one, other = sorted(revisions)[0][:1], sorted(revisions)[-1][:2]
    for prefixes, length in (([""], 1), ([""], 3), ([one, other], 2), ([one], 2), ([other], 36)):
        assert adapter.digests(prefixes, length) == digests_of(revisions, prefixes, length)
        within = {uuid: revision for uuid, revision in revisions.items() if uuid.startswith(tuple(prefixes))}
        assert adapter.revisions(prefixes) == within
    assert adapter.digests(["none"], 5) == {}
    assert adapter.revisions(["none"]) == {}


def test_what_is_forgotten_is_in_no_digest(adapter: NativeAdapter, records: list[Record]) -> None:
    gone = {record["uuid"] for record in records if record["deleted"]}
    revisions = {record["uuid"]: 1 for record in records if not record["deleted"]}
    assert gone
    for horizon, expected in ((1, revisions | dict.fromkeys(gone, 2)), (2**52, revisions)):
        assert adapter.digests([""], 1, horizon=horizon) == digests_of(expected, [""], 1)
        assert adapter.revisions([""], horizon=horizon) == expected


def test_rows_with_uuids_in_unusual_forms_are_in_the_digests_too(adapter: NativeAdapter, engine: Engine) -> None:
    """No operation makes such rows, but whatever is in the table has to be seen."""
    revisions = dict.fromkeys(("A" * 32, f"{'ab' * 4}-{'aB' * 12}", f"{'ab' * 4}-ABAB-{'ab' * 10}"), 1)
    with writing(engine) as connection:
        rows = [{**new_record({}, NOW), "uuid": uuid, "revision": 1} for uuid in revisions]
        connection.execute(insert(instances), rows)
    for prefixes, length in (([""], 1), (["A", "a"], 2), (["abababab"], 10), (["A" * 32], 33)):
        assert adapter.digests(prefixes, length) == digests_of(revisions, prefixes, length)


def test_change_has_no_number_before_the_relay_gives_one(
    adapter: NativeAdapter, operations: InstanceOperations, engine: Engine
) -> None:
    one, two = (changed.uuid for changed in operations.create_many([{}, {}]))
    assert adapter.unnumbered([one, "no-such"]) == {one}
    with writing(engine) as connection:
        connection.execute(update(changes).where(changes.c.instance_uuid == one).values(sequence=1))
    assert adapter.unnumbered([one, two]) == {two}
    assert adapter.unnumbered([]) == set()


def test_empty_changelog_begins_behind_its_end(adapter: NativeAdapter, engine: Engine) -> None:
    assert adapter.published_sequence() == 0
    assert adapter.oldest_kept_sequence() == 1
    assert adapter.changes_after(0, 10) == []


def test_cell_without_tables_is_unreachable(new_database: Callable[[], str]) -> None:
    url = new_database()
    create_database_engine(url).dispose()
    adapter = open_adapter(Cell("u", "new", CellKind.NATIVE, url, "memory://"))
    with pytest.raises(CellUnreachableError, match="'new'"):
        adapter.find("any")
    adapter.close()


def test_cell_whose_database_is_away_is_unreachable_and_shows_no_password() -> None:
    cell = Cell("u", "far", CellKind.NATIVE, "postgresql://me:secret@127.0.0.1:1/x", "memory://")
    adapter = open_adapter(cell, statement_timeout_s=1)
    with pytest.raises(CellUnreachableError, match="'far'") as caught:
        adapter.find("any")
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(cell)


@pytest.mark.parametrize(
    ("open_it", "kind", "url", "reason"),
    [
        (open_changelog_adapter, CellKind.NOVA_API, "https://cluster:5080", "numbers the changes of cells of kind"),
        (open_adapter, CellKind.NATIVE, "oracle://me:secret@db/x", "'oracle' is not supported"),
        (open_changelog_adapter, CellKind.NATIVE, "oracle://me:secret@db/x", "'oracle' is not supported"),
    ],
)
def test_cell_that_nothing_can_ask_says_so(
    open_it: Callable[[Cell], object], kind: CellKind, url: str, reason: str
) -> None:
    with pytest.raises(CellUnreachableError, match=reason) as caught:
        open_it(Cell("u", "other", kind, url, "memory://"))
    assert "secret" not in str(caught.value)


@pytest.mark.postgresql
def test_statement_that_takes_too_long_is_ended(postgresql_database: str) -> None:
    upgrade_cell(create_database_engine(postgresql_database))
    cell = Cell("u", "slow", CellKind.NATIVE, postgresql_database, "memory://")
    adapter = NativeAdapter(cell, statement_timeout_s=0.1)
    with pytest.raises(CellUnreachableError, match="statement timeout"), adapter._reading() as connection:
        connection.execute(text("SELECT pg_sleep(20)"))
    adapter.close()


def test_reading_does_not_create_a_missing_sqlite_file(tmp_path: Any) -> None:
    path = tmp_path / "missing #1.db"
    adapter = NativeAdapter(Cell("u", "gone", CellKind.NATIVE, f"sqlite:///{path}", "memory://"))
    with pytest.raises(CellUnreachableError, match="is not there"):
        adapter.find("any")
    adapter.close()
    assert not path.exists()


def test_cell_that_was_not_upgraded_says_what_upgrades_it(
    adapter: NativeAdapter, operations: InstanceOperations, engine: Engine
) -> None:
    """Lists are made of the rows alone."""
    operations.create({})
    with writing(engine) as connection:
        connection.exec_driver_sql("ALTER TABLE changes RENAME TO of_a_later_version")
    what_to_do = "changes.*; `fleetlight database upgrade` brings its tables to this version"
    assert adapter.read_page(PageRequest(EVERYTHING, SortOrder.of(INSTANCE_FIELDS, ()), 10))
    with pytest.raises(CellUnreachableError, match=what_to_do):
        adapter.changes_after(0, 1)
    with pytest.raises(CellUnreachableError, match=what_to_do):
        operations.create({})
