"""Record of the statements that a connection carries out."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, event

Statement = Mapping[str, Any]
"""`sql`, and its `values`."""


@contextmanager
def recorded_statements(connection: Connection) -> Iterator[Sequence[Statement]]:
    """The statements that are carried out on `connection` in the meantime, in their order."""
    found: list[Statement] = []

    def record(_connection: Any, _cursor: Any, sql: str, values: Any, *_more: Any) -> None:
        # A transaction of SQLite begins by a statement (fleetlight.cells.database.engines), which asks nothing.
        if sql == "BEGIN":
            return
        found.append({"sql": sql, "values": dict(values) if isinstance(values, Mapping) else list(values)})

    event.listen(connection, "before_cursor_execute", record)
    try:
        yield found
    finally:
        event.remove(connection, "before_cursor_execute", record)
