"""Texts for the index beside the rows: those that are missing are made, and one that cannot be made stops nothing."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, delete, event, func, select, update

from cells.capabilities import CellKind
from cells.database.engines import create_database_engine, writing
from cells.errors import CellUnreachableError
from cells.kinds.native import instance_rows
from cells.kinds.native.adapter import NativeAdapter
from cells.kinds.native.instance_rows import KEPT_TEXT, Filled, add_rows, count_rows, fill_texts
from cells.kinds.native.locked_instance import LockedInstance
from cells.migrations import upgrade_cell
from cells.model import Cell, InstanceRow
from cells.tables import instances, kept_texts
from notifications.event_types import INSTANCE_UPDATE
from operations.actions.immediate import InstanceOperations
from query.filters import EVERYTHING
from query.page import PageRequest
from query.sort import SortOrder
from resources.instance import INSTANCE_FIELDS
from tests.support.documents import make_record, make_uuid
from views.compute.kept import FORM


def count_texts(engine: Engine) -> int:
    """How many rows have the text that they should have."""
    with engine.connect() as connection:
        return int(connection.scalar(select(func.count()).select_from(instances).where(KEPT_TEXT.is_not(None))) or 0)


def test_texts_that_rows_lack_are_made_and_no_others(
    operations: InstanceOperations, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance_rows, "_FILLED_AT_ONCE", 2)
    uuids = [operations.create({"display_name": f"web-{number}"}).uuid for number in range(8)]
    operations.delete(uuids[6])
    with writing(engine) as connection:
        connection.execute(delete(kept_texts).where(kept_texts.c.instance_uuid.in_(uuids[:3])))
        older = kept_texts.c.instance_uuid.in_(uuids[3:5])
        connection.execute(update(kept_texts).where(older).values(form=FORM - 1, text="of another form"))
        changed = instances.c.uuid == uuids[5]
        connection.execute(update(instances).where(changed).values(revision=2, host="elsewhere"))
    assert count_texts(engine) == 2
    shown: list[int] = []
    assert fill_texts(engine, shown.append) == Filled(6, {})
    assert shown == [2, 4, 6, count_rows(engine)] == [2, 4, 6, 8]
    assert count_texts(engine) == 8
    assert fill_texts(engine) == Filled(0, {})


def test_row_that_cannot_be_rendered_stays_without_a_text_and_is_named(
    operations: InstanceOperations, engine: Engine
) -> None:
    broken, other = (operations.create({}).uuid for _ in range(2))
    with writing(engine) as connection:
        # Whoever did this by hand left out what every flavor has.
        connection.execute(update(instances).where(instances.c.uuid == broken).values(flavor={"name": "x"}))
        connection.execute(delete(kept_texts))
    assert fill_texts(engine) == Filled(1, {broken: "KeyError: 'vcpus'"})
    assert fill_texts(engine) == Filled(0, {broken: "KeyError: 'vcpus'"})
    with engine.connect() as connection:
        assert connection.scalars(select(kept_texts.c.instance_uuid)).all() == [other]


def test_row_that_cannot_be_read_stops_nobody(operations: InstanceOperations, engine: Engine) -> None:
    """PostgreSQL has no such row: there JSON is a type."""
    if engine.dialect.name == "postgresql":
        return
    broken, other = (operations.create({}).uuid for _ in range(2))
    with writing(engine) as connection:
        connection.exec_driver_sql("UPDATE instances SET metadata = '{' WHERE uuid = ?", (broken,))
        connection.execute(delete(kept_texts))
    filled = fill_texts(engine)
    assert (filled.made, list(filled.unrenderable)) == (1, [broken])
    assert filled.unrenderable[broken].startswith("DecodeError: JSON is malformed")
    with engine.connect() as connection:
        assert connection.scalars(select(kept_texts.c.instance_uuid)).all() == [other]


@pytest.mark.postgresql
def test_each_row_looks_up_its_own_text_however_many_there_are(postgresql_database: str) -> None:
    """A join would read, sort or hash the texts of the whole cell for each page."""
    engine = create_database_engine(postgresql_database)
    upgrade_cell(engine)
    with writing(engine) as connection:
        for start in range(0, 4000, 1000):
            add_rows(connection, [InstanceRow("c0", 1, make_record(start + number)) for number in range(1000)])
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.exec_driver_sql("ANALYZE")
    adapter = NativeAdapter(Cell("c0", "one", CellKind.NATIVE, postgresql_database, "memory://"))
    with closing(adapter), explained_on(adapter._engine) as scan_plans:
        rows = adapter.scan(PageRequest(EVERYTHING, SortOrder.of(INSTANCE_FIELDS, ()), 50, (make_uuid(2000),)))
        assert [row.uuid for row in rows] == [make_uuid(2001 + number) for number in range(50)]
    with writing(engine) as connection:
        connection.execute(delete(kept_texts).where(kept_texts.c.instance_uuid == make_uuid(2000)))
    with explained_on(engine) as fill_plans:
        assert fill_texts(engine).made == 1
    for plan in (*scan_plans, *fill_plans):
        assert "Index Scan using pk_kept_texts" in plan
        # A sort would be one of all rows for each page of them.
        assert [step for step in ("Seq Scan", "Sort", "Join") if step in plan] == []
    engine.dispose()


@contextmanager
def explained_on(engine: Engine) -> Iterator[list[str]]:
    """The plans of the queries for instances that are made inside."""
    plans: list[str] = []

    def explain(connection: Connection, _cursor: Any, statement: str, parameters: Any, *_: object) -> None:
        if statement.startswith("SELECT") and "kept_texts" in statement:
            driver: Any = connection.connection.driver_connection
            plans.append("\n".join(line for (line,) in driver.execute(f"EXPLAIN {statement}", parameters)))

    event.listen(engine, "before_cursor_execute", explain)
    try:
        yield plans
    finally:
        event.remove(engine, "before_cursor_execute", explain)
    assert plans


def test_who_looks_for_rows_without_a_text_does_so_beside_a_writer(
    operations: InstanceOperations, engine: Engine
) -> None:
    """In a large cell that takes seconds; with the lock of SQLite nobody could write as long."""
    uuid = operations.create({}).uuid
    with writing(engine) as connection:
        connection.execute(select(instances).where(instances.c.uuid == uuid).with_for_update())
        assert fill_texts(engine).made == 0


def test_row_that_somebody_has_locked_keeps_no_others_from_their_texts(
    operations: InstanceOperations, engine: Engine, cell: Cell
) -> None:
    """Nor them from being changed: who waits for one row has locked those before it. SQLite locks no rows."""
    if engine.dialect.name == "sqlite":
        return
    *others, held = (operations.create({}).uuid for _ in range(3))
    with writing(engine) as connection:
        connection.execute(delete(kept_texts))
    with ThreadPoolExecutor(1) as threads, writing(engine) as connection:
        LockedInstance.lock(connection, cell, held).change(INSTANCE_UPDATE, {"display_name": "later"}, 1)
        assert threads.submit(fill_texts, engine).result(timeout=30) == Filled(2, {})
    with engine.connect() as connection:
        found = connection.execute(select(kept_texts.c.instance_uuid, kept_texts.c.revision)).all()
    assert sorted(found) == sorted([*((uuid, 1) for uuid in others), (held, 2)])


def test_row_with_a_text_of_each_revision_has_one_text(operations: InstanceOperations, engine: Engine) -> None:
    created = operations.create({})
    for name in ("a", "b"):
        operations.update(created.uuid, {"display_name": name})
    with engine.connect() as connection:
        found = connection.execute(select(kept_texts.c.instance_uuid, kept_texts.c.revision, kept_texts.c.form)).all()
    assert found == [(created.uuid, 3, FORM)]


def test_cell_that_was_not_upgraded_says_what_upgrades_it(
    operations: InstanceOperations, engine: Engine, cell: Cell
) -> None:
    """Lists are made of the rows alone."""
    operations.create({})
    with writing(engine) as connection:
        connection.exec_driver_sql("ALTER TABLE kept_texts RENAME TO of_a_later_version")
    everything = PageRequest(EVERYTHING, SortOrder.of(INSTANCE_FIELDS, ()), 10)
    what_to_do = "kept_texts.*; `fleetlight database upgrade` brings its tables to this version"
    with closing(NativeAdapter(cell)) as adapter:
        assert len(adapter.read_page(everything)) == 1
        with pytest.raises(CellUnreachableError, match=what_to_do):
            adapter.scan(everything)
    with pytest.raises(CellUnreachableError, match=what_to_do):
        operations.create({})
    with writing(engine) as connection:
        connection.exec_driver_sql("ALTER TABLE of_a_later_version RENAME TO kept_texts")
