"""Locks of databases, which end with their process: PostgreSQL's advisory locks, and files beside a SQLite database.

Locks that are held for long are leases (fleetlight.cells.database.leases); this module has what these share with the
locks of a fleet.
"""

import hashlib
from pathlib import Path
from urllib.parse import unquote

from sqlalchemy import Connection, Engine, text


def lock_path(engine: Engine, name: str) -> Path:
    """The lock file named `name` beside a SQLite database."""
    database = str(engine.url.database)
    if "uri" in engine.url.query:  # the form for a file that must exist (fleetlight.cells.database.engines)
        database = unquote(database.removeprefix("file:"))
    return Path(f"{database}.{name}.lock")


def advisory_key(name: str) -> int:
    """The key of the PostgreSQL lock named `name`: a signed number of 64 bits."""
    return int.from_bytes(hashlib.sha256(f"fleetlight {name}".encode()).digest()[:8], signed=True)


def wait_for_lock(connection: Connection, name: str) -> None:
    """Take the lock named `name` until the transaction ends; a SQLite transaction excludes other writers anyway."""
    if connection.dialect.name != "sqlite":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": advisory_key(name)})
