import pytest
from sqlalchemy import text

from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.database.leases import ExclusiveLock, open_leases

END_THE_HOLDER = text(
    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


@pytest.mark.postgresql
def test_lock_has_one_holder_who_learns_when_it_is_lost(postgresql_database: str) -> None:
    engine = create_database_engine(postgresql_database)
    lock, other = (
        ExclusiveLock(open_leases(engine, "a test"), "relay"),
        ExclusiveLock(open_leases(engine, "a test"), "relay"),
    )
    assert lock.acquire()
    assert lock.acquire()
    assert not other.acquire()
    with engine.connect() as connection:
        connection.execute(END_THE_HOLDER)

    assert not lock.acquire()
    assert other.acquire()
    assert not lock.acquire()
    other.release()
    assert lock.acquire()
    lock.release()
    engine.dispose()
