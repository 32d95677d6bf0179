"""Locks of databases, which die with their process: advisory locks of PostgreSQL, and files beside a SQLite database.

What is held for long is a lease (fleetlight.cells.database.leases); this is what leases and the locks of a fleet
share.
"""

import hashlib
from pathlib import Path
from urllib.parse import unquote

from sqlalchemy import Connection, Engine, text


def lock_path(engine: Engine, name: str) -> Path:
    """The file that stands for the lock called `name` of a SQLite database."""
    database = str(engine.url.database)
    if "uri" in engine.url.query:  # of a file that is not to be made (fleetlight.cells.database.engines)
        database = unquote(database.removeprefix("file:"))
    return Path(f"{database}.{name}.lock")


def advisory_key(name: str) -> int:
    """The key that stands for the lock called `name` of a PostgreSQL database: 64 bits with a sign."""
    return int.from_bytes(hashlib.sha256(f"fleetlight {name}".encode()).digest()[:8], signed=True)


def wait_for_lock(connection: Connection, name: str) -> None:
    """Take the lock called `name` until the transaction ends; on SQLite that one keeps every other writer out."""
    if connection.dialect.name != "sqlite":
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": advisory_key(name)})
