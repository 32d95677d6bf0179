"""Cells of Nova whose databases keep a log are in the index as they were committed, with nothing that Nova announces.

contracts/nova-db has the tables; what the log says was measured with MariaDB 10.11.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from uuid import UUID, uuid4

import pymysql
import pytest
import sqlalchemy as sa

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.errors import CommitLogError
from fleetlight.cells.kinds.nova_db.commit_log import touched
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.model import Cell, HintingAdapter
from fleetlight.indexer.backends.base import LogState
from fleetlight.indexer.stream.saved_progress import saved_log
from fleetlight.indexer.stream.service import IndexerService
from fleetlight.resources.clock import system_clock
from scripts.servers.private import PrivateServer, private_server
from tests.support.servers.logged_nova import FollowedNova, LoggedNova, LoggingMariaDB, followed_nova
from tests.support.waiting import wait_until

pytestmark = [
    pytest.mark.night,
    pytest.mark.own_servers,
    pytest.mark.mariadb,
    pytest.mark.no_rerun,
    pytest.mark.timeout(300),
]

# Rows of one transaction: FLEETLIGHT_TEST_STORM_ROWS for more.
MANY = int(os.environ.get("FLEETLIGHT_TEST_STORM_ROWS", "5000"))
DEMO = "11111111111111111111111111111111"


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateServer]:
    with private_server(LoggingMariaDB()) as started:
        yield started


@pytest.fixture
def nova(server: PrivateServer) -> LoggedNova:
    made = LoggedNova(server, f"odd name-{uuid4().hex[:8]}_")
    made.create(["api", "cell1"])
    return made


@pytest.fixture
def followed(nova: LoggedNova, tmp_path: Path) -> Iterator[FollowedNova]:
    with followed_nova(nova, tmp_path / "fleetlight") as made:
        yield made


@pytest.fixture
def cell(followed: FollowedNova) -> Cell:
    return register(followed, "cell1")


def register(followed: FollowedNova, name: str) -> Cell:
    return followed.register(name, str(UUID(int=int(name[-1]) + 1)))


class Writer:
    """Changes rows as Nova does, and as operators do by hand."""

    def __init__(self, nova: LoggedNova, database: str = "cell1") -> None:
        self._nova = nova
        self._database = database
        self.connection = pymysql.connect(
            host="127.0.0.1",
            port=nova.server.port,
            user="root",
            database=f"{nova.prefix}{database}",
            autocommit=True,
        )

    def run(self, statement: str, *values: object) -> int:
        with self.connection.cursor() as cursor:
            return int(cursor.execute(statement, values or None))

    def create(self, name: str = "web", uuid: str | None = None) -> str:
        made = uuid or str(uuid4())
        self.run(
            "INSERT INTO instances (uuid, display_name, project_id, user_id, vm_state, deleted, hidden, created_at)"
            " VALUES (%s, %s, %s, 'ada', 'active', 0, 0, NOW())",
            *(made, name, DEMO),
        )
        return made

    def close(self) -> None:
        self.connection.close()


@pytest.fixture
def writer(nova: LoggedNova) -> Iterator[Writer]:
    with closing(Writer(nova)) as made:
        yield made


@pytest.fixture
def api(nova: LoggedNova) -> Iterator[Writer]:
    with closing(Writer(nova, "api")) as made:
        yield made


def shown(followed: FollowedNova, uuid: str) -> dict[str, object]:
    with followed.index() as index:
        documents = index.read([uuid])
    assert uuid in documents
    return dict(documents[uuid].record)


def shows(followed: FollowedNova, uuid: str, field: str, expected: object) -> bool:
    return shown(followed, uuid)[field] == expected


def test_every_table_that_a_server_is_made_of_is_followed_within_seconds(
    followed: FollowedNova, cell: Cell, writer: Writer, api: Writer
) -> None:
    uuid = writer.create()
    with followed.indexer():
        followed.wait_until_fresh(cell.uuid)
        changes = {
            "display_name": (writer, "UPDATE instances SET display_name = 'renamed'", "renamed"),
            "metadata": (
                writer,
                "INSERT INTO instance_metadata (instance_uuid, deleted, `key`, value) VALUES (%s, 0, 'a', 'b')",
                {"a": "b"},
            ),
            "tags": (writer, "INSERT INTO tags (resource_id, tag) VALUES (%s, 'blue')", ["blue"]),
            "locked_reason": (
                writer,
                "INSERT INTO instance_system_metadata (instance_uuid, deleted, `key`, value)"
                " VALUES (%s, 0, 'locked_reason', 'audit')",
                "audit",
            ),
            "pinned_availability_zone": (
                api,
                "INSERT INTO request_specs (instance_uuid, spec) VALUES (%s, "
                """'{"nova_object.data": {"availability_zone": "north"}}')""",
                "north",
            ),
        }
        for field, (where, statement, expected) in changes.items():
            where.run(statement, *([uuid] if "%s" in statement else []))
            wait_until(partial(shows, followed, uuid, field, expected), timeout_s=20)
        progress = followed.wait_until_fresh(cell.uuid)
    assert progress.watermark > 0
    assert followed.differing(cell) == {}


@pytest.fixture
def between_statements() -> Iterator[list[Callable[[], object]]]:
    """What happens behind the first statement that reads instances, and only then."""
    waiting: list[Callable[[], object]] = []

    def happen(*of_statement: object) -> None:
        if waiting and "FROM instances" in str(of_statement[2]):
            waiting.pop()()

    sa.event.listen(sa.Engine, "after_cursor_execute", happen)
    yield waiting
    sa.event.remove(sa.Engine, "after_cursor_execute", happen)


def test_server_and_its_fault_are_shown_as_they_were_together(
    nova: LoggedNova, writer: Writer, between_statements: list[Callable[[], object]]
) -> None:
    """Each commit by itself: the server is well again, then a fault is recorded that it never shows."""
    uuid = writer.create()
    writer.run("UPDATE instances SET vm_state = 'error'")

    def goes_on() -> None:
        writer.run("UPDATE instances SET vm_state = 'active'")
        writer.run(
            "INSERT INTO instance_faults (created_at, deleted, instance_uuid, code, message)"
            " VALUES (NOW(), 0, %s, 500, 'late')",
            uuid,
        )

    between_statements.append(goes_on)
    with closing(open_adapter(nova.cell("cell1", str(uuid4())))) as adapter:
        for expected in (("error", None), ("active", None)):
            found = adapter.find(uuid)
            assert found is not None
            assert (found.record["vm_state"], found.record["fault"]) == expected
    assert not between_statements


def test_group_that_is_removed_is_no_group_of_its_members(
    followed: FollowedNova, cell: Cell, writer: Writer, api: Writer
) -> None:
    uuid, group = writer.create(), str(uuid4())
    api.run("INSERT INTO instance_groups (id, uuid, project_id) VALUES (7, %s, %s)", group, DEMO)
    api.run("INSERT INTO instance_group_member (instance_uuid, group_id) VALUES (%s, 7)", uuid)
    with followed.indexer():
        wait_until(lambda: followed.wait_until_fresh(cell.uuid) and shown(followed, uuid)["server_groups"] == [group])
        api.run("DELETE FROM instance_groups")
        wait_until(lambda: shown(followed, uuid)["server_groups"] == [], timeout_s=20)


def test_rows_that_are_removed_leave_the_index_unless_they_were_deleted(
    followed: FollowedNova, cell: Cell, writer: Writer
) -> None:
    """`nova-manage db archive_deleted_rows` moves deleted rows away; a row that is purged by hand was no server."""
    archived, purged = writer.create("archived"), writer.create("purged")
    with followed.indexer():
        followed.wait_until_fresh(cell.uuid)
        writer.run(
            "UPDATE instances SET deleted = id, deleted_at = NOW(), vm_state = 'deleted' WHERE uuid = %s", archived
        )
        wait_until(lambda: shown(followed, archived)["deleted"])
        writer.run("DELETE FROM instances")
        followed.wait_until_fresh(cell.uuid)
        with followed.index() as index:
            assert set(index.read([archived, purged])) == {archived}


def test_transaction_counts_when_it_is_committed_and_only_then(
    followed: FollowedNova, cell: Cell, nova: LoggedNova, writer: Writer
) -> None:
    uuid = writer.create("before")
    with closing(Writer(nova)) as slow, followed.indexer():
        followed.wait_until_fresh(cell.uuid)
        # Otherwise it locks what lies between the rows, too.
        slow.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")
        slow.run("BEGIN")
        slow.run("UPDATE instances SET display_name = 'after' WHERE uuid = %s", uuid)
        slow.run("SAVEPOINT here")
        late = slow.create("rolled back")
        slow.run("ROLLBACK TO here")
        other = writer.create("other")
        followed.wait_until_fresh(cell.uuid)
        assert shown(followed, uuid)["display_name"] == "before"
        assert shown(followed, other)["display_name"] == "other"
        slow.run("COMMIT")
        followed.wait_until_fresh(cell.uuid)
        assert shown(followed, uuid)["display_name"] == "after"
        with followed.index() as index:
            assert not index.read([late])


@pytest.mark.parametrize(
    "statements",
    [
        ["SET SESSION binlog_row_image = 'MINIMAL'", "UPDATE instances SET display_name = 'after'"],
        ["SET SESSION binlog_row_image = 'MINIMAL'", "DELETE FROM instance_metadata"],
        ["SET SESSION binlog_row_image = 'NOBLOB'", "UPDATE instances SET display_name = 'after'"],
        ["SET SESSION binlog_format = 'STATEMENT'", "UPDATE instances SET display_name = 'after'"],
        ["ALTER TABLE instances ADD COLUMN flavor_note INT", "UPDATE instances SET display_name = 'after'"],
        ["ALTER TABLE instances ADD COLUMN in_front INT FIRST", "UPDATE instances SET display_name = 'after'"],
        ["TRUNCATE TABLE instance_metadata"],
        [
            "XA START 'x'",
            "UPDATE instances SET display_name = 'after'",
            "XA END 'x'",
            "XA PREPARE 'x'",
            "XA COMMIT 'x'",
        ],
    ],
    ids=lambda statements: statements[-1 if statements[0].startswith("XA") else 0],
)
def test_whatever_the_log_says_or_leaves_out_the_index_becomes_what_the_rows_are(
    followed: FollowedNova, cell: Cell, writer: Writer, statements: list[str]
) -> None:
    uuid = writer.create("before")
    writer.run("INSERT INTO instance_metadata (instance_uuid, deleted, `key`, value) VALUES (%s, 0, 'a', 'b')", uuid)
    with followed.indexer():
        followed.wait_until_fresh(cell.uuid)
        for statement in statements:
            writer.run(statement)
        followed.wait_until_fresh(cell.uuid)
        assert followed.differing(cell) == {}


def test_indexer_goes_on_where_the_last_one_ended_without_a_comparison(
    followed: FollowedNova, cell: Cell, writer: Writer, caplog: pytest.LogCaptureFixture
) -> None:
    uuid = writer.create("before")
    with followed.indexer():
        followed.wait_until_fresh(cell.uuid)
        wait_until(lambda: has_position(followed, cell))
    writer.run("UPDATE instances SET display_name = 'meanwhile'")
    added = writer.create("added meanwhile")
    began = system_clock()
    with followed.indexer():
        followed.wait_until_fresh(cell.uuid, began)
        assert shown(followed, uuid)["display_name"] == "meanwhile"
        assert shown(followed, added)["display_name"] == "added meanwhile"
    assert followed.differing(cell) == {}


def log_of(followed: FollowedNova, cell: Cell) -> LogState:
    """What operators see of it."""
    with followed.index() as index:
        return saved_log(index, cell.uuid)


def has_position(followed: FollowedNova, cell: Cell) -> bool:
    with followed.index() as index:
        return bool(saved_log(index, cell.uuid).positions)


@pytest.mark.parametrize("act", ["purged", "reset"])
def test_log_that_lost_what_was_not_read_yet_has_the_cell_compared(
    followed: FollowedNova, cell: Cell, writer: Writer, act: str
) -> None:
    uuid = writer.create("before")
    with followed.indexer():
        followed.wait_until_fresh(cell.uuid)
        wait_until(lambda: has_position(followed, cell))
    writer.run("UPDATE instances SET display_name = 'meanwhile'")
    if act == "purged":
        for _ in range(2):
            writer.run("FLUSH LOGS")
        with writer.connection.cursor() as cursor:
            cursor.execute("SHOW MASTER STATUS")
            newest = cursor.fetchone()[0]
        writer.run(f"PURGE BINARY LOGS TO '{newest}'")
    else:
        writer.run("RESET MASTER")
    with followed.indexer():
        followed.wait_until_fresh(cell.uuid)
        assert shown(followed, uuid)["display_name"] == "meanwhile"
        writer.run("UPDATE instances SET display_name = 'later'")
        followed.wait_until_fresh(cell.uuid)
        assert shown(followed, uuid)["display_name"] == "later"


@pytest.mark.parametrize(
    "statements",
    [
        ["RESET MASTER"],
        ["SET GLOBAL binlog_checksum = NONE", "FLUSH LOGS"],
        ["FLUSH LOGS", "FLUSH LOGS"],
    ],
    ids=lambda statements: statements[0],
)
def test_log_that_changes_while_it_is_read_is_followed_from_then_on(
    followed: FollowedNova, cell: Cell, writer: Writer, statements: list[str]
) -> None:
    uuid = writer.create("before")
    try:
        with followed.indexer():
            followed.wait_until_fresh(cell.uuid)
            for statement in statements:
                writer.run(statement)
            for name in ("one", "another", "a third"):
                writer.run("UPDATE instances SET display_name = %s", name)
                followed.wait_until_fresh(cell.uuid)
                assert shown(followed, uuid)["display_name"] == name
    finally:
        writer.run("SET GLOBAL binlog_checksum = CRC32")


def test_rows_that_a_killed_server_lost_are_lost_in_the_index_though_its_log_has_them(
    followed: FollowedNova, cell: Cell, nova: LoggedNova
) -> None:
    """`innodb_flush_log_at_trx_commit` is often not 1, where a cluster has other copies."""
    with followed.indexer():
        followed.wait_until_fresh(cell.uuid)
        with closing(Writer(nova)) as writer:
            made = [writer.create("perhaps lost") for _ in range(20)]
            wait_until(partial(shows, followed, made[-1], "display_name", "perhaps lost"))
        nova.server.kill()
        nova.server.start()
        followed.wait_until_fresh(cell.uuid)
        assert followed.differing(cell) == {}
        with closing(Writer(nova)) as writer:
            later = writer.create("later")
            followed.wait_until_fresh(cell.uuid)
        assert shown(followed, later)["display_name"] == "later"


def test_one_process_reads_the_log_and_another_takes_over(followed: FollowedNova, cell: Cell, writer: Writer) -> None:
    uuid = writer.create("before")
    with ExitStack() as one, ExitStack() as other:
        indexers = {one: one.enter_context(followed.indexer()), other: other.enter_context(followed.indexer())}
        followed.wait_until_fresh(cell.uuid)
        standing_by = wait_until(lambda: [each for each in indexers if stands_by(indexers[each], cell)])
        [standby] = [indexers[each] for each in standing_by]
        assert (standby.health[cell.uuid].problem, standby.problem, standby.stuck) == (None, None, [])
        assert log_of(followed, cell).problem is None
        writer.run("UPDATE instances SET display_name = 'first'")
        followed.wait_until_fresh(cell.uuid)
        [reading] = indexers.keys() - set(standing_by)
        reading.close()
        writer.run("UPDATE instances SET display_name = 'second'")
        followed.wait_until_fresh(cell.uuid)
        assert shown(followed, uuid)["display_name"] == "second"


def stands_by(indexer: IndexerService, cell: Cell) -> bool:
    return indexer.cell_states == {cell.name: "standing by"}


def test_two_cells_of_one_server_share_a_reader_and_do_without_a_statement_of_their_own(
    nova: LoggedNova, followed: FollowedNova, cell: Cell
) -> None:
    nova.create(["cell2"])
    other = register(followed, "cell2")
    with followed.indexer(), closing(Writer(nova, "cell2")) as there:
        followed.wait_until_fresh(cell.uuid)
        followed.wait_until_fresh(other.uuid)
        uuid = there.create("there")
        followed.wait_until_fresh(other.uuid)
        assert shown(followed, uuid)["display_name"] == "there"
        statements, seconds = questions_in(there, 5)
        threads = there_are(there)
    # Two each second, and one question about them.
    assert statements <= 2 * seconds + 4
    assert threads["Binlog Dump"] == 1


def test_cell_whose_api_database_is_on_another_server_needs_both_logs(
    nova: LoggedNova, followed: FollowedNova, tmp_path: Path
) -> None:
    with private_server(LoggingMariaDB()) as elsewhere:
        api_of = LoggedNova(elsewhere, "there_")
        api_of.create(["api"])
        uuid = str(UUID(int=2))
        cell = followed.fleet.add_cell(
            "cell1",
            CellKind.NOVA_DB,
            nova.url("cell1"),
            "",
            uuid=uuid,
            api_database_url=api_of.url("api"),
            nova_uuid=uuid,
        )
        with closing(Writer(nova)) as writer, closing(Writer(api_of, "api")) as api:
            made = writer.create()
            spec = """{"nova_object.data": {"availability_zone": "%s"}}"""
            with followed.indexer():
                followed.wait_until_fresh(cell.uuid)
                api.run("INSERT INTO request_specs (instance_uuid, spec) VALUES (%s, %s)", made, spec % "north")
                followed.wait_until_fresh(cell.uuid)
                assert shown(followed, made)["pinned_availability_zone"] == "north"
                wait_until(lambda: has_position(followed, cell))
            api.run("UPDATE request_specs SET spec = %s", spec % "south")
            writer.run("UPDATE instances SET display_name = 'meanwhile'")
            began = system_clock()
            with followed.indexer():
                progress = followed.wait_until_fresh(cell.uuid, began)
                assert shown(followed, made)["pinned_availability_zone"] == "south"
                assert shown(followed, made)["display_name"] == "meanwhile"
                elsewhere.kill()
                wait_until(lambda: has_stopped_being_fresh(followed, cell, progress.fresh_as_of))
            assert followed.progress(cell.uuid) is not None


def has_stopped_being_fresh(followed: FollowedNova, cell: Cell, was_at: int) -> bool:
    """Whether the index says of no moment of the last five seconds that it has the cell."""
    progress = followed.progress(cell.uuid)
    assert progress is not None
    assert progress.fresh_as_of >= was_at
    return system_clock() - progress.fresh_as_of > 5_000_000


def questions_in(writer: Writer, seconds: int) -> tuple[int, int]:
    def asked() -> int:
        with writer.connection.cursor() as cursor:
            cursor.execute("SHOW GLOBAL STATUS LIKE 'Questions'")
            return int(cursor.fetchone()[1])

    before, until_s = asked(), time.monotonic() + seconds
    wait_until(lambda: time.monotonic() >= until_s)
    return asked() - before, seconds


def there_are(writer: Writer) -> dict[str, int]:
    """How many sessions of ours there are, by command."""
    with writer.connection.cursor() as cursor:
        cursor.execute(
            "SELECT command, COUNT(*) FROM information_schema.processlist WHERE user = 'fleetlight' GROUP BY command"
        )
        return {str(command): int(count) for command, count in cursor.fetchall()}


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("REVOKE REPLICATION SLAVE ON *.* FROM fleetlight@'%'", "REPLICATION SLAVE"),
        ("SET GLOBAL binlog_format = 'MIXED'", "binlog_format"),
    ],
)
def test_log_that_does_not_prove_is_named_and_the_cell_is_compared(
    followed: FollowedNova, cell: Cell, writer: Writer, statement: str, reason: str
) -> None:
    writer.run(statement)
    try:
        with closing(open_adapter(cell)) as adapter:
            assert isinstance(adapter, HintingAdapter)
            with pytest.raises(CommitLogError, match=reason) as raised:
                adapter.follow_commits({})
        assert raised.value.is_lasting
        writer.create("before")
        with followed.indexer():
            wait_until(lambda: (found := followed.progress(cell.uuid)) is not None and found.is_complete)
            assert reason in (log_of(followed, cell).problem or "")
        assert followed.differing(cell) == {}
    finally:
        writer.run("SET GLOBAL binlog_format = 'ROW'")


@pytest.mark.timeout(300 + MANY / 50)
@pytest.mark.parametrize("most_named", [MANY // 2, 2 * MANY])
def test_all_rows_of_large_transactions_are_in_the_index_when_it_says_so(
    followed: FollowedNova, cell: Cell, writer: Writer, monkeypatch: pytest.MonkeyPatch, most_named: int
) -> None:
    monkeypatch.setattr(touched, "_MOST", most_named)
    with followed.indexer():
        followed.wait_until_fresh(cell.uuid)
        began_s = time.monotonic()
        writer.run(
            "INSERT INTO instances (uuid, display_name, project_id, user_id, vm_state, deleted, hidden, created_at)"  # noqa: S608
            " SELECT UUID(), 'one of many', %s, 'ada', 'active', 0, 0, NOW()"
            f" FROM seq_1_to_{MANY}",
            DEMO,
        )
        followed.wait_until_fresh(cell.uuid, timeout_s=MANY / 100)
        taken_s = time.monotonic() - began_s
        with followed.index() as index:
            assert len(index.revisions(cell.uuid, "0123456789abcdef", external=True)) == MANY
        writer.run("UPDATE instances SET display_name = CONCAT('renamed ', id)")
        # Where the log names too many, the whole cell is compared, again as soon as that is fair to its database.
        followed.wait_until_fresh(cell.uuid, timeout_s=6 * taken_s)
        assert followed.differing(cell) == {}


def test_deployment_is_not_fresh_while_it_has_a_cell_that_the_fleet_lacks(
    followed: FollowedNova, nova: LoggedNova, cell: Cell, api: Writer
) -> None:
    url = nova.url("api")
    waiting = followed.fleet.add_cell("build-requests", CellKind.NOVA_DB, url, "", api_database_url=url)
    with followed.indexer():
        followed.wait_until_fresh(waiting.uuid)
        api.run("INSERT INTO cell_mappings (uuid, name) VALUES (%s, 'cell2')", str(uuid4()))
        added_at = system_clock()
        for _ in range(2):
            # It reads the same log, up to later each time.
            followed.wait_until_fresh(cell.uuid)
        progress = followed.progress(waiting.uuid)
        assert progress is not None
        assert progress.fresh_as_of < added_at
        api.run("DELETE FROM cell_mappings WHERE name = 'cell2'")
        followed.wait_until_fresh(waiting.uuid)


@pytest.mark.parametrize("wrong_by_s", [3600, -3600])
def test_times_in_rows_and_log_that_are_wrong_by_an_hour_change_nothing(
    followed: FollowedNova, cell: Cell, writer: Writer, wrong_by_s: int
) -> None:
    uuid = writer.create("before")
    with followed.indexer():
        followed.wait_until_fresh(cell.uuid)
        for wrong_s in (wrong_by_s, 0, -wrong_by_s, wrong_by_s):
            writer.run("SET SESSION timestamp = UNIX_TIMESTAMP(SYSDATE()) + %s", wrong_s)
            writer.run("UPDATE instances SET display_name = %s, updated_at = NOW()", f"wrong by {wrong_s}")
            added = writer.create(f"added at {wrong_s}")
            followed.wait_until_fresh(cell.uuid)
            assert shown(followed, uuid)["display_name"] == f"wrong by {wrong_s}"
            assert shown(followed, added)["display_name"] == f"added at {wrong_s}"
    assert followed.differing(cell) == {}


def test_two_deployments_on_one_server_are_told_apart_though_nova_calls_their_cells_the_same(
    server: PrivateServer, followed: FollowedNova, cell: Cell, writer: Writer
) -> None:
    elsewhere = LoggedNova(server, f"other-{uuid4().hex[:8]}_")
    elsewhere.create(["api", "cell1"])
    other = followed.fleet.add_cell(
        "cell1-of-another",
        CellKind.NOVA_DB,
        elsewhere.url("cell1"),
        "",
        api_database_url=elsewhere.url("api"),
        nova_uuid=cell.nova_uuid,
    )
    with closing(Writer(elsewhere)) as there, followed.indexer():
        followed.wait_until_fresh(cell.uuid)
        followed.wait_until_fresh(other.uuid)
        made = {cell.uuid: writer.create("here"), other.uuid: there.create("there")}
        for each in (cell, other):
            followed.wait_until_fresh(each.uuid)
            assert followed.differing(each) == {}
        with followed.index() as index:
            owners = {uuid: document.cell_uuid for uuid, document in index.read(list(made.values())).items()}
        assert owners == {uuid: owner for owner, uuid in made.items()}
        there.run("DELETE FROM instances")
        followed.wait_until_fresh(other.uuid)
        assert followed.differing(other) == {}
        assert shown(followed, made[cell.uuid])["display_name"] == "here"


@pytest.mark.parametrize("odd", ["Nova.1 ", "100%_", "n\u00f6va-", "select`from"])
def test_schema_with_an_odd_name_is_followed(server: PrivateServer, followed: FollowedNova, odd: str) -> None:
    nova = LoggedNova(server, f"{odd}{uuid4().hex[:8]}_")
    nova.create(["api", "cell1"])
    cell = followed.fleet.add_cell(
        "odd", CellKind.NOVA_DB, nova.url("cell1"), "", api_database_url=nova.url("api"), nova_uuid=str(UUID(int=2))
    )
    with closing(Writer(nova)) as writer, closing(Writer(nova, "api")) as api, followed.indexer():
        followed.wait_until_fresh(cell.uuid)
        uuid = writer.create("before")
        api.run(
            "INSERT INTO request_specs (instance_uuid, spec) VALUES (%s, "
            """'{"nova_object.data": {"availability_zone": "north"}}')""",
            uuid,
        )
        writer.run("INSERT INTO tags (resource_id, tag) VALUES (%s, 'blue')", uuid)
        assert followed.wait_until_fresh(cell.uuid).watermark > 0
        assert shown(followed, uuid)["pinned_availability_zone"] == "north"
        assert followed.differing(cell) == {}
        assert log_of(followed, cell).problem is None


def test_cell_at_rest_has_no_connection_but_those_of_the_log(
    followed: FollowedNova, cell: Cell, writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    uuid = writer.create("before")
    schemas = [f"{followed.nova.prefix}{name}" for name in ("cell1", "api")]

    def connections() -> int:
        others = "SELECT 1 FROM information_schema.processlist WHERE db IN %s AND id <> CONNECTION_ID()"
        return writer.run(others, schemas)

    with followed.indexer():
        followed.wait_until_fresh(cell.uuid)
        assert connections() >= 2
        monkeypatch.setattr("fleetlight.cells.kinds.nova_db.commit_log.hints._RESTS_AFTER_S", 0.3)
        wait_until(lambda: not connections())
        writer.run("UPDATE instances SET display_name = 'after'")
        followed.wait_until_fresh(cell.uuid)
        assert shown(followed, uuid)["display_name"] == "after"
        wait_until(lambda: not connections())
