"""A place of its own for each test on the shared real servers, removed when the test ends."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from uuid import uuid4

import kombu
import psycopg
import pytest
from psycopg import sql
from sqlalchemy.engine import make_url

from fleetlight.bus import topology
from tests.support.servers.index_server import index_client
from tests.support.session.requirements import ELASTICSEARCH, POSTGRESQL, RABBITMQ, SAMPLES, Requirement

# Names that a killed run left behind can be recognised by it.
_PREFIX = "fleetlight-test"


def _located(requirement: Requirement) -> str:
    found = requirement.locate()
    if found is None:
        pytest.fail(
            f"this test needs {requirement.title}: set {requirement.variable}, or mark the parameter that leads here"
            f" with pytest.mark.{requirement.marker} so that it is left out where there is none"
        )
    return found


@pytest.fixture(scope="session")
def samples_dir() -> Path:
    """Folder of third-party samples; `nova/notifications/*.json` is in it."""
    return Path(_located(SAMPLES))


@pytest.fixture(scope="session")
def elasticsearch_url() -> str:
    return _located(ELASTICSEARCH)


@pytest.fixture(scope="session")
def amqp_url() -> str:
    return _located(RABBITMQ)


@pytest.fixture(scope="session")
def postgresql_url() -> str:
    """URL of the maintenance database; tests make their own with `postgresql_database`."""
    return _located(POSTGRESQL)


@pytest.fixture
def elasticsearch_prefix(elasticsearch_url: str) -> Iterator[str]:
    """Start of every index name that the test may use; what begins with it is deleted afterwards."""
    with own_prefix(elasticsearch_url) as prefix:
        yield prefix


@contextmanager
def own_prefix(elasticsearch_url: str) -> Iterator[str]:
    """As the fixture `elasticsearch_prefix`, for fixtures of a wider scope."""
    prefix = f"{_PREFIX}-{uuid4().hex}-"
    try:
        yield prefix
    finally:
        with index_client(elasticsearch_url, request_timeout=30) as client:
            # The server refuses to delete by wildcard, so the names are looked up first.
            names = list(client.indices.get(index=f"{prefix}*", expand_wildcards="all").body)
            if names:
                client.indices.delete(index=names)


@pytest.fixture
def new_postgresql_database(postgresql_url: str) -> Iterator[Callable[[], str]]:
    """A function that makes an empty database and returns its SQLAlchemy URL."""
    with new_databases(postgresql_url) as make:
        yield make


@contextmanager
def new_databases(postgresql_url: str) -> Iterator[Callable[[], str]]:
    """As the fixture `new_postgresql_database`, for what is no test."""
    server = make_url(postgresql_url)
    dsn = server.set(drivername="postgresql").render_as_string(hide_password=False)
    with ExitStack() as databases:

        def make() -> str:
            name = f"{_PREFIX}-{uuid4().hex}".replace("-", "_")
            # Half the time of the other strategy, which spares what else the server does.
            _execute(dsn, sql.SQL("CREATE DATABASE {} STRATEGY FILE_COPY").format(sql.Identifier(name)))
            databases.callback(_execute, dsn, sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))
            return server.set(database=name).render_as_string(hide_password=False)

        yield make


@pytest.fixture
def postgresql_database(new_postgresql_database: Callable[[], str]) -> str:
    """SQLAlchemy URL of an empty database of the test's own."""
    return new_postgresql_database()


def _execute(dsn: str, statement: sql.Composed) -> None:
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(statement)


@pytest.fixture
def new_amqp_cell(amqp_url: str) -> Iterator[Callable[[], str]]:
    """A function that makes up a cell uuid; its exchanges and queues on the broker are deleted afterwards."""
    cells: list[str] = []

    def make() -> str:
        cells.append(str(uuid4()))
        return cells[-1]

    yield make
    with kombu.Connection(amqp_url) as connection, connection.channel() as channel:
        for cell in cells:
            # RabbitMQ answers a deletion of what is not there with success.
            for queue in (topology.work_queue_name(cell), topology.dead_name(cell)):
                channel.queue_delete(queue)
            for exchange in (topology.exchange_name(cell), topology.dead_name(cell)):
                channel.exchange_delete(exchange)


@pytest.fixture
def amqp_cell(new_amqp_cell: Callable[[], str]) -> str:
    """Uuid of a cell whose names nobody else uses on the broker."""
    return new_amqp_cell()
