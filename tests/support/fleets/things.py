"""A table of things that have a field of each kind, in a SQLite database in memory; their fields are in
tests.property.query_strategies.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    MetaData,
    Table,
    Text,
    create_engine,
    event,
)
from sqlalchemy.pool import StaticPool

from fleetlight.query.sqlite_functions import register_functions

THINGS = Table(
    "things",
    MetaData(),
    Column("uuid", Text, primary_key=True),
    Column("name", Text),
    Column("state", Text),
    Column("size", BigInteger),
    Column("load", Double),
    Column("created_at", BigInteger),
    Column("locked", Boolean),
    Column("tags", JSON, nullable=False),
    Column("addresses", JSON(none_as_null=True)),
)


@contextmanager
def connected_things() -> Iterator[Connection]:
    """A connection to a database with no thing in it."""
    engine = create_engine("sqlite://", poolclass=StaticPool)
    event.listen(engine, "connect", lambda dbapi_connection, _: register_functions(dbapi_connection))
    with engine.connect() as connection:
        THINGS.metadata.create_all(connection)
        yield connection
    engine.dispose()
