"""Records the statements that a connection executes."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, event

Statement = Mapping[str, Any]
"""A statement: `sql`, and its `values`."""


@contextmanager
def recorded_statements(connection: Connection) -> Iterator[Sequence[Statement]]:
    """Yield a list of the statements that `connection` executes during the block, in order."""
    found: list[Statement] = []

    def record(_connection: Any, _cursor: Any, sql: str, values: Any, *_more: Any) -> None:
        # Not the statement that begins a SQLite transaction (fleetlight.cells.database.engines).
        if sql == "BEGIN":
            return
        found.append({"sql": sql, "values": dict(values) if isinstance(values, Mapping) else list(values)})

    event.listen(connection, "before_cursor_execute", record)
    try:
        yield found
    finally:
        event.remove(connection, "before_cursor_execute", record)
