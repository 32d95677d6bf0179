"""Queries about its log to a MariaDB server, over one connection of an account with the right to read rows."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pymysql
from pymysql.cursors import DictCursor
from sqlalchemy import URL
from sqlalchemy.dialects.mysql.pymysql import MySQLDialect_pymysql

from fleetlight.cells.errors import CommitLogError
from fleetlight.cells.kinds.nova_db.commit_log.touched import OWNERS, LookedUp
from fleetlight.cells.kinds.nova_db.one_server import Identity
from fleetlight.cells.model import LogPosition

_CONNECT_TIMEOUT_S = 5
# The server is silent for a second or so at most while the log is read (stream.HEARTBEAT_S).
_READ_TIMEOUT_S = 10
# Until 11.4 a server reads a file of its log from the beginning to find the GTID of a position.
_ANSWER_TIMEOUT_S = 60
_ACCESS_DENIED = (1044, 1045, 1142, 1143, 1227)
_AT_ONCE = 1000

_SETTINGS = (
    *("log_bin", "binlog_format", "binlog_row_image", "log_slave_updates", "gtid_slave_pos", "hostname", "port"),
    *("server_id", "socket", "version"),
)
_SYNCED = "4"
_STARTED_AT = (
    "SELECT UNIX_TIMESTAMP() - variable_value AS started_at FROM information_schema.global_status "
    "WHERE variable_name = 'UPTIME'"
)
_SNAPSHOT = (
    "SELECT variable_name AS name, variable_value AS value FROM information_schema.session_status "
    "WHERE variable_name IN ('BINLOG_SNAPSHOT_FILE', 'BINLOG_SNAPSHOT_POSITION', 'WSREP_LAST_COMMITTED', "
    "'WSREP_LOCAL_STATE')"
)


@dataclass(frozen=True, slots=True, order=True)
class LogPlace:
    """A boundary between two transactions: the number of a file of the log, and the offset in it."""

    number: int
    offset: int
    file: str

    @classmethod
    def of(cls, file: str, offset: int) -> "LogPlace":
        return cls(int(file.rpartition(".")[2]), offset, file)

    @classmethod
    def at(cls, position: LogPosition) -> "LogPlace":
        return cls.of(position.file, position.offset)


@dataclass(frozen=True, slots=True)
class Visible:
    """The commits that a reader of rows sees from now on: all up to `place`.

    replicated: number of commits in the cluster (Galera) of the server by then; None without a cluster, and while the
        number grows.
    """

    place: LogPlace
    replicated: int | None


def connection_arguments(url: URL) -> dict[str, Any]:
    """The arguments with which PyMySQL connects to the server of an address from `parse_nova_url`, without a schema."""
    # `set` would ignore None.
    _, arguments = MySQLDialect_pymysql().create_connect_args(url._replace(database=None))
    return {
        **arguments,
        "connect_timeout": _CONNECT_TIMEOUT_S,
        "read_timeout": _READ_TIMEOUT_S,
        "charset": "utf8mb4",
        "autocommit": True,
    }


class LogServer:
    """A server whose log is read. Calls raise CommitLogError."""

    def __init__(self, url: URL) -> None:
        self._arguments = connection_arguments(url)
        with translated():
            self.connection = pymysql.connect(
                **self._arguments | {"read_timeout": _ANSWER_TIMEOUT_S}, cursorclass=DictCursor
            )
        self._settings = self._read_settings()
        with translated(), self.connection.cursor() as cursor:
            cursor.execute(_STARTED_AT)
            self._started_at = int(cursor.fetchone()["started_at"])
        # A server without a cluster lacks this status, or shows that it is not connected.
        self._is_clustered = self._status().get("WSREP_LOCAL_STATE", "0") != "0"

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments for another connection to the same address."""
        return self._arguments

    @property
    def identity(self) -> Identity:
        of = self._settings
        return of["hostname"], of["port"], of["server_id"], of["socket"]

    def require_usable(self) -> None:
        """Raises CommitLogError with a remedy if the log lacks some changes of rows."""
        of = self._settings
        if "mariadb" not in str(of["version"]).lower():
            raise CommitLogError("it is not MariaDB, whose log alone is read", is_lasting=True)
        if not of["log_bin"]:
            raise CommitLogError("it keeps no log: set log_bin in its configuration, and restart it", is_lasting=True)
        if of["binlog_format"] != "ROW":
            raise CommitLogError(
                f"its log may have statements instead of rows (binlog_format {of['binlog_format']}): "
                "SET GLOBAL binlog_format = 'ROW'",
                is_lasting=True,
            )
        if of["gtid_slave_pos"] and not of["log_slave_updates"]:
            raise CommitLogError(
                "it is a replica whose log lacks what it replicates: set log_slave_updates in its configuration",
                is_lasting=True,
            )

    def require_logged(self, schemas: Collection[str]) -> None:
        """Raises CommitLogError if the log leaves out one of these schemas, or the server spells its name otherwise, so
        that no change of it would be noticed.
        """
        with translated(), self.connection.cursor() as cursor:
            cursor.execute("SHOW MASTER STATUS")
            status = cursor.fetchone() or {}
        only, never = (
            {name.strip() for name in str(status.get(filtered) or "").split(",") if name.strip()}
            for filtered in ("Binlog_Do_DB", "Binlog_Ignore_DB")
        )
        known = {schema for schema, table in self.columns(schemas) if table in ("instances", "instance_mappings")}
        for schema in schemas:
            if (only and schema not in only) or schema in never:
                raise CommitLogError(
                    f"it leaves the schema {schema} out of its log (binlog_do_db, binlog_ignore_db)", is_lasting=True
                )
            if schema not in known:
                raise CommitLogError(
                    f"it has no schema that is called exactly {schema} with tables that its account may read",
                    is_lasting=True,
                )

    def visible(self) -> Visible:
        """The position of a new snapshot in the order of commits. Raises CommitLogError."""
        counted = self._status().get("WSREP_LAST_COMMITTED") if self._is_clustered else None
        with translated(), self.connection.cursor() as cursor:
            # This ends the previous transaction, so the server keeps no older rows for us.
            cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        found = self._status()
        file, offset = found.get("BINLOG_SNAPSHOT_FILE"), found.get("BINLOG_SNAPSHOT_POSITION")
        if not file or not offset:
            raise CommitLogError("it does not say up to where of its log commits can be seen", is_lasting=True)
        if self._is_clustered and found.get("WSREP_LOCAL_STATE") != _SYNCED:
            raise CommitLogError("this node is not in step with its cluster", is_lasting=False)
        is_still = counted is not None and counted == found.get("WSREP_LAST_COMMITTED")
        return Visible(LogPlace.of(file, int(offset)), int(counted) if is_still and counted is not None else None)

    def number_now(self) -> int:
        """As `number_of`, for all commits until now."""
        with translated(), self.connection.cursor() as cursor:
            cursor.execute("SELECT @@gtid_binlog_pos AS gtid")
            return number_of(_text(cursor.fetchone()["gtid"]))

    def _status(self) -> Mapping[str, str]:
        with translated(), self.connection.cursor() as cursor:
            cursor.execute(_SNAPSHOT)
            return {row["name"].upper(): row["value"] for row in cursor.fetchall()}

    @property
    def started_at(self) -> int:
        """When the server started, in seconds since the epoch, exact to one second."""
        return self._started_at

    def is_in_log(self, position: LogPosition) -> bool:
        """Whether this server has written its log up to that position, and was not started again since."""
        was_running = abs(position.started_at - self._started_at) <= 1
        return was_running and self.gtid_at(LogPlace.at(position)) == position.gtid

    def files(self) -> Collection[str]:
        """The names of the files that the log still has."""
        with translated(), self.connection.cursor() as cursor:
            cursor.execute("SHOW BINARY LOGS")
            return {str(row["Log_name"]) for row in cursor.fetchall()}

    def gtid_at(self, place: LogPlace) -> str | None:
        """The GTID of a place: the last transaction before it in each domain; None if the log lacks the place."""
        with translated(), self.connection.cursor() as cursor:
            cursor.execute("SELECT BINLOG_GTID_POS(%s, %s) AS gtid", (place.file, place.offset))
            row = cursor.fetchone()
        return None if row is None or row["gtid"] is None else sorted_gtid(_text(row["gtid"]))

    def columns(self, schemas: Collection[str]) -> Mapping[tuple[str, str], Mapping[str, int]]:
        """The positions of the columns that the account may read, by schema and table."""
        statement = (
            "SELECT table_schema AS s, table_name AS t, column_name AS c, ordinal_position AS p "
            "FROM information_schema.columns WHERE table_schema IN %s AND table_name IN %s"
        )
        with translated(), self.connection.cursor() as cursor:
            cursor.execute(statement, (list(schemas), list(OWNERS)))
            found: dict[tuple[str, str], dict[str, int]] = {}
            for row in cursor.fetchall():
                found.setdefault((row["s"], row["t"]), {})[row["c"]] = int(row["p"]) - 1
        return found

    def look_up(self, schema: str, where: LookedUp, keys: Sequence[Any]) -> Collection[str]:
        """The uuids of instances in the rows that have one of these values in a column."""
        table, named, column = where
        statement = f"SELECT DISTINCT {_quoted(named)} AS uuid FROM {_quoted(schema)}.{_quoted(table)} "  # noqa: S608
        statement += f"WHERE {_quoted(column)} IN %s"
        uuids: set[str] = set()
        with translated(), self.connection.cursor() as cursor:
            for begin in range(0, len(keys), _AT_ONCE):
                cursor.execute(statement, (list(keys[begin : begin + _AT_ONCE]),))
                uuids.update(str(row["uuid"]).lower() for row in cursor.fetchall() if row["uuid"] is not None)
        return uuids

    def close(self) -> None:
        # The reader of the log closes the connection at the end of the log.
        if self.connection.open:
            self.connection.close()

    def _read_settings(self) -> Mapping[str, Any]:
        columns = ", ".join(f"@@global.{name} AS {name}" for name in _SETTINGS)
        with translated(), self.connection.cursor() as cursor:
            try:
                cursor.execute(f"SELECT {columns}")
            except pymysql.err.OperationalError as error:
                # A variable that only MariaDB has.
                raise CommitLogError("it is not MariaDB, whose log alone is read", is_lasting=True) from error
            found: Mapping[str, Any] = cursor.fetchone()
        return found


class translated:  # noqa: N801  # reads as what it does
    """Translates errors of PyMySQL to CommitLogError."""

    def __enter__(self) -> None:
        """Nothing has failed yet."""

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, pymysql.MySQLError | OSError):
            raise as_commit_log_error(error) from error


def as_commit_log_error(error: Exception) -> CommitLogError:
    """The CommitLogError for an error of the server or the connection, with a remedy if there is one."""
    code = error.args[0] if error.args else None
    text = str(error.args[1]) if len(error.args) > 1 else str(error)
    if code in _ACCESS_DENIED and any(right in text.upper() for right in ("REPLICATION SLAVE", "BINLOG MONITOR")):
        return CommitLogError(
            "its account may not read the log: GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO it", is_lasting=True
        )
    return CommitLogError(f"the database server says: {text}", is_lasting=False)


def sorted_gtid(text: str) -> str:
    """The same GTID with its domains in a fixed order."""
    return ",".join(sorted(part.strip() for part in text.split(",") if part.strip()))


def number_of(gtid: str) -> int:
    """The number of transactions in all domains up to a GTID, which only grows in one log."""
    return sum(int(found) for found in re.findall(r"\d+-\d+-(\d+)", gtid))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value
