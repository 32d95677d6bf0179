"""The seal of the SQLite index: what its triggers count, compared with what our writers account for.

A trigger counts each change of a row, by any program including the `sqlite3` shell. SQLite itself counts changes of the
schema, such as dropping a trigger or a table, but not direct writes to the schema's table (`PRAGMA writable_schema`);
so this also checks that all triggers exist. Each of our writers, within its transaction, when no other program can
write, adds its count to what is accounted for. So in each transaction the two are equal, unless another program writes.

The seal does not show if a file is copied over one that is open, part of which SQLite still has in its log, nor changes
by a program that forges the count or turns triggers off for itself.
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
# By whether the file has our version. In a file of another version only the next generation is sealed: the rest
# belongs to another program.
_SEALED = {True: _TABLES, False: _NEXT_TABLES}
# Without NOT NULL, for the reason in fleetlight.indexer.backends.sqlite.schema.
_CREATE = f"CREATE TABLE {TABLE} (changed INTEGER, accounted INTEGER) STRICT"
_READ = f"SELECT changed + schema_version, accounted FROM {TABLE}, pragma_schema_version"  # noqa: S608
# The names of tables, with the statements of their triggers.
_SCHEMA = (
    "SELECT tbl_name, CASE type WHEN 'trigger' THEN sql END FROM sqlite_schema WHERE type IN ('table', 'trigger') "
    "ORDER BY name"
)
_EVENTS = ("DELETE", "INSERT", "UPDATE")
_COUNT = f"UPDATE {TABLE} SET changed = changed + 1"  # noqa: S608
_ACCOUNT = f"UPDATE {TABLE} SET accounted = accounted + ?"  # noqa: S608


@dataclass(frozen=True, slots=True)
class Account:
    """changes: of rows and of the schema, plus one while triggers are missing. accounted: those by our writers, and
    mended ones.

    SQLite's own way to copy a file changes the schema version, so a copy is compared with the cells, too.
    """

    changes: int
    accounted: int

    @property
    def unaccounted(self) -> int:
        return self.changes - self.accounted


def read_account(connection: sqlite3.Connection) -> Account | None:
    """The account as of the transaction; None without a seal, as in a file of another version."""
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
    """The statements that create the triggers of these tables."""
    return frozenset(
        f"CREATE TRIGGER {TABLE}_{table}_{event} AFTER {event} ON {table} BEGIN {_COUNT}; END"
        for table in _SEALED[is_of_our_version]
        if table in tables
        for event in _EVENTS
    )


def account_for(connection: sqlite3.Connection, before: Account | None) -> int:
    """Account for the changes of this transaction, which began with `before`. Returns the new total."""
    if (after := read_account(connection)) is None:
        return 0
    made = after.changes - (0 if before is None else before.changes)
    if made:
        connection.execute(_ACCOUNT, (made,))
    return after.accounted + made


def require_sealed(account: Account | None, accounted: int) -> None:
    """Raises IndexUnsealedError if another program has written, or if this file is an older copy."""
    if account is None or account.unaccounted:
        raise IndexUnsealedError(REASON)
    if account.accounted < accounted:
        raise IndexUnsealedError("an older copy of the index was put in its place")


def make_seal(connection: sqlite3.Connection, *, is_broken: bool) -> None:
    """Create a missing seal, and seal all tables. is_broken: other programs may have written their rows."""
    if read_account(connection) is None:
        connection.execute(f"DROP TABLE IF EXISTS {TABLE}")
        connection.execute(_CREATE)
        connection.execute(f"INSERT INTO {TABLE} VALUES (0, ?)", (-1 if is_broken else 0,))  # noqa: S608
    seal_tables(connection)


def seal_tables(connection: sqlite3.Connection) -> None:
    """Give each existing table its triggers, and remove all others."""
    # The connection's copy of the schema may differ from what another program has written to the file.
    connection.execute("PRAGMA writable_schema = RESET")
    is_of_our_version = schema_version(connection) == SCHEMA_VERSION
    tables = (TABLE, *_SEALED[is_of_our_version])
    for kind, name, table in connection.execute("SELECT type, name, tbl_name FROM sqlite_schema").fetchall():
        # Our triggers stay with their table when it is renamed.
        if kind == "trigger" and (table in tables or name.startswith(tuple(f"{TABLE}_{each}_" for each in tables))):
            quoted = name.replace('"', '""')
            connection.execute(f'DROP TRIGGER "{quoted}"')
    present = tuple(name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'"))
    for statement in _triggers_of(present, is_of_our_version):
        connection.execute(statement)


class SealedFile(Protocol):
    """The part of the file's writer that the seal uses."""

    def read_account(self) -> Account | None: ...

    def transaction(self) -> AbstractContextManager[sqlite3.Connection]: ...


class SqliteSeal:
    """fleetlight.indexer.backends.seal.Seal. A breach is the difference of two counts, so it need not be saved."""

    def __init__(self, writer: SealedFile, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock
        self.held_at = 0
        self._found: Breach | None = None

    def check(self, are_right: AreRight, tolerance_s: float) -> Breach | None:
        """Compare the counts. The arguments are not used, since transactions leave no write unaccounted for or late."""
        looked_at = self._clock()
        account = self._writer.read_account()
        if account is not None and not account.unaccounted:
            self._found = None
            self.held_at = looked_at
        elif self._found is None or account is None or account.unaccounted != self._found.mark:
            self._found = self._find()
        return self._found

    def _find(self) -> Breach:
        """Seal all tables, so that later changes count as another breach."""
        with self._writer.transaction() as connection:
            if (account := read_account(connection)) is None:
                # The new seal begins with one change that is not accounted for.
                make_seal(connection, is_broken=True)
                return Breach(f"{TABLE}-lost", REASON, None, 1)
            seal_tables(connection)
        return Breach(str(account.changes), REASON, None, account.unaccounted)

    def mend(self, breach: Breach) -> None:
        """Account for the breach; changes by other programs since it was found remain one."""
        if breach == self._found:
            with self._writer.transaction() as connection:
                connection.execute(_ACCOUNT, (breach.mark,))
            self._found = None
