"""Journal of executed changing calls, so that none is carried out twice (docs/decisions/0022)."""

import hashlib
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fleetlight.manager.agents.database import AgentDatabase
from fleetlight.manager.agents.errors import CallRefusedError

# Entries of days on a busy host, while a worker repeats a call within minutes.
_KEPT = 100_000
# The longest delay of a worker between reading a job and its call.
_HELD_UP_S = 3600.0
_TABLES = (
    "CREATE TABLE IF NOT EXISTS done_calls "
    "(number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, digest TEXT NOT NULL, payload TEXT NOT NULL)",
    "CREATE TABLE IF NOT EXISTS begun_orders "
    "(number INTEGER PRIMARY KEY, instance TEXT NOT NULL UNIQUE, highest INTEGER NOT NULL, begun_at REAL NOT NULL)",
)


@dataclass(frozen=True, slots=True)
class Done:
    """An executed call with its answer."""

    payload: Any


class Journal:
    """The journal, in the agent's database, so that a driver with its guests there changes both in one transaction."""

    def __init__(self, database: AgentDatabase) -> None:
        self._database = database
        with database.transaction() as connection:
            for table in _TABLES:
                connection.execute(table)

    def find(self, key: str, name: str, arguments: Mapping[str, Any]) -> Done | None:
        """Find the executed call with a key. Raises CallRefusedError if name or arguments differ."""
        with self._database.transaction() as connection:
            row = connection.execute("SELECT digest, payload FROM done_calls WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        if row[0] != _digest(name, arguments):
            raise CallRefusedError(f"the key '{key}' belongs to another call that was made before")
        return Done(json.loads(row[1]))

    def begin(self, instance: str, order: int) -> None:
        """Note that a call of `order` begins on an instance; forgets the oldest of too many instances.

        Raises CallRefusedError if a call of a higher order came recently: then a delayed worker sends a call that was
        given up meanwhile, such as for a guest that is deleted by now. Much later, a lower order comes from a restored
        cell.
        """
        now = time.time()
        with self._database.transaction() as connection:
            row = connection.execute(
                "SELECT highest FROM begun_orders WHERE instance = ? AND begun_at > ?", (instance, now - _HELD_UP_S)
            ).fetchone()
            if row is not None and row[0] > order:
                raise CallRefusedError(f"something else was asked for on instance '{instance}' since: this is too late")
            number = connection.execute(
                "INSERT OR REPLACE INTO begun_orders (instance, highest, begun_at) VALUES (?, ?, ?)",
                (instance, order, now),
            ).lastrowid
            connection.execute("DELETE FROM begun_orders WHERE number <= ?", ((number or 0) - _KEPT,))

    def add(self, key: str, name: str, arguments: Mapping[str, Any], payload: Any) -> None:
        """Record an executed call; forgets the oldest of too many."""
        with self._database.transaction() as connection:
            number = connection.execute(
                "INSERT INTO done_calls (key, digest, payload) VALUES (?, ?, ?)",
                (key, _digest(name, arguments), json.dumps(payload)),
            ).lastrowid
            connection.execute("DELETE FROM done_calls WHERE number <= ?", ((number or 0) - _KEPT,))


def _digest(name: str, arguments: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps([name, arguments], sort_keys=True).encode()).hexdigest()
