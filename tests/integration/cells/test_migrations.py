"""The migrations lead to the tables that the code works with, on both databases."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Engine, MetaData, select, text

from fleetlight.cells import migrations
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.errors import MixedTablesError
from fleetlight.cells.fleet.tables import fleet_metadata
from fleetlight.cells.migrations import upgrade_cell, upgrade_fleet
from fleetlight.cells.tables import cell_metadata, cell_state, instances, job_locks, job_operations, jobs
from fleetlight.operations.actions.vocabulary import VOCABULARY
from fleetlight.operations.jobs.model import NewJob, NewOperation
from fleetlight.operations.jobs.queue import add_jobs
from fleetlight.resources.clock import system_clock
from fleetlight.resources.instance import INSTANCE_FIELDS

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


@pytest.mark.postgresql
@pytest.mark.parametrize("revision", ["cell_0006", "cell_0007", "cell_0010"])
def test_tables_of_a_newer_version_beside_those_of_a_backup_are_called_so(
    new_postgresql_database: Callable[[], str], revision: str
) -> None:
    engine = create_database_engine(new_postgresql_database())
    upgrade_cell(engine)
    # What pg_restore --clean leaves: the number of the backup, and the tables that the backup does not know.
    with engine.begin() as connection:
        connection.execute(text("UPDATE fleetlight_cell_version SET version_num = :it"), {"it": revision})
    with pytest.raises(MixedTablesError, match="restore it into an empty database"):
        upgrade_cell(engine)
    engine.dispose()


def test_jobs_of_the_version_before_go_on_where_they_are(engine: Engine) -> None:
    migrate_cell_to(engine, "cell_0006")
    common = "'{}', 'req-1', 'ada', 'demo', 9, NULL, 1800000000000000)"
    with engine.begin() as connection:
        for job_id, uuid, action, position, parameters in (
            (5, "one", "resize", 3, '{"origin": {}, "destination": {"host": "h2"}, "work": "compute_prep_resize"}'),
            (7, "one", "delete", 0, "{}"),
            (8, "two", "os-stop", 0, '{"origin": {}}'),
        ):
            values = f"({job_id}, '{uuid}', '{action}', {position}, {common}".replace("'{}'", f"'{parameters}'")
            connection.exec_driver_sql(
                "INSERT INTO jobs (id, instance_uuid, action, position, parameters, request_id, user_id, project_id,"  # noqa: S608
                f" instance_action_id, migration_id, created_at) VALUES {values}"
            )
    upgrade_cell(engine)
    with engine.begin() as connection:
        found = connection.execute(
            select(jobs, job_operations, job_locks.c.name, job_locks.c.held_at)
            .join(job_operations, job_operations.c.job_id == jobs.c.id)
            .join(job_locks, job_locks.c.job_id == jobs.c.id)
            .order_by(jobs.c.id)
        ).all()
        [next_id] = add_jobs(connection, VOCABULARY, [NewJob([NewOperation("os-start", {}, "two")])], 0)
    assert [(row.id, row.status, row.stage, row.operation, row.next_step) for row in found] == [
        (5, "running", "steps", "resize", 3),
        (7, "queued", "locks", "delete", 0),
        (8, "queued", "locks", "os-stop", 0),
    ]
    assert [(row.name, row.held_at is not None, row.is_ready) for row in found] == [
        ("one", True, True),
        ("one", False, True),
        ("two", False, True),
    ]
    assert (found[0].notes["destination"], found[0].notes["work"]) == ({"host": "h2"}, "compute_prep_resize")
    assert {(row.request_id, row.user_id, row.project_id, row.instance_action_id) for row in found} == {
        ("req-1", "ada", "demo", 9)
    }
    assert next_id == 9


@pytest.mark.parametrize("numbered", [0, 7])
def test_past_of_a_cell_begins_when_its_changes_keep_what_they_replaced(engine: Engine, numbered: int) -> None:
    migrate_cell_to(engine, "cell_0013")
    with engine.begin() as connection:
        connection.exec_driver_sql(f"UPDATE cell_state SET last_sequence = {numbered}")  # noqa: S608
    before = system_clock()
    upgrade_cell(engine)
    with engine.connect() as connection:
        forgotten_until = connection.execute(select(cell_state.c.forgotten_until)).scalar_one()
    assert forgotten_until >= before if numbered else forgotten_until == 0


def migrate_cell_to(engine: Engine, revision: str) -> None:
    """Make the tables of a cell as an earlier version had them."""
    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__file__).parent / "cell"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


def test_columns_of_an_instance_are_its_fields() -> None:
    assert [column.name for column in instances.columns] == [*INSTANCE_FIELDS, "revision"]
