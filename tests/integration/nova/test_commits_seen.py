"""PostgreSQL says whether anything was committed between two looks; what it says is tried against its rows."""

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from threading import Event, Thread

import psycopg
import pytest
from sqlalchemy import Engine, make_url

from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.kinds.nova_db import commits_seen as module
from fleetlight.cells.kinds.nova_db.commits_seen import commits_seen
from fleetlight.cells.kinds.nova_db.databases import open_nova_database, read
from fleetlight.cells.kinds.nova_db.one_server import keep_to
from fleetlight.cells.model import ChangeHints, Hints
from fleetlight.resources.clock import system_clock

pytestmark = pytest.mark.postgresql


@pytest.fixture
def database(new_postgresql_database: Callable[[], str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setattr(module, "_INTERVAL_S", 0.0)
    url = new_postgresql_database()
    with connected(url) as connection:
        connection.execute("CREATE TABLE rows (id int PRIMARY KEY, value int)")
        connection.execute("INSERT INTO rows SELECT n, 0 FROM generate_series(1, 50) n")
        connection.commit()
    engine = open_nova_database(url)
    yield engine
    engine.dispose()


def connected(url: str) -> psycopg.Connection:
    return psycopg.connect(make_url(url).set(drivername="postgresql").render_as_string(hide_password=False))


def writer(engine: Engine) -> psycopg.Connection:
    return connected(engine.url.render_as_string(hide_password=False))


def hints_of(*engines: Engine) -> ChangeHints:
    hints = commits_seen("cell1", engines, system_clock)
    assert hints is not None
    return hints


def taken(hints: ChangeHints) -> Hints:
    found = hints.take()
    assert found is not None
    return found


def nothing_was_committed(hints: ChangeHints) -> bool:
    return taken(hints).uuids is not None


def test_commits_of_transactions_that_began_long_before_are_seen(database: Engine) -> None:
    hints = hints_of(database)
    with closing(writer(database)) as early, closing(writer(database)) as late:
        early.execute("UPDATE rows SET value = 1 WHERE id = 1")
        late.execute("UPDATE rows SET value = 1 WHERE id = 2")
        late.execute("SAVEPOINT one")
        late.execute("UPDATE rows SET value = 2 WHERE id = 3")
        late.commit()
        assert not nothing_was_committed(hints)
        settle(hints)
        early.commit()
        assert not nothing_was_committed(hints)


def settle(hints: ChangeHints) -> None:
    """Other databases of the server have commits, too; the snapshot tells of all."""
    for _ in range(1000):
        if nothing_was_committed(hints):
            return
    pytest.fail("the server is never at rest")


def test_rows_are_the_same_wherever_nothing_was_said_to_be_committed(database: Engine) -> None:
    stop = Event()

    def write(seed: int) -> None:
        chance = random.Random(seed)
        with closing(writer(database)) as connection:
            while not stop.wait(chance.random() * 0.01):
                connection.execute("UPDATE rows SET value = value + 1 WHERE id = %s", [chance.randint(1, 50)])
                stop.wait(chance.random() * 0.03)
                (connection.commit if chance.random() < 0.7 else connection.rollback)()

    writers = [Thread(target=write, args=(seed,)) for seed in range(3)]
    hints = hints_of(database)
    for each in writers:
        each.start()
    equal = 0
    try:
        for _ in range(1500):
            taken(hints)
            before = rows(database)
            was_still = nothing_was_committed(hints)
            after = rows(database)
            if was_still and nothing_was_committed(hints):
                assert before == after
                equal += 1
    finally:
        stop.set()
        for each in writers:
            each.join()
    assert equal >= 20


def rows(engine: Engine) -> list[tuple[int, int]]:
    return read(engine, lambda each: [tuple(row) for row in each.exec_driver_sql("SELECT * FROM rows ORDER BY id")])


def test_database_that_ended_connections_is_asked_anew_and_nothing_is_believed_before(database: Engine) -> None:
    hints = hints_of(database)
    settle(hints)
    name = database.url.database
    with closing(connected(database.url.set(database="postgres").render_as_string(hide_password=False))) as connection:
        connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name])
        connection.commit()
        with pytest.raises(CellUnreachableError):
            hints.take()
        connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
        connection.commit()
    assert taken(hints).uuids is None
    settle(hints)


def test_either_of_two_databases_tells(database: Engine, new_postgresql_database: Callable[[], str]) -> None:
    other = open_nova_database(new_postgresql_database())
    hints = hints_of(database, other)
    settle(hints)
    with closing(writer(database)) as connection:
        connection.execute("UPDATE rows SET value = 1 WHERE id = 1")
        connection.commit()
    assert not nothing_was_committed(hints)
    other.dispose()


def test_nothing_is_believed_after_the_server_of_an_engine_was_changed_by_another_cell(database: Engine) -> None:
    hints = hints_of(database)
    settle(hints)
    keep_to(database, None)
    assert not nothing_was_committed(hints)


def test_nothing_is_believed_over_a_checkpoint_which_ends_a_recovery_from_a_crash(database: Engine) -> None:
    hints = hints_of(database)
    settle(hints)
    with closing(connected(database.url.render_as_string(hide_password=False))) as connection:
        connection.autocommit = True
        connection.execute("CHECKPOINT")
    assert not nothing_was_committed(hints)


def test_standby_proves_nothing(database: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_POSITION", module._POSITION.replace("NOT pg_is_in_recovery()", "false"))
    assert hints_of(database).take() is None


def test_servers_that_do_not_tell_are_not_asked() -> None:
    assert commits_seen("cell1", [open_nova_database("mysql://nobody@127.0.0.1:1/nova")], system_clock) is None
