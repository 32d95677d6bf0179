"""Connections to the fleet database, for everything that keeps something there."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from sqlalchemy import Connection, Engine

from cells.database import translated_failures, writing
from cells.errors import FleetUnreachableError


@dataclass(frozen=True, slots=True)
class FleetDatabase:
    """Both kinds of connection raise FleetUnreachableError when the database does not answer."""

    engine: Engine

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        with translated_failures(FleetUnreachableError), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction, which commits at the end."""
        with translated_failures(FleetUnreachableError), writing(self.engine) as connection:
            yield connection
