"""The seal of the SQLite index: whatever another program writes into the file, no list takes the file for whole."""

import asyncio
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from fleetlight.indexer.backends.base import CellProgress
from fleetlight.indexer.backends.seal import Breach
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.backends.sqlite.generations import SqliteGenerations
from fleetlight.indexer.backends.sqlite.searcher import SqliteSearcher
from fleetlight.indexer.backends.sqlite.writer import SqliteWriter
from fleetlight.indexer.errors import IndexReplacedError, IndexUnavailableError, IndexUnsealedError, IndexVersionError
from fleetlight.query.counts import CountRequest
from fleetlight.query.filters import EVERYTHING
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import SortOrder
from fleetlight.resources.clock import system_clock
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.support.examples import examples
from tests.support.fleets.documents import TEMPLATE, make_document, make_uuid
from tests.support.fleets.other_version_indexes import store_other_version

ORDER = SortOrder.of(INSTANCE_FIELDS, ())
PROGRESS = CellProgress("c0", 7, 1_000, is_complete=True)
SHELL = shutil.which("sqlite3")
ITEM = replace(
    make_document(50), item_type="node", record={"uuid": make_uuid(50), "deleted": False, "deleted_at": None}
)

WITHOUT_TRIGGERS = (
    "PRAGMA writable_schema = ON; DELETE FROM sqlite_schema WHERE type = 'trigger'; PRAGMA writable_schema = RESET"
)
CHANGES = {
    "a deleted row": "DELETE FROM documents WHERE uuid = (SELECT max(uuid) FROM documents)",
    "all rows deleted": "DELETE FROM documents",
    "an altered row": "UPDATE documents SET display_name = 'x'",
    "a row put back as it was": "UPDATE documents SET version = version",
    "an inserted row": "INSERT INTO documents (uuid, cell_uuid, version) VALUES ('9', 'c0', 1)",
    "a replaced row": "REPLACE INTO documents (uuid, cell_uuid) SELECT uuid, 'c0' FROM documents",
    "altered progress": "UPDATE progress SET watermark = 99",
    "deleted progress": "DELETE FROM progress",
    "altered state": "INSERT OR REPLACE INTO state VALUES ('horizon', 'c0', x'39')",
    "a deleted item": "DELETE FROM items WHERE uuid != ''",
    "a mark of items": "INSERT INTO items VALUES ('router', 'c0', '', 0, NULL, '{}')",
    "a dropped trigger": "DROP TRIGGER seal_documents_DELETE",
    "an index of its own": "CREATE INDEX own ON documents (version)",
    "a row deleted without its trigger": "DROP TRIGGER seal_documents_DELETE; DELETE FROM documents",
    "triggers taken out of the schema": WITHOUT_TRIGGERS,
    "a row deleted with its triggers out of the schema": "; ".join((WITHOUT_TRIGGERS, "DELETE FROM documents")),
    "a trigger put into the schema": (
        "PRAGMA writable_schema = ON; INSERT INTO sqlite_schema VALUES ('trigger', 'own', 'seal', 0, "
        "'CREATE TRIGGER own AFTER UPDATE ON seal BEGIN DELETE FROM documents; END'); PRAGMA writable_schema = RESET"
    ),
    "an altered trigger": (
        "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, 'changed + 1', 'changed + 0') "
        "WHERE type = 'trigger'; PRAGMA writable_schema = RESET; DELETE FROM documents"
    ),
    "a renamed table": "ALTER TABLE documents RENAME TO kept",
    "a dropped table": "DROP TABLE documents",
    "dropped items": "DROP TABLE items",
    "a trigger of its own": "CREATE TRIGGER own AFTER INSERT ON state BEGIN DELETE FROM documents; END",
    "a dropped seal": "DROP TABLE seal",
    "an emptied seal": "DELETE FROM seal",
    "a seal without numbers": "UPDATE seal SET changed = NULL",
}


class Index:
    """Both sides of one file, filled."""

    def __init__(self, path: Path, runner: asyncio.Runner) -> None:
        self.path = path
        self._run = runner.run
        self.searcher = SqliteSearcher(path)
        self.writer = SqliteWriter(path)
        self.writer.prepare()
        self.seal = self.writer.open_seal(system_clock)
        self.fill()

    def fill(self) -> None:
        self.writer.write([make_document(number) for number in range(3)])
        self.writer.write([ITEM])
        self.writer.mark_items("node", "c0", are_whole=True)
        self.writer.save_progress([PROGRESS])

    def reads(self) -> list[Callable[[], object]]:
        """Each kind of reading that a list does."""
        searcher, page = self.searcher, PageRequest(EVERYTHING, ORDER, 10)
        single = PageRequest(EVERYTHING, ORDER, 1)
        return [
            lambda: self._run(searcher.page(page, ["c0"], TEMPLATE)),
            lambda: self._run(searcher.search(page, ["c0"], TEMPLATE)),
            lambda: self._run(searcher.search(single, ["c0"], TEMPLATE)),
            lambda: self._run(searcher.count(CountRequest(EVERYTHING, INSTANCE_FIELDS), ["c0"])),
            lambda: self._run(searcher.items("node", ["c0"])),
        ]

    def is_complete(self) -> bool:
        progress = self._run(self.searcher.progress())
        return any(cell.is_complete for cell in progress.values())

    def check(self) -> Breach | None:
        return self.seal.check(lambda _documents: True, 0.0)

    def require_whole(self) -> None:
        for read in self.reads():
            read()
        assert self.is_complete()
        now = system_clock()
        assert self.check() is None
        assert self.seal.held_at >= now

    def require_suspected(self) -> None:
        for read in self.reads():
            with pytest.raises(IndexUnavailableError):
                read()
        with suppress(IndexUnavailableError):
            assert not self.is_complete()

    def repair(self) -> None:
        """What the sealer does, and the indexer where the file must be prepared again."""
        try:
            breach = self.check()
        except IndexReplacedError:
            self.writer.prepare()
            breach = self.check()
        assert breach is not None
        assert breach.uuids is None
        self.require_suspected()
        with suppress(IndexUnavailableError):
            self.writer.remove_cell("c0")
        self.writer.prepare()
        self.fill()
        self.require_suspected()
        self.seal.mend(breach)

    def close(self) -> None:
        self._run(self.searcher.close())
        self.writer.close()


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def index(tmp_path: Path, runner: asyncio.Runner) -> Iterator[Index]:
    with closing(Index(tmp_path / "index.db", runner)) as index:
        index.require_whole()
        yield index


def by_connection(path: Path, statements: str) -> bool:
    """Returns whether there was anything to change."""
    with closing(sqlite3.connect(path)) as connection:
        before = connection.execute("PRAGMA schema_version").fetchone()
        connection.executescript(statements)
        return connection.total_changes > 0 or connection.execute("PRAGMA schema_version").fetchone() != before


def by_shell(path: Path, statements: str) -> None:
    assert SHELL is not None
    subprocess.run([SHELL, "-bail", path, statements], check=True)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("vandal", [by_connection, *([by_shell] if SHELL else [])])
def test_what_another_program_changes_is_suspected_until_it_is_mended(
    index: Index, change: str, vandal: Callable[[Path, str], object]
) -> None:
    vandal(index.path, CHANGES[change])
    index.require_suspected()
    index.repair()
    index.require_whole()


@pytest.mark.parametrize("table", ["documents", "progress", "state", "items"])
def test_file_of_an_older_program_is_sealed_by_its_rebuild(tmp_path: Path, runner: asyncio.Runner, table: str) -> None:
    path = tmp_path / "index.db"
    store_other_version(IndexSettings(backend="sqlite", path=path), "schema 1")
    with closing(SqliteWriter(path)) as writer, pytest.raises(IndexVersionError):
        writer.prepare()
    with closing(SqliteGenerations(path)) as generations:
        generations.create_next()
        by_connection(path, "UPDATE documents SET version = version")  # that program still runs
        generations.switch(lambda: None)
    with closing(Index(path, runner)) as index:
        index.writer.save_state("horizon", {"c1": 1})
        index.require_whole()
        assert by_connection(path, f"DELETE FROM {table}")  # noqa: S608
        index.require_suspected()


def test_table_of_another_shape_is_suspected_until_a_person_puts_it_right(index: Index) -> None:
    by_connection(index.path, "ALTER TABLE documents RENAME TO kept; CREATE TABLE documents AS SELECT * FROM kept")
    index.require_suspected()
    breach = index.check()
    by_connection(index.path, "DROP TABLE documents; ALTER TABLE kept RENAME TO documents")
    assert index.check() not in {None, breach}
    index.repair()
    index.require_whole()


@pytest.mark.parametrize("table", ["documents_next", "progress_next", "documents_previous"])
def test_what_is_changed_of_another_generation_is_found(index: Index, table: str) -> None:
    with closing(SqliteGenerations(index.path)) as generations:
        generations.create_next()
        generations.switch(lambda: None)
        generations.create_next()
        next_one = generations.open_next()
        next_one.write([make_document(1)])
        next_one.save_progress([PROGRESS])
        index.writer.write([make_document(3)])
        index.require_whole()
        by_connection(index.path, f"UPDATE {table} SET cell_uuid = cell_uuid")  # noqa: S608
        index.require_suspected()


def test_change_after_the_breach_was_found_is_another_breach(index: Index) -> None:
    by_connection(index.path, "DROP TRIGGER seal_documents_DELETE")
    first = index.check()
    assert first is not None
    assert index.check() == first
    by_connection(index.path, CHANGES["a deleted row"])
    index.seal.mend(first)
    index.require_suspected()
    second = index.check()
    assert second not in {None, first}
    assert second is not None
    index.seal.mend(second)
    index.require_whole()


def test_mending_twice_accounts_once(index: Index) -> None:
    by_connection(index.path, CHANGES["a deleted row"])
    breach = index.check()
    assert breach is not None
    for _ in range(2):
        index.seal.mend(breach)
    index.require_whole()


def test_breach_outlives_the_process_and_is_found_by_the_next(index: Index) -> None:
    by_connection(index.path, CHANGES["a row deleted without its trigger"])
    index.writer.close()
    index.writer = SqliteWriter(index.path)
    index.writer.prepare()
    index.writer.write([make_document(5)])
    index.seal = index.writer.open_seal(system_clock)
    index.require_suspected()
    index.repair()
    index.require_whole()


def _restore(copy: Path, path: Path) -> None:
    with closing(sqlite3.connect(copy)) as source, closing(sqlite3.connect(path)) as target:
        source.backup(target)


def test_progress_is_not_saved_over_an_older_copy(index: Index) -> None:
    copy = index.path.with_name("copy.db")
    _restore(index.path, copy)
    index.writer.write([make_document(3)])
    assert index.is_complete()
    _restore(copy, index.path)
    for read in index.reads():
        with pytest.raises(IndexUnsealedError):
            read()
    ahead = CellProgress("c0", 8, 2_000, is_complete=True)
    for use in (index.writer.make_searchable, lambda: index.writer.save_progress([ahead]), index.check):
        with pytest.raises(IndexReplacedError):
            use()
    index.writer.prepare()
    assert index.writer.load_progress() == {"c0": PROGRESS}
    index.repair()
    index.require_whole()


def test_no_page_of_an_older_copy_is_shown_with_later_progress(index: Index) -> None:
    by_connection(index.path, "PRAGMA wal_checkpoint(TRUNCATE)")
    copy = index.path.with_name("copy.db")
    shutil.copy(index.path, copy)
    index.writer.write([make_document(3)])
    assert index.is_complete()
    index.writer.close()
    copy.replace(index.path)
    for suffix in ("-wal", "-shm"):
        index.path.with_name(index.path.name + suffix).unlink(missing_ok=True)
    for read in index.reads():
        with pytest.raises(IndexUnsealedError, match="older copy"):
            read()
    index.writer = SqliteWriter(index.path)
    index.seal = index.writer.open_seal(system_clock)
    assert index.is_complete()
    index.require_whole()


def test_each_writer_notices_an_older_copy_by_itself(index: Index) -> None:
    """What another one has done, this one has seen at its last transaction, and nothing since."""
    copy = index.path.with_name("copy.db")
    with closing(SqliteWriter(index.path)) as other:
        other.prepare()
        _restore(index.path, copy)
        index.writer.write([make_document(3)])
        other.write([make_document(4)])
        _restore(copy, index.path)
        for writer in (index.writer, other):
            with pytest.raises(IndexReplacedError):
                writer.save_progress([PROGRESS])


def test_two_processes_that_write_at_once_keep_the_seal(index: Index) -> None:
    program = (
        "import sys; from pathlib import Path; from fleetlight.indexer.backends.sqlite.writer import SqliteWriter; "
        "from tests.support.fleets.documents import make_document; writer = SqliteWriter(Path(sys.argv[1])); "
        "writer.prepare(); [writer.write([make_document(n, version=v)]) for v in range(1, 20) for n in range(9)]"
    )
    other = subprocess.Popen([sys.executable, "-c", program, index.path])
    try:
        while other.poll() is None:
            index.writer.write([make_document(number, version=100) for number in range(100, 110)])
            index.writer.remove({make_uuid(number): 100 for number in range(100, 110)})
            index.require_whole()
    finally:
        other.kill()
        other.wait()
    assert other.returncode == 0
    index.require_whole()


def test_writer_that_is_killed_in_a_transaction_leaves_the_seal_as_it_was(index: Index) -> None:
    program = (
        "import os, sys; from pathlib import Path; from fleetlight.indexer.backends.sqlite.writer import SqliteWriter\n"
        "with SqliteWriter(Path(sys.argv[1])).transaction() as connection:\n"
        "    connection.execute('DELETE FROM documents')\n"
        "    os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", program, index.path]).returncode == -9  # noqa: PLW1510
    index.require_whole()
    assert len(index.writer.read([make_uuid(number) for number in range(3)])) == 3


def _rebuild(index: Index) -> None:
    with closing(SqliteGenerations(index.path)) as generations:
        generations.create_next()
        new = generations.open_next()
        new.write([make_document(number) for number in range(3)])
        new.save_progress([PROGRESS])
        generations.switch(lambda: new.save_state("repairs", {"c9": None}))


def _take_back(index: Index) -> None:
    with closing(SqliteGenerations(index.path)) as generations:
        if generations.has_previous():
            generations.take_previous_as_next()
            generations.open_next().write([make_document(2, version=9)])
            generations.switch(lambda: None)


def _give_up_rebuild(index: Index) -> None:
    with closing(SqliteGenerations(index.path)) as generations:
        generations.create_next()
        generations.drop_next()
        generations.drop_previous()


def _fill_anew(index: Index) -> None:
    index.writer.remove_cell("c0")
    index.fill()


OURS: dict[str, Callable[[Index], object]] = {
    "write": lambda index: index.writer.write([make_document(number, version=8) for number in range(4)]),
    "stale": lambda index: index.writer.write([make_document(1, version=1)]),
    "refused": lambda index: index.writer.write([make_document(6, progress=2**70), make_document(7)]),
    "remove": lambda index: index.writer.remove({make_uuid(1): 99}),
    "purge": lambda index: index.writer.purge("c0", 2_000_000_000_000_000),
    "remove_cell": _fill_anew,
    "item": lambda index: index.writer.write([replace(ITEM, version=9)]),
    "remove_items": lambda index: index.writer.remove_items("node", "c0", {ITEM.id: 99}),
    "mark": lambda index: index.writer.mark_items("node", "c0", are_whole=False),
    "progress": lambda index: index.writer.save_progress([PROGRESS]),
    "state": lambda index: index.writer.save_state("horizon", {"c0": 5, "c1": None}),
    "prepare": lambda index: index.writer.prepare(),
    "rebuild": _rebuild,
    "take_back": _take_back,
    "give_up_rebuild": _give_up_rebuild,
}
FOREIGN = [change for change in CHANGES if "seal" not in change and "table" not in change and change != "dropped items"]


@settings(max_examples=examples(25), deadline=None)
@given(operations=st.lists(st.sampled_from(sorted(OURS)), max_size=8), change=st.sampled_from(FOREIGN), data=st.data())
def test_only_what_another_program_writes_breaks_the_seal(
    tmp_path_factory: pytest.TempPathFactory,
    runner: asyncio.Runner,
    operations: list[str],
    change: str,
    data: st.DataObject,
) -> None:
    place = data.draw(st.integers(0, len(operations)))
    with closing(Index(tmp_path_factory.mktemp("index") / "index.db", runner)) as index:
        for operation in operations[:place]:
            OURS[operation](index)
        index.require_whole()
        is_changed = by_connection(index.path, CHANGES[change])
        for operation in operations[place:]:
            OURS[operation](index)
        if is_changed:
            index.require_suspected()
            assert index.check() is not None
        else:
            index.require_whole()
