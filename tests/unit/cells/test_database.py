import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, select, text, update
from sqlalchemy.exc import DBAPIError, IntegrityError

from fleetlight.cells.database.engines import create_database_engine, translated_failures, writing
from fleetlight.cells.errors import DatabaseUrlError, FleetUnreachableError
from fleetlight.cells.kinds.nova_db.databases import open_nova_database
from fleetlight.cells.migrations import upgrade_cell
from fleetlight.cells.tables import cell_state


@pytest.mark.parametrize("url", ["mysql://me:secret@db/x", "sqlite://", "postgresql//me:secret@db"])
def test_unusable_url_is_refused_without_showing_the_password(url: str) -> None:
    with pytest.raises(DatabaseUrlError) as caught:
        create_database_engine(url)
    assert "secret" not in str(caught.value)


def test_unreachable_database_is_named_without_the_password() -> None:
    engine = create_database_engine("postgresql://me:secret@127.0.0.1:1/nowhere")
    with (
        pytest.raises(FleetUnreachableError, match=r"127\.0\.0\.1") as caught,
        translated_failures(FleetUnreachableError),
        engine.connect(),
    ):
        pass
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("opened", [create_database_engine, open_nova_database])
def test_errors_show_no_value_of_a_statement(tmp_path: Path, opened: Callable[[str], Engine]) -> None:
    (tmp_path / "x.db").touch()
    engine = opened(f"sqlite:///{tmp_path}/x.db")
    with pytest.raises(DBAPIError, match="SELECT nothing") as caught, engine.connect() as connection:
        connection.execute(text("SELECT nothing FROM x WHERE password = :password"), {"password": "secret"})
    engine.dispose()
    assert "'secret'" not in str(caught.value)


@pytest.mark.parametrize("opened", [create_database_engine, open_nova_database])
def test_engine_of_a_server_shows_no_value_either(opened: Callable[[str], Engine]) -> None:
    engine = opened("postgresql://me@127.0.0.1:1/nowhere")
    assert engine.hide_parameters
    engine.dispose()


def test_connection_that_comes_back_after_its_engine_was_closed_is_closed(tmp_path: Path) -> None:
    engine = create_database_engine(f"sqlite:///{tmp_path}/x.db")
    late = engine.connect()
    driver: Any = late.connection.dbapi_connection
    engine.dispose()
    assert late.execute(text("SELECT 1")).scalar_one() == 1
    late.close()
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        driver.execute("SELECT 1")
    with engine.connect() as connection:
        assert connection.execute(text("SELECT 1")).scalar_one() == 1, "it can be opened again"
    engine.dispose()


def test_sqlite_keeps_what_was_committed_whatever_happens(tmp_path: Path) -> None:
    engine = create_database_engine(f"sqlite:///{tmp_path}/x.db")
    with engine.connect() as connection:
        settings = {
            name: connection.execute(text(f"PRAGMA {name}")).scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys")
        }
    engine.dispose()
    full = 2
    assert settings == {"journal_mode": "wal", "synchronous": full, "foreign_keys": 1}


def test_concurrent_writers_on_sqlite_wait_for_each_other(tmp_path: Path) -> None:
    engine = create_database_engine(f"sqlite:///{tmp_path}/x.db")
    upgrade_cell(engine)

    def count_up() -> None:
        for _ in range(20):
            with writing(engine) as connection:
                last = connection.execute(select(cell_state.c.last_sequence)).scalar_one()
                connection.execute(update(cell_state).values(last_sequence=last + 1))

    threads = [threading.Thread(target=count_up) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with engine.connect() as connection:
        assert connection.execute(select(cell_state.c.last_sequence)).scalar_one() == 5 * 20
    engine.dispose()


def test_failed_transaction_leaves_nothing(tmp_path: Path) -> None:
    engine = create_database_engine(f"sqlite:///{tmp_path}/x.db")
    upgrade_cell(engine)

    def write_twice() -> None:
        with translated_failures(FleetUnreachableError), writing(engine) as connection:
            connection.execute(update(cell_state).values(last_sequence=5))
            connection.execute(cell_state.insert().values(id=1, last_sequence=6))

    with pytest.raises(IntegrityError):
        write_twice()
    with engine.connect() as connection:
        assert connection.execute(select(cell_state.c.last_sequence)).scalar_one() == 0
    engine.dispose()
