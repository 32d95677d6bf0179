"""What was committed is noticed, by whichever process, and without a commit a wait lasts until its time."""

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from threading import Event, Timer

import pytest
import sqlalchemy as sa

from fleetlight.cells.database import commits as module
from fleetlight.cells.database.commits import Commits
from fleetlight.cells.database.engines import create_database_engine, writing
from tests.support.waiting import wait_until

pytestmark = pytest.mark.no_rerun

INTERVAL_S = 0.01
LONG_S = 60.0


@pytest.fixture(params=["cell.db", "a cell?.db", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def engine(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[sa.Engine]:
    """With a table; as a process opens one that exists already."""
    name = request.param
    is_server = name == "postgresql"
    path = tmp_path / name.replace("?", "%3F")
    url = request.getfixturevalue("new_postgresql_database")() if is_server else f"sqlite:///{path}"
    first, engine = create_database_engine(url), create_database_engine(url, must_exist=True)
    with writing(first) as connection:
        connection.execute(sa.text("CREATE TABLE t (n INTEGER)"))
    first.dispose()
    yield engine
    engine.dispose()


@pytest.fixture
def commits(engine: sa.Engine) -> Commits:
    """Of a database in which everything is known."""
    return known(Commits(engine))


def known(commits: Commits) -> Commits:
    # Other tests commit to the same server, so that a moment without a commit is a short one.
    deadline_s = time.monotonic() + LONG_S
    while commits.may_be_new():
        assert time.monotonic() < deadline_s
    return commits


def insert(engine: sa.Engine, number: int = 1) -> None:
    with writing(engine) as connection:
        connection.execute(sa.text("INSERT INTO t VALUES (:n)"), {"n": number})


def waited_s(commits: Commits, longest_s: float = LONG_S, stop: Event | None = None) -> float:
    begun_s = time.monotonic()
    commits.wait(stop or Event(), INTERVAL_S, longest_s)
    return time.monotonic() - begun_s


def test_first_look_may_find_anything(engine: sa.Engine) -> None:
    assert Commits(engine).may_be_new()


@pytest.mark.parametrize("engine", ["cell.db"], indirect=True)
def test_nothing_is_waited_for_until_the_longest_wait_is_over(commits: Commits) -> None:
    assert waited_s(commits, 0.3) >= 0.3


def test_commit_before_the_wait_ends_it(commits: Commits, engine: sa.Engine) -> None:
    insert(engine)
    assert waited_s(commits) < LONG_S
    assert commits.may_be_new()


def test_commit_during_the_wait_ends_it(commits: Commits, engine: sa.Engine) -> None:
    later = Timer(0.1, insert, [engine])
    later.start()
    assert waited_s(commits) < LONG_S
    later.join()


def test_each_of_many_commits_is_noticed_by_all(engine: sa.Engine) -> None:
    """Whatever is seen in a look that was begun by a notice, nothing is committed that no later notice is about."""
    several = [known(Commits(engine)) for _ in range(3)]
    for number in range(50):
        insert(engine, number)
        assert all(commits.may_be_new() for commits in several), number


def test_commit_is_seen_by_the_look_after_its_notice(engine: sa.Engine) -> None:
    """A notice that comes before others can see the rows would be the only one, and the look would find nothing."""
    stop, seen = Event(), 0
    numbers = count(1)

    def commit_on() -> None:
        while not stop.is_set():
            insert(engine, next(numbers))

    commits, thread = Commits(engine), threading.Thread(target=commit_on)
    thread.start()
    try:
        for _ in range(200):
            if commits.may_be_new():
                seen = highest(engine)
    finally:
        stop.set()
        thread.join()
    if commits.may_be_new():
        seen = highest(engine)
    assert seen == next(numbers) - 1 > 0


def highest(engine: sa.Engine) -> int:
    with engine.connect() as connection:
        return connection.scalar(sa.text("SELECT max(n) FROM t")) or 0


@pytest.mark.parametrize("engine", ["cell.db", "a cell?.db"], indirect=True)
def test_commit_of_another_process_is_noticed(commits: Commits, tmp_path: Path) -> None:
    [file] = tmp_path.glob("*.db")
    script = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).executescript('INSERT INTO t VALUES (2)')"
    subprocess.run([sys.executable, "-c", script, str(file)], check=True)
    assert waited_s(commits) < LONG_S


def test_what_is_rolled_back_hides_nothing_that_is_committed_after_it(commits: Commits, engine: sa.Engine) -> None:
    with engine.connect() as connection:
        connection.execute(sa.text("INSERT INTO t VALUES (1)"))
        connection.rollback()
    known(commits)
    insert(engine)
    assert commits.may_be_new()


def test_wait_ends_when_it_is_to_stop(commits: Commits) -> None:
    stop = Event()
    Timer(0.1, stop.set).start()
    assert waited_s(commits, stop=stop) < LONG_S


@pytest.mark.parametrize("engine", ["cell.db"], indirect=True)
def test_look_comes_now_and_then_whatever_was_said(engine: sa.Engine) -> None:
    """For files that a hand has put in the place of others."""
    commits = Commits(engine, longest_rest_s=0.0)
    insert(engine)
    assert [commits.may_be_new() for _ in range(3)] == [True] * 3


@pytest.mark.parametrize("engine", ["cell.db"], indirect=True)
def test_engine_that_is_disposed_of_takes_no_other_user_of_its_database_along(engine: sa.Engine) -> None:
    first, other = create_database_engine(engine.url.render_as_string()), engine
    commits = [known(Commits(each)) for each in (first, other)]
    first.dispose()
    insert(other)
    assert all(each.may_be_new() for each in commits)


def test_file_of_the_same_name_in_another_folder_is_another_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        engine = create_database_engine("sqlite:///cell.db")
        with writing(engine) as connection:
            connection.execute(sa.text("CREATE TABLE t (n INTEGER)"))
        asked.append(known(Commits(engine)))
    insert(engine)
    assert [commits.may_be_new() for commits in asked] == [False, True]


@pytest.mark.postgresql
def test_commit_to_each_of_two_databases_of_a_server_is_noticed(
    new_postgresql_database: Callable[[], str],
) -> None:
    """Also when a transaction that began later, in the other database, was committed before."""
    here, there = (create_database_engine(new_postgresql_database()) for _ in range(2))
    for engine in (here, there):
        with writing(engine) as connection:
            connection.execute(sa.text("CREATE TABLE t (n INTEGER)"))
    asked = [known(Commits(engine)) for engine in (here, there)]
    for number in range(20):
        with writing(there) as connection:
            connection.execute(sa.text("INSERT INTO t VALUES (:n)"), {"n": number})
            insert(here, number)
            for commits in asked:
                known(commits)
        assert all(commits.may_be_new() for commits in asked), number
    for engine in (here, there):
        engine.dispose()


@pytest.mark.parametrize("engine", ["cell.db"], indirect=True)
def test_wait_ends_though_its_server_hangs(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the process can stop."""
    commits, answers = known(Commits(engine)), Event()
    monkeypatch.setattr(module._Database, "_ask", lambda *_: answers.wait(LONG_S))
    monkeypatch.setattr(module, "_LONGEST_WAIT_S", 0.1)
    assert waited_s(commits) < LONG_S / 2
    answers.set()


def test_databases_behind_one_address_are_asked_one_by_one() -> None:
    """They may be on several servers, as behind PgBouncer."""
    engines = [create_database_engine(f"postgresql://127.0.0.1:9/{name}") for name in ("one", "other", "one")]
    first, other, again = (Commits(engine)._database for engine in engines)
    assert first is not other
    assert first is again
    assert first.watcher is other.watcher


def test_database_whose_connections_are_all_in_use_may_have_anything(tmp_path: Path) -> None:
    engine = create_database_engine(f"sqlite:///{tmp_path}/cell.db")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "raw_connection", _all_are_in_use)
        assert [Commits(engine).may_be_new() for _ in range(2)] == [True, True]


def _all_are_in_use() -> None:
    raise sa.exc.TimeoutError("QueuePool limit reached")


def test_database_that_is_away_may_have_anything(tmp_path: Path) -> None:
    for url in (f"sqlite:///{tmp_path}/no/such/folder/cell.db", "postgresql://127.0.0.1:9/nothing"):
        commits = Commits(create_database_engine(url, must_exist=True))
        assert [commits.may_be_new() for _ in range(3)] == [True] * 3
        assert waited_s(commits) < LONG_S


@pytest.mark.parametrize("engine", ["cell.db"], indirect=True)
def test_hundred_that_wait_take_one_thread_and_one_connection_of_a_database(engine: sa.Engine) -> None:
    opened: list[object] = []
    sa.event.listen(engine, "connect", lambda connection, _record: opened.append(connection))
    stop = Event()
    with ExitStack() as ending:
        waiting: Sequence[Commits] = [known(Commits(engine)) for _ in range(100)]
        threads = [threading.Thread(target=waited_s, args=(each, LONG_S, stop)) for each in waiting]
        for thread in threads:
            thread.start()
            ending.callback(thread.join)
        ending.callback(stop.set)
        wait_until(lambda: [thread.name for thread in threading.enumerate()].count("commits") == 1)
        assert len(opened) <= 1
    wait_until(lambda: "commits" not in [thread.name for thread in threading.enumerate()])
