"""Connections to servers of Nova's databases, each of which may end while nobody uses it."""

import os
import socket
from typing import Any
from uuid import uuid4

import pytest
import sqlalchemy as sa

from fleetlight.cells.kinds.nova_db.databases import open_nova_database, parse_nova_url, read


@pytest.fixture(
    params=[
        pytest.param("postgresql_url", marks=pytest.mark.postgresql),
        pytest.param("mariadb_url", marks=pytest.mark.mariadb),
    ]
)
def server_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


def test_connection_that_ended_is_replaced_without_trying_it_before_each_question(server_url: str) -> None:
    engine = open_nova_database(server_url)
    ended = read(engine, number_of)
    end(server_url, ended)
    assert read(engine, number_of) != ended
    engine.dispose()


def test_what_the_server_refuses_is_not_asked_again(server_url: str) -> None:
    engine = open_nova_database(server_url)
    asked = []

    def question(connection: sa.Connection) -> None:
        asked.append(connection)
        connection.execute(sa.text("SELECT nonsense"))

    with pytest.raises(sa.exc.DBAPIError):
        read(engine, question)
    assert len(asked) == 1
    engine.dispose()


def test_what_is_read_at_one_moment_is_read_in_a_transaction_that_ends(server_url: str) -> None:
    """Also where sessions begin with another isolation, and where a statement has failed before."""
    engine = open_nova_database(server_url, pool_size=1)
    owner = sa.create_engine(parse_nova_url(server_url), isolation_level="AUTOCOMMIT")
    rows = sa.Table(f"moments_{uuid4().hex}", sa.MetaData(), sa.Column("number", sa.Integer))
    number = sa.select(rows.c.number)
    with owner.connect() as writer:
        rows.create(writer)
        writer.execute(sa.insert(rows).values(number=0))

        def twice(connection: sa.Connection) -> bool:
            before = connection.execute(number).scalar_one()
            writer.execute(sa.update(rows).values(number=rows.c.number + 1))
            return bool(connection.execute(number).scalar_one() == before)

        def fails(connection: sa.Connection) -> None:
            connection.execute(sa.text("SELECT nonsense"))

        try:
            for at_one_moment in (False, True, False):
                assert read(engine, twice, at_one_moment=at_one_moment) is at_one_moment
                with pytest.raises(sa.exc.DBAPIError):
                    read(engine, fails, at_one_moment=at_one_moment)
        finally:
            engine.dispose()
            rows.drop(writer)
    owner.dispose()


def test_server_that_vanishes_is_not_waited_for_long(server_url: str) -> None:
    """Neither in the middle of a question nor before its answer: by itself TCP waits for hours, or for ever."""
    engine = open_nova_database(server_url)
    with engine.connect() as connection, socket.socket(fileno=os.dup(descriptor_of(connection))) as of_server:
        assert of_server.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        for option, limit in ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_USER_TIMEOUT, 30_000)):
            assert 0 < of_server.getsockopt(socket.IPPROTO_TCP, option) <= limit
    engine.dispose()


@pytest.mark.mariadb
def test_server_that_is_there_and_silent_is_given_up(mariadb_url: str) -> None:
    """Also where no limit is told for a statement, as by indexers; for PostgreSQL see test_hung_databases."""
    engine = open_nova_database(mariadb_url)
    with engine.connect() as connection:
        opened: Any = connection.connection.driver_connection
        assert 0 < opened._sock.gettimeout() <= 120
    engine.dispose()


@pytest.mark.postgresql
def test_plan_is_made_for_the_limit_that_is_asked_for_however_often_the_statement_was_asked(
    postgresql_url: str,
) -> None:
    engine = open_nova_database(postgresql_url)
    page = sa.text("SELECT oid FROM pg_class ORDER BY oid LIMIT :limit")
    with engine.connect() as connection:
        for _ in range(20):
            connection.execute(page, {"limit": 1000}).all()
        found = connection.execute(
            sa.text(
                "SELECT sum(custom_plans) AS custom, sum(generic_plans) AS generic FROM pg_prepared_statements"
                " WHERE statement LIKE 'SELECT oid FROM pg_class%'"
            )
        ).one()
    assert found.custom > 10
    assert found.generic == 0
    engine.dispose()


def descriptor_of(connection: sa.Connection) -> int:
    driver: Any = connection.connection.driver_connection
    return int(driver.fileno() if connection.dialect.name == "postgresql" else driver._sock.fileno())


def number_of(connection: sa.Connection) -> int:
    function = "pg_backend_pid()" if connection.dialect.name == "postgresql" else "connection_id()"
    return int(connection.execute(sa.text(f"SELECT {function}")).scalar_one())


def end(server_url: str, number: int) -> None:
    """The connection with that number, as a server does that is started again."""
    engine = sa.create_engine(parse_nova_url(server_url), isolation_level="AUTOCOMMIT")
    is_postgresql = engine.dialect.name == "postgresql"
    how = f"SELECT pg_terminate_backend({number}, 60000)" if is_postgresql else f"KILL {number}"
    with engine.connect() as connection:
        connection.execute(sa.text(how))
    engine.dispose()
