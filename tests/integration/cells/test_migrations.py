"""The migrations lead to the tables that the code works with, on both databases."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Engine, MetaData, select

from cells.database.engines import create_database_engine
from cells.migrations import upgrade_cell, upgrade_fleet
from cells.tables import cell_metadata, cell_state, fleet_metadata, instances
from resources.instance import INSTANCE_FIELDS

pytestmark = pytest.mark.usefixtures("migrated_each_time")


@pytest.fixture
def engine(new_database: Callable[[], str]) -> Iterator[Engine]:
    engine = create_database_engine(new_database())
    yield engine
    engine.dispose()


@pytest.mark.parametrize(
    ("upgrade", "metadata", "version_table"),
    [
        (upgrade_fleet, fleet_metadata, "fleetlight_fleet_version"),
        (upgrade_cell, cell_metadata, "fleetlight_cell_version"),
    ],
    ids=["fleet", "cell"],
)
def test_migrated_database_has_exactly_the_tables_of_the_code(
    engine: Engine, upgrade: Callable[[Engine], None], metadata: MetaData, version_table: str
) -> None:
    upgrade(engine)
    with engine.connect() as connection:
        options: dict[str, Any] = {"version_table": version_table, "compare_type": True}
        assert compare_metadata(MigrationContext.configure(connection, opts=options), metadata) == []


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


def test_columns_of_an_instance_are_its_fields() -> None:
    assert [column.name for column in instances.columns] == [*INSTANCE_FIELDS, "revision"]
