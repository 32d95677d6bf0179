"""Waiting for a commit ends when there may be one, by whichever process, and otherwise not before its time."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Timer

import pytest
import sqlalchemy as sa

from fleetlight.cells.database.commits import Commits
from fleetlight.cells.database.engines import create_database_engine, writing

LONG_S = 60.0


@pytest.fixture(params=["cell.db", "a cell?.db"])
def engine(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[sa.Engine]:
    url = sa.URL.create("sqlite", database=str(tmp_path / request.param))
    create_database_engine(url.render_as_string()).connect().close()
    engine = create_database_engine(url.render_as_string(), must_exist=True)
    with writing(engine) as connection:
        connection.execute(sa.text("CREATE TABLE t (n INTEGER)"))
    yield engine
    engine.dispose()


@pytest.fixture
def log(engine: sa.Engine, tmp_path: Path) -> Path:
    """To which SQLite writes commits."""
    [found] = tmp_path.glob("*-wal")
    return found


@pytest.fixture
def commits(engine: sa.Engine) -> Commits:
    """Of a database to which nothing is committed any more, which is known."""
    commits = Commits(engine)
    begun_s = time.monotonic()
    while time.monotonic() - begun_s < 0.2:
        commits.wait(Event(), 0.01, 0.2)
    return commits


def insert(engine: sa.Engine) -> None:
    with writing(engine) as connection:
        connection.execute(sa.text("INSERT INTO t VALUES (1)"))


def waited_s(commits: Commits, longest_s: float = LONG_S) -> float:
    begun_s = time.monotonic()
    commits.wait(Event(), 0.01, longest_s)
    return time.monotonic() - begun_s


def test_nothing_is_waited_for_until_the_longest_wait_is_over(commits: Commits) -> None:
    assert waited_s(commits, 0.3) >= 0.3


def test_commit_of_this_process_ends_the_wait_that_is_under_way(commits: Commits, engine: sa.Engine) -> None:
    Timer(0.1, insert, [engine]).start()
    assert waited_s(commits) < LONG_S


def test_commit_of_another_process_before_the_wait_ends_it(commits: Commits, log: Path) -> None:
    script = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript('INSERT INTO t VALUES (2)')"
    subprocess.run([sys.executable, "-c", script, str(log).removesuffix("-wal")], check=True)
    assert waited_s(commits) < LONG_S


def test_second_of_two_commits_at_once_ends_a_wait_as_well(commits: Commits, engine: sa.Engine, log: Path) -> None:
    """The file system may give both the same time, and a log that has begun anew keeps its size."""
    insert(engine)
    insert(engine)
    with engine.connect() as connection:
        connection.execute(sa.text("PRAGMA wal_checkpoint(RESTART)"))
    now_ns = time.time_ns() + 10**9  # also on a machine that takes a while for what follows
    states = set()
    for _ in range(2):
        insert(engine)
        os.utime(log, ns=(now_ns, now_ns))
        states.add((log.stat().st_size, log.stat().st_mtime_ns))
        assert waited_s(commits) < LONG_S
    assert len(states) == 1


def test_wait_ends_when_it_is_to_stop(commits: Commits) -> None:
    stop = Event()
    Timer(0.1, stop.set).start()
    commits.wait(stop, 1.0, LONG_S)
    assert stop.is_set()


def test_other_databases_are_looked_at_every_time(postgresql_url: str) -> None:
    engine = create_database_engine(postgresql_url)
    try:
        assert waited_s(Commits(engine)) < LONG_S
    finally:
        engine.dispose()
