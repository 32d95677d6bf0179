"""The migrations lead to the tables that the code works with, on both databases."""

import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, MetaData, event, inspect, select, text
from sqlalchemy.engine.interfaces import ReflectedIndex

from fleetlight.cells import migrations
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.errors import MixedTablesError, NewerTablesError
from fleetlight.cells.fleet.tables import fleet_metadata
from fleetlight.cells.migrations import upgrade_cell, upgrade_fleet
from fleetlight.cells.tables import cell_metadata, cell_state, instances
from fleetlight.resources.instance import INSTANCE_FIELDS

pytestmark = pytest.mark.usefixtures("migrated_each_time")


@pytest.fixture
def engine(new_database: Callable[[], str]) -> Iterator[Engine]:
    engine = create_database_engine(new_database())
    yield engine
    engine.dispose()


@pytest.mark.parametrize(
    ("upgrade", "metadata"), [(upgrade_fleet, fleet_metadata), (upgrade_cell, cell_metadata)], ids=["fleet", "cell"]
)
def test_migrated_database_has_exactly_the_tables_of_the_code(
    new_database: Callable[[], str], engine: Engine, upgrade: Callable[[Engine], None], metadata: MetaData
) -> None:
    upgrade(engine)
    of_code = create_database_engine(new_database())
    metadata.create_all(of_code)
    assert {name for name in inspect(engine).get_table_names() if not name.endswith("_version")} == set(metadata.tables)
    for name in metadata.tables:
        assert structure(engine, name) == structure(of_code, name)
    of_code.dispose()


def structure(engine: Engine, table: str) -> Mapping[str, Any]:
    """All that a database says of a table, but for the order of its columns."""
    found = inspect(engine)
    primary_key = found.get_pk_constraint(table)
    return {
        "columns": {each["name"]: each | {"type": repr(each["type"])} for each in found.get_columns(table)},
        "primary_key": (primary_key["name"], primary_key["constrained_columns"]),
        "foreign_keys": sorted(found.get_foreign_keys(table), key=str),
        "unique": sorted(found.get_unique_constraints(table), key=str),
        "checks": sorted(found.get_check_constraints(table), key=str),
        "indexes": sorted((_with_options_as_text(each) for each in found.get_indexes(table)), key=str),
    }


def test_upgrade_may_be_repeated_and_done_by_several_at_once(engine: Engine) -> None:
    threads = [threading.Thread(target=upgrade_cell, args=(engine,)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    upgrade_cell(engine)
    with engine.connect() as connection:
        assert connection.execute(select(cell_state.c.last_sequence)).scalars().all() == [0]


def test_fleet_and_cell_can_share_a_database(engine: Engine) -> None:
    upgrade_fleet(engine)
    upgrade_cell(engine)
    upgrade_fleet(engine)


def _with_options_as_text(index: ReflectedIndex) -> Mapping[str, Any]:
    """The conditions of partial indexes are expressions, of which no two are the same."""
    return {**index, "dialect_options": {name: str(value) for name, value in index.get("dialect_options", {}).items()}}


@pytest.mark.parametrize(("upgrade", "schema"), [(upgrade_fleet, "fleet"), (upgrade_cell, "cell")])
def test_interrupted_migration_leaves_nothing_and_is_done_the_next_time(
    engine: Engine, upgrade: Callable[[Engine], None], schema: str
) -> None:
    newest = max(Path(migrations.__file__).parent.glob(f"{schema}/versions/{schema}_*.py")).stem
    left = None

    def interrupt(connection: Connection, _cursor: object, statement: str, *_: object) -> None:
        nonlocal left
        if newest in statement:
            # The last thing that a migration does is to write down its revision.
            left = inspect(connection).get_table_names()
            raise KeyboardInterrupt

    event.listen(engine, "before_cursor_execute", interrupt)
    with pytest.raises(KeyboardInterrupt):
        upgrade(engine)
    event.remove(engine, "before_cursor_execute", interrupt)
    assert left
    assert inspect(engine).get_table_names() == []
    upgrade(engine)
    assert set(inspect(engine).get_table_names()) == set(left)


@pytest.mark.parametrize(("upgrade", "schema"), [(upgrade_fleet, "fleet"), (upgrade_cell, "cell")])
def test_tables_of_a_newer_version_are_refused_by_their_revision(
    engine: Engine, upgrade: Callable[[Engine], None], schema: str
) -> None:
    upgrade(engine)
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE fleetlight_{schema}_version SET version_num = '{schema}_9999'"))  # noqa: S608
    with pytest.raises(NewerTablesError, match=f"{schema}_9999"):
        upgrade(engine)


@pytest.mark.postgresql
def test_tables_of_another_version_beside_those_of_a_backup_are_called_so(
    new_postgresql_database: Callable[[], str],
) -> None:
    engine = create_database_engine(new_postgresql_database())
    upgrade_cell(engine)
    # What pg_restore --clean leaves of a backup without these tables: its word on revisions, and the tables.
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM fleetlight_cell_version"))
    with pytest.raises(MixedTablesError, match="restore it into an empty database"):
        upgrade_cell(engine)
    engine.dispose()


def test_columns_of_an_instance_are_its_fields() -> None:
    assert [column.name for column in instances.columns] == [*INSTANCE_FIELDS, "revision"]
