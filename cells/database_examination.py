"""Examines a database of the fleet or of a native cell, for operators: server, tables, rights, clock."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, MetaData, func, select, text
from sqlalchemy.engine import make_url

from fleetlight.cells.database.engines import translated_failures
from fleetlight.cells.fleet.fleet_clock import POSTGRESQL_NOW
from fleetlight.cells.fleet.tables import fleet_metadata
from fleetlight.cells.migrations import newest_revision, written_revision
from fleetlight.cells.tables import cell_metadata
from fleetlight.resources.clock import Clock, system_clock

_POSTGRESQL_SERVER = text("SELECT current_user, current_setting('server_version')")
_SQLITE_SERVER = text("SELECT sqlite_version()")
_SCHEMAS: Mapping[str, tuple[MetaData, int]] = {"fleet": (fleet_metadata, 0), "cell": (cell_metadata, 1)}
"""The tables of each schema, and the place of its rights among those of an account."""


@dataclass(frozen=True, slots=True)
class DatabaseExamination:
    """server: program and version. account: ours on it; None if it has no accounts.

    revision, newest: versions of its tables, and of those that this program knows; None without tables.
    lacks: rights that the account needs and lacks, in the server's terms, such as `SELECT on flavors`; not checked for
        tables of another version.
    ahead_us: how far its clock is ahead of ours; 0 for a file.
    """

    server: str
    account: str | None
    revision: str | None
    newest: str
    lacks: Sequence[str]
    ahead_us: int


def examine_database(
    engine: Engine,
    schema: str,
    unreachable: Callable[[str], Exception],
    *,
    role_prefix: str,
    clock: Clock = system_clock,
) -> DatabaseExamination:
    """Examine a database. schema: `fleet` or `cell`. unreachable: makes the error to raise if it does not answer.

    role_prefix: the prefix of account names, before the name of the process.
    """
    with translated_failures(unreachable), engine.connect() as connection:
        newest, revision = newest_revision(schema), written_revision(connection, schema)
        if engine.dialect.name == "sqlite":
            version = connection.execute(_SQLITE_SERVER).scalar_one()
            return DatabaseExamination(f"SQLite {version}", None, revision, newest, (), 0)
        begun = clock()
        now = connection.execute(POSTGRESQL_NOW).scalar_one()
        ahead_us = now - (begun + clock()) // 2
        account, version = connection.execute(_POSTGRESQL_SERVER).one()
        lacks = list(_lacking(connection, schema, account.removeprefix(role_prefix))) if revision == newest else []
        return DatabaseExamination(f"PostgreSQL {version.split()[0]}", account, revision, newest, lacks, ahead_us)


def file_of(engine_url: str) -> str | None:
    """The file of a SQLite database; None for a database on a server."""
    url = make_url(engine_url)
    return url.database if url.get_backend_name() == "sqlite" else None


def _lacking(connection: Connection, schema: str, process: str) -> Iterator[str]:
    """Rights that the account of a process lacks; any other account, such as an owner's, must be able to read all."""
    from fleetlight.cells.postgresql_accounts import ACCOUNTS, TableRights  # noqa: PLC0415 -- has the driver

    metadata, place = _SCHEMAS[schema]
    rights = ACCOUNTS.get(process, (TableRights(), TableRights()))[place]
    hidden = {table.name for table in rights.hidden}
    wanted = [("SELECT", name) for name in metadata.tables if name not in hidden]
    wanted += [(verb, may.table.name) for may in rights.changes for verb in may.verbs]
    # Some columns may be excluded from inserts, so a right on any column counts as one on the table.
    asked = [
        func.has_any_column_privilege(name, verb) if verb != "DELETE" else func.has_table_privilege(name, verb)
        for verb, name in wanted
    ]
    for (verb, name), may in zip(wanted, connection.execute(select(*asked)).one(), strict=True):
        if not may:
            yield f"{verb} on {name}"
