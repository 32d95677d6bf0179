"""Accounts on PostgreSQL: who may change which tables of a fleet.

Tables are made by `fleetlight database upgrade`, and belong to whoever runs that; the same account makes these.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import psycopg
from psycopg import sql
from sqlalchemy import Engine

from cells.database import translated_failures, writing

Writes = Callable[[Collection[str]], Collection[str]]
"""Which of the tables that there are a process changes; it can read them all."""


def only(*names: str) -> Writes:
    return set(names).intersection


def all_but(*names: str) -> Writes:
    return lambda tables: set(tables).difference(names, {"alembic_version"})


# Nobody but the owner of the databases says which cells there are.
_SERVING = (all_but("cells", "failures"), all_but())

ACCOUNTS: Mapping[str, tuple[Writes, Writes]] = {
    # It takes orders, and puts them into a cell together with what they change at once.
    "api": _SERVING,
    "indexer": (only("failures"), only()),
    "relay": (only(), only("changes", "cell_state", "incarnations")),
    "worker": _SERVING,
}
"""Per process what it writes of the fleet database, and of the databases of the cells."""


def grant(engine: Engine, role: str, password: str, writes: Writes, unreachable: Callable[[str], Exception]) -> None:
    """Let `role` into the PostgreSQL database behind `engine`; where there is no such role it is made.

    It has this password afterwards, can read all tables that there are, and change those that `writes` names; what it
    could do before is taken away. Can be repeated, and has to be when there are new tables.
    unreachable: makes the error that is raised when the server fails or refuses something, from its words.
    """
    with translated_failures(unreachable), writing(engine) as transaction:
        connection: Any = transaction.connection.driver_connection
        try:
            _make(connection, role, password)
            for statement in _grants(connection, role, writes):
                connection.execute(statement)
        except psycopg.Error as error:
            raise unreachable(str(error).strip().splitlines()[0]) from error


def _make(connection: psycopg.Connection, role: str, password: str) -> None:
    found = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,)).fetchone()
    # Hashed here: the server may log its statements.
    verifier = connection.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256").decode()
    verb = sql.SQL("ALTER" if found else "CREATE")
    connection.execute(
        sql.SQL("{} ROLE {} LOGIN PASSWORD {}").format(verb, sql.Identifier(role), sql.Literal(verifier))
    )


def _grants(connection: psycopg.Connection, role: str, writes: Writes) -> Iterator[sql.Composed]:
    [(database, schema)] = connection.execute("SELECT current_database(), current_schema()").fetchall()
    names = {"role": sql.Identifier(role), "database": sql.Identifier(database), "schema": sql.Identifier(schema)}
    yield sql.SQL("GRANT CONNECT ON DATABASE {database} TO {role}").format(**names)
    yield sql.SQL("GRANT USAGE ON SCHEMA {schema} TO {role}").format(**names)
    for kind in ("TABLES", "SEQUENCES"):
        revoke = sql.SQL("REVOKE ALL ON ALL {kind} IN SCHEMA {schema} FROM {role}")
        yield revoke.format(kind=sql.SQL(kind), **names)
    yield sql.SQL("GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}").format(**names)
    found = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
    written = sorted(writes([table for (table,) in found]))
    if written:
        tables = sql.SQL(", ").join(map(sql.Identifier, written))
        yield sql.SQL("GRANT INSERT, UPDATE, DELETE ON {tables} TO {role}").format(tables=tables, **names)
        yield sql.SQL("GRANT USAGE ON ALL SEQUENCES IN SCHEMA {schema} TO {role}").format(**names)
