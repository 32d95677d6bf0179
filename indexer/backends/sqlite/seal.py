"""The seal of the SQLite index: what its triggers count, beside what our writers account for.

Triggers run for whoever changes a row, the `sqlite3` shell included, and count it; SQLite itself counts changes of the
schema, as one that drops a trigger or a table, but not what is written into the schema as a table
(`PRAGMA writable_schema`): so whether all triggers are there is looked at too. A writer of ours adds what was counted
in its transaction, when nobody else can write, to what is accounted for. So the two are equal as long as no other
program writes, in each transaction.

What this cannot show: a file that is copied over one that is open, part of which SQLite still has in its log; a change
by a program that forges the count, or that turns triggers off for itself.
"""

import sqlite3
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol

from fleetlight.indexer.backends.seal import AreRight, Breach
from fleetlight.indexer.backends.sqlite.schema import NEXT_SUFFIX, PREVIOUS_SUFFIX, SCHEMA_VERSION, schema_version
from fleetlight.indexer.errors import IndexUnsealedError
from fleetlight.resources.clock import Clock

REASON = "another program has changed rows or tables of the index"
TABLE = "seal"
_NEXT_TABLES = (f"documents{NEXT_SUFFIX}", f"progress{NEXT_SUFFIX}")
_TABLES = (
    *("documents", "progress", "state", "items"),
    *(f"documents{PREVIOUS_SUFFIX}", f"progress{PREVIOUS_SUFFIX}"),
    *_NEXT_TABLES,
)
# By whether the file is of our version. In one of another those of the next generation alone: the others have a program
# of their own.
_SEALED = {True: _TABLES, False: _NEXT_TABLES}
# Without NOT NULL, see fleetlight.indexer.backends.sqlite.schema.
_CREATE = f"CREATE TABLE {TABLE} (changed INTEGER, accounted INTEGER) STRICT"
_READ = f"SELECT changed + schema_version, accounted FROM {TABLE}, pragma_schema_version"  # noqa: S608
# The statements of triggers, by the names of their tables, and the names of tables.
_SCHEMA = (
    "SELECT tbl_name, CASE type WHEN 'trigger' THEN sql END FROM sqlite_schema WHERE type IN ('table', 'trigger') "
    "ORDER BY name"
)
_EVENTS = ("DELETE", "INSERT", "UPDATE")
_COUNT = f"UPDATE {TABLE} SET changed = changed + 1"  # noqa: S608
_ACCOUNT = f"UPDATE {TABLE} SET accounted = accounted + ?"  # noqa: S608


@dataclass(frozen=True, slots=True)
class Account:
    """changes: of rows and of the schema, and one while triggers are not as they should be. accounted: those by writers
    of ours, and mended ones.

    SQLite's own way to copy a file gives the copy another schema version, so that is compared with the cells too.
    """

    changes: int
    accounted: int

    @property
    def unaccounted(self) -> int:
        return self.changes - self.accounted


def read_account(connection: sqlite3.Connection) -> Account | None:
    """As of the transaction; None where there is no seal, as in a file of another version."""
    try:
        found = connection.execute(_READ).fetchone()
    except sqlite3.OperationalError as error:
        if str(error).startswith("no such"):
            return None
        raise
    if found is None or None in found:
        return None
    changes, accounted = found
    return Account(changes + (not _has_its_triggers(connection)), accounted)


def _has_its_triggers(connection: sqlite3.Connection) -> bool:
    schema = connection.execute(_SCHEMA).fetchall()
    is_of_our_version = schema_version(connection) == SCHEMA_VERSION
    sealed = (TABLE, *_SEALED[is_of_our_version])
    tables = tuple(table for table, statement in schema if statement is None)
    found = {statement for table, statement in schema if statement is not None and table in sealed}
    return found == _triggers_of(tables, is_of_our_version)


@lru_cache
def _triggers_of(tables: tuple[str, ...], is_of_our_version: bool) -> frozenset[str]:
    """The statements that make the triggers of those of these tables that have some."""
    return frozenset(
        f"CREATE TRIGGER {TABLE}_{table}_{event} AFTER {event} ON {table} BEGIN {_COUNT}; END"
        for table in _SEALED[is_of_our_version]
        if table in tables
        for event in _EVENTS
    )


def account_for(connection: sqlite3.Connection, before: Account | None) -> int:
    """Account for what was changed in this transaction; before: as it began. Returns how many then are."""
    if (after := read_account(connection)) is None:
        return 0
    made = after.changes - (0 if before is None else before.changes)
    if made:
        connection.execute(_ACCOUNT, (made,))
    return after.accounted + made


def require_sealed(account: Account | None, accounted: int) -> None:
    """Raise IndexUnsealedError if another program has written, or fewer changes than `accounted` are accounted for."""
    if account is None or account.unaccounted:
        raise IndexUnsealedError(REASON)
    if account.accounted < accounted:
        raise IndexUnsealedError("an older copy of the index was put in its place")


def make_seal(connection: sqlite3.Connection, *, is_broken: bool) -> None:
    """Make a seal where there is none, and seal all tables. is_broken: what is in them is not known to be ours."""
    if read_account(connection) is None:
        connection.execute(f"DROP TABLE IF EXISTS {TABLE}")
        connection.execute(_CREATE)
        connection.execute(f"INSERT INTO {TABLE} VALUES (0, ?)", (-1 if is_broken else 0,))  # noqa: S608
    seal_tables(connection)


def seal_tables(connection: sqlite3.Connection) -> None:
    """Give each table that is there its triggers, and none any other."""
    # What the connection knows of the schema may be another one than what another program has written there.
    connection.execute("PRAGMA writable_schema = RESET")
    is_of_our_version = schema_version(connection) == SCHEMA_VERSION
    tables = (TABLE, *_SEALED[is_of_our_version])
    for kind, name, table in connection.execute("SELECT type, name, tbl_name FROM sqlite_schema").fetchall():
        # One of ours goes with its table when that gets another name.
        if kind == "trigger" and (table in tables or name.startswith(tuple(f"{TABLE}_{each}_" for each in tables))):
            quoted = name.replace('"', '""')
            connection.execute(f'DROP TRIGGER "{quoted}"')
    present = tuple(name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'"))
    for statement in _triggers_of(present, is_of_our_version):
        connection.execute(statement)


class SealedFile(Protocol):
    """What the seal needs of the writer of its file."""

    def read_account(self) -> Account | None: ...

    def transaction(self) -> AbstractContextManager[sqlite3.Connection]: ...


class SqliteSeal:
    """fleetlight.indexer.backends.seal.Seal. A breach is what the two counts differ by, so it needs no saving."""

    def __init__(self, writer: SealedFile, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock
        self.held_at = 0
        self._found: Breach | None = None

    def check(self, are_right: AreRight, tolerance_s: float) -> Breach | None:
        """A killed writer has written nothing, and none is late: nobody is asked, and nothing waited for."""
        looked_at = self._clock()
        account = self._writer.read_account()
        if account is not None and not account.unaccounted:
            self._found = None
            self.held_at = looked_at
        elif self._found is None or account is None or account.unaccounted != self._found.mark:
            self._found = self._find()
        return self._found

    def _find(self) -> Breach:
        """Seal all tables: what is written from here on is another breach."""
        with self._writer.transaction() as connection:
            if (account := read_account(connection)) is None:
                # A transaction that finds none leaves one of a single change that is not accounted for.
                make_seal(connection, is_broken=True)
                return Breach(f"{TABLE}-lost", REASON, None, 1)
            seal_tables(connection)
        return Breach(str(account.changes), REASON, None, account.unaccounted)

    def mend(self, breach: Breach) -> None:
        """What another program has changed since the breach was found stays one."""
        if breach == self._found:
            with self._writer.transaction() as connection:
                connection.execute(_ACCOUNT, (breach.mark,))
            self._found = None
