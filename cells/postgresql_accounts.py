"""Accounts on PostgreSQL, and which tables of a fleet each may change.

The account that runs `fleetlight database upgrade` owns the tables, and creates these accounts.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString

import psycopg
from psycopg import sql
from sqlalchemy import Engine, Table

from fleetlight.cells import tables
from fleetlight.cells.database.engines import reason_of, translated_failures, writing
from fleetlight.cells.fleet import tables as fleet_tables

_SEQUENCES = """
    SELECT sequence.relname
    FROM pg_class AS sequence
    JOIN pg_depend AS belongs ON belongs.objid = sequence.oid AND belongs.deptype IN ('a', 'i')
    JOIN pg_class AS owner ON owner.oid = belongs.refobjid
    WHERE sequence.relkind = 'S' AND owner.relname = ANY(%s) AND owner.relnamespace = current_schema()::regnamespace
    ORDER BY sequence.relname
"""
"""Selects the sequences that number the rows of some tables."""
_ALL: Sequence[LiteralString] = ("INSERT", "UPDATE", "DELETE")


@dataclass(frozen=True, slots=True)
class May:
    """The rights of an account to the rows of a table. To lock a row for a while takes the right to update it.

    but: columns that the account must not set in a new row.
    """

    table: Table
    verbs: Sequence[LiteralString] = _ALL
    but: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class TableRights:
    """The rights of an account in one database: to change some tables, and to read all except `hidden`."""

    changes: Sequence[May] = ()
    hidden: Collection[Table] = ()


# Whole messages about any instance: only indexers, which store them, may read them.
_FAILURES = (fleet_tables.failures, fleet_tables.dropped_failures)
_MESSAGES = (*_FAILURES, fleet_tables.announced_instances)
_HIDDEN = (*_MESSAGES, fleet_tables.journal_entries)
# An account that reads these can sign messages as the relay of any cell, or as any producer.
_KEYS = (fleet_tables.cell_keys, fleet_tables.producer_keys)
# An account that reads secrets can send events to targets as a deliverer. Failed deliveries contain whole events.
_SECRETS = (fleet_tables.subscription_secrets,)
_EVENTS = (*_SECRETS, fleet_tables.subscription_failures)
# Only the relay numbers changes, marks them as published, and prunes old ones.
_ANNOUNCE = May(tables.changes, ("INSERT",), but=("sequence", "published_at"))
_ACT = (
    May(tables.instances, ("INSERT", "UPDATE")),
    _ANNOUNCE,
    May(tables.allocations),
    May(tables.node_traits),
    May(tables.jobs),
    May(tables.job_operations),
    May(tables.job_log),
    May(tables.job_dependencies),
    May(tables.job_locks),
    May(tables.compute_nodes, ("UPDATE", "DELETE")),
    May(tables.services, ("UPDATE", "DELETE")),
    May(tables.instance_actions, ("INSERT", "UPDATE")),
    May(tables.instance_action_events, ("INSERT", "UPDATE")),
    May(tables.migrations, ("INSERT", "UPDATE")),
)

# Tables that jobs of Ganeti's operations change, beside those of instances.
_CONFIGURE = (
    May(tables.node_groups),
    May(tables.networks),
    May(tables.network_connections),
    May(tables.network_nics),
    May(tables.nic_macs),
    May(tables.reservation_expiries),
    May(tables.observed_statuses),
    May(tables.periodic_jobs, ("UPDATE",)),
    May(tables.cluster_parameters, ("UPDATE",)),
)

ACCOUNTS: Mapping[str, tuple[TableRights, TableRights]] = {
    # An API queues jobs in a cell, together with the first changes of each.
    "api": (
        TableRights(
            (
                May(fleet_tables.instance_mappings, ("INSERT", "UPDATE")),
                May(fleet_tables.flavors),
                May(fleet_tables.flavor_access),
                May(fleet_tables.keypairs),
                May(fleet_tables.quota_limits),
                May(fleet_tables.quota_classes),
                May(fleet_tables.server_groups),
                May(fleet_tables.server_group_members),
                May(fleet_tables.saved_views),
                May(fleet_tables.ended_sessions, ("INSERT", "DELETE")),
                May(fleet_tables.bulk_changes),
                May(fleet_tables.bulk_items),
                May(fleet_tables.subscriptions),
                May(fleet_tables.subscription_secrets, ("INSERT",)),
                May(fleet_tables.subscription_failures),
                May(fleet_tables.known_hosts, ("INSERT", "DELETE")),
                May(fleet_tables.aggregates),
                May(fleet_tables.aggregate_hosts),
                May(fleet_tables.recent_changes, ("INSERT", "DELETE")),
                May(fleet_tables.listening_processes),
                # Administrators drop failures; other work on the index is ordered.
                May(fleet_tables.failures, ("DELETE",)),
                May(fleet_tables.index_work),
            ),
            # Its lists show announced instances.
            hidden=(*_KEYS, *_SECRETS),
        ),
        TableRights((*_ACT, May(tables.job_filters))),
    ),
    "indexer": (
        TableRights(
            (
                *map(May, _MESSAGES),
                May(fleet_tables.journals),
                May(fleet_tables.journal_entries),
                # For `index verify --repair`.
                May(fleet_tables.instance_mappings, ("INSERT", "UPDATE")),
                # Commands record the work that they do themselves.
                May(fleet_tables.index_work),
                May(fleet_tables.audit_rounds, ("INSERT", "UPDATE")),
                May(fleet_tables.restored_cells, ("INSERT",)),
            ),
            hidden=_EVENTS,
        ),
        TableRights(),
    ),
    # A deliverer reads the feed of changes, as an API does.
    "deliverer": (
        TableRights(
            (
                May(fleet_tables.subscriptions, ("UPDATE",)),
                May(fleet_tables.subscription_positions),
                May(fleet_tables.subscription_failures),
            ),
            hidden=(*_MESSAGES, *_KEYS),
        ),
        TableRights(),
    ),
    "relay": (
        TableRights(hidden=(*_HIDDEN, *_EVENTS, fleet_tables.producer_keys)),
        TableRights(
            (
                May(tables.changes, ("UPDATE", "DELETE")),
                May(tables.cell_state, ("UPDATE",)),
                May(tables.epochs, ("INSERT", "DELETE")),
            )
        ),
    ),
    "worker": (
        TableRights(
            (
                May(fleet_tables.instance_mappings, ("INSERT", "UPDATE")),
                May(fleet_tables.compared_mappings, ("INSERT", "UPDATE")),
            ),
            hidden=(*_HIDDEN, *_EVENTS, *_KEYS),
        ),
        TableRights((*_ACT, *_CONFIGURE)),
    ),
}
"""By process, its rights in the fleet database, and in the databases of the cells."""


_HAS_RIGHTS = """
    SELECT 1 FROM information_schema.role_table_grants
    WHERE grantee = %s AND table_schema = current_schema() LIMIT 1
"""


def has_rights(engine: Engine, role: str, unreachable: Callable[[str], Exception]) -> bool:
    """Whether `role` has rights in the PostgreSQL database behind `engine`. unreachable: as for `grant`."""
    with translated_failures(unreachable), engine.connect() as opened:
        connection: Any = opened.connection.driver_connection
        return connection.execute(_HAS_RIGHTS, (role,)).fetchone() is not None


def grant(
    engine: Engine, role: str, password: str | None, rights: TableRights, unreachable: Callable[[str], Exception]
) -> None:
    """Give `role` exactly these rights in the PostgreSQL database behind `engine`, and create it if it is missing.

    The rights cover existing tables, so repeat this after new tables are created. password: of the role from now on;
    None for an existing role, which keeps its own. unreachable: makes the error to raise if the server fails or
    refuses, from the server's message.
    """
    with translated_failures(unreachable), writing(engine) as transaction:
        connection: Any = transaction.connection.driver_connection
        try:
            if password is not None:
                _make(connection, role, password, unreachable)
            for statement in _grants(connection, role, rights):
                connection.execute(statement)
        except psycopg.Error as error:
            raise unreachable(reason_of(error)) from error


def _make(connection: psycopg.Connection, role: str, password: str, unreachable: Callable[[str], Exception]) -> None:
    found = connection.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (role,)).fetchone()
    # Hash it here, since the server may log its statements.
    verifier = connection.pgconn.encrypt_password(password.encode(), role.encode(), b"scram-sha-256").decode()
    verb = sql.SQL("ALTER" if found else "CREATE")
    statement = sql.SQL("{} ROLE {} LOGIN PASSWORD {}").format(verb, sql.Identifier(role), sql.Literal(verifier))
    try:
        connection.execute(statement)
    except psycopg.errors.InsufficientPrivilege as error:
        # The remedy of `reason_of` would be wrong: an owner of the databases may lack this right, too.
        raise unreachable(
            f"{error.diag.message_primary}; accounts are made by the owner of the databases, which needs CREATEROLE "
            f"for it: {connection.info.user} is no owner, or lacks it (`ALTER ROLE {connection.info.user} CREATEROLE`)"
        ) from error


def _grants(connection: psycopg.Connection, role: str, rights: TableRights) -> Iterator[sql.Composed]:
    [(database, schema)] = connection.execute("SELECT current_database(), current_schema()").fetchall()
    names = {"role": sql.Identifier(role), "database": sql.Identifier(database), "schema": sql.Identifier(schema)}
    yield sql.SQL("GRANT CONNECT ON DATABASE {database} TO {role}").format(**names)
    yield sql.SQL("GRANT USAGE ON SCHEMA {schema} TO {role}").format(**names)
    # Rights to single columns go with those to the table.
    for kind in ("TABLES", "SEQUENCES"):
        revoke = sql.SQL("REVOKE ALL ON ALL {kind} IN SCHEMA {schema} FROM {role}")
        yield revoke.format(kind=sql.SQL(kind), **names)
    yield sql.SQL("GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}").format(**names)
    for table in rights.hidden:
        yield sql.SQL("REVOKE SELECT ON {table} FROM {role}").format(table=sql.Identifier(table.name), **names)
    for may in rights.changes:
        for verb in may.verbs:
            yield sql.SQL("GRANT {verb} ON {table} TO {role}").format(
                verb=_verb(may, verb), table=sql.Identifier(may.table.name), **names
            )
    inserted = [may.table.name for may in rights.changes if "INSERT" in may.verbs]
    for (sequence,) in connection.execute(_SEQUENCES, (inserted,)).fetchall():
        yield sql.SQL("GRANT USAGE ON SEQUENCE {sequence} TO {role}").format(sequence=sql.Identifier(sequence), **names)


def _verb(may: May, verb: LiteralString) -> sql.Composable:
    if verb != "INSERT" or not may.but:
        return sql.SQL(verb)
    columns = [sql.Identifier(column.name) for column in may.table.columns if column.name not in may.but]
    return sql.SQL("INSERT ({columns})").format(columns=sql.SQL(", ").join(columns))
