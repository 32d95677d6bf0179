"""Leases of several processes on one fleet database, on each kind of database."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.database.file_lock import FileLock
from fleetlight.cells.database.leases import Leases, open_leases
from tests.support.waiting import wait_until

HOLDER = """
import sys
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.database.leases import open_leases
leases = open_leases(create_database_engine(sys.argv[1]), "index sync")
assert leases.acquire("cell")
assert leases.acquire("other", shared=True)
print("held", flush=True)
sys.stdin.read()
"""
END_THE_HOLDERS = text(
    "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


@pytest.fixture
def engine(new_database: Callable[[], str]) -> Iterator[Engine]:
    engine = create_database_engine(new_database())
    yield engine
    engine.dispose()


@pytest.fixture
def one(engine: Engine) -> Iterator[Leases]:
    leases = open_leases(engine, "index sync")
    yield leases
    leases.close()


@pytest.fixture
def two(engine: Engine) -> Iterator[Leases]:
    leases = open_leases(engine, "indexer")
    yield leases
    leases.close()


def test_lease_has_one_holder_whom_others_can_name(one: Leases, two: Leases) -> None:
    assert one.acquire("cell")
    assert not two.acquire("cell")
    assert not two.acquire("cell", shared=True)
    assert two.holder("cell").startswith("index sync (process ")
    assert two.acquire("another")
    one.release("cell")
    assert not one.holds("cell")
    assert two.acquire("cell")
    assert one.holder("cell").startswith("indexer (process ")


def test_shared_lease_has_many_holders_and_nobody_has_it_alone(one: Leases, two: Leases) -> None:
    assert one.acquire("cell", shared=True)
    assert two.acquire("cell", shared=True)
    one.release("cell")
    assert not one.acquire("cell")
    assert one.holder("cell").startswith("indexer (process ")
    two.release("cell")
    assert one.acquire("cell")


@pytest.mark.postgresql
def test_holders_of_shared_leases_are_counted(postgresql_database: str) -> None:
    engine = create_database_engine(postgresql_database)
    with closing(open_leases(engine, "one")) as one, closing(open_leases(engine, "two")) as two:
        for leases in (one, two):
            leases.acquire("cell", shared=True)
        two.acquire("other", shared=True)
        assert one.count(["cell", "other", "nobody's"]) == {"cell": 2, "other": 1}
        holders = one.holders(["cell", "nobody's"])
        assert holders is not None
        assert [len(each) for each in holders.values()] == [2]
        assert all(f"process {os.getpid()} on" in each for each in holders["cell"])
    engine.dispose()


def test_leases_that_are_not_held_have_no_holders(one: Leases) -> None:
    one.acquire("cell", shared=True)
    assert one.count(["cell", "nobody's"]) == {"cell": 1}
    one.release("cell")
    assert one.count(["cell"]) == {}


def test_lease_is_not_taken_twice_by_the_threads_of_one_process(one: Leases) -> None:
    assert one.acquire("cell")
    assert not one.acquire("cell")
    one.release("cell")
    one.release("cell")
    assert one.acquire("cell")


def test_closing_gives_every_lease_back(one: Leases, two: Leases) -> None:
    assert one.acquire("cell")
    assert one.acquire("other", shared=True)
    one.close()
    assert not one.holds("cell")
    assert two.acquire("cell")
    assert two.acquire("other")


def test_lease_whose_holder_cannot_say_so_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(_lock: FileLock, _note: str) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    engine = create_database_engine(f"sqlite:///{tmp_path}/full.db")
    with closing(open_leases(engine, "one")) as one, closing(open_leases(engine, "two")) as two:
        with monkeypatch.context() as disk:
            disk.setattr(FileLock, "write_note", no_space)
            with pytest.raises(OSError, match="No space"):
                one.acquire("cell")
        assert two.acquire("cell")
        two.release("cell")
        assert one.acquire("cell")
    engine.dispose()


def test_leases_die_with_their_process(engine: Engine, one: Leases) -> None:
    url = engine.url.render_as_string(hide_password=False)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        assert not one.acquire("cell")
        assert not one.acquire("other")
        assert f"process {holder.pid}" in one.holder("cell")
        holder.kill()
        holder.wait()
    wait_until(lambda: one.acquire("cell"))
    wait_until(lambda: one.acquire("other"))


@pytest.mark.postgresql
def test_holder_learns_when_its_leases_were_lost_with_the_connection(postgresql_database: str) -> None:
    engine = create_database_engine(postgresql_database)
    one, two = open_leases(engine, "one"), open_leases(engine, "two")
    assert one.acquire("cell")
    assert one.acquire("other", shared=True)
    with engine.connect() as connection:
        connection.execute(END_THE_HOLDERS)
    wait_until(lambda: two.acquire("cell"))
    assert not one.holds("other")
    assert not one.holds("cell")
    assert not one.acquire("cell")
    assert one.acquire("other")
    one.close()
    two.close()
    engine.dispose()


@pytest.mark.postgresql
def test_lease_of_a_process_that_hangs_is_taken_over_and_one_that_works_keeps_it(postgresql_database: str) -> None:
    engine = create_database_engine(postgresql_database)
    with (
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                HOLDER.replace('"index sync"', '"index sync", takeover_after_s=1'),
                engine.url.render_as_string(hide_password=False),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as holder,
        closing(open_leases(engine, "patient")) as patient,
        closing(open_leases(engine, "other", takeover_after_s=1)) as other,
    ):
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        began = time.monotonic()
        while time.monotonic() < began + 2:
            assert not other.acquire("cell"), "it is there, though it does nothing"
        holder.send_signal(signal.SIGSTOP)
        wait_until(lambda: other.acquire("cell"))
        assert other.holds("cell")
        assert not patient.acquire("cell")
        holder.kill()
    engine.dispose()
