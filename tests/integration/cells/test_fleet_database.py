"""What a fleet database on PostgreSQL says that is away, and one that cannot be used."""

import os
import socket
from collections.abc import Callable

import psycopg
import pytest
from sqlalchemy import Engine
from sqlalchemy.engine import URL, make_url

from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.errors import FleetUnreachableError, FleetUnusableError
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.nova_db.databases import open_nova_database
from tests.integration.test_up import free_port

pytestmark = pytest.mark.postgresql


def problem_of(url: URL) -> FleetUnreachableError:
    fleet = Fleet(create_database_engine(url.render_as_string(hide_password=False)))
    with pytest.raises(FleetUnreachableError) as caught:
        fleet.cells()
    fleet.close()
    return caught.value


def test_database_that_cannot_be_used_says_what_would_be_right(postgresql_database: str) -> None:
    url = make_url(postgresql_database)
    wrong = {
        url: 'relation "cells" does not exist; `fleetlight database upgrade` brings its tables to this version',
        url.set(database="no-such"): "does not exist; see fleet.database_url; in a new database "
        "`fleetlight database upgrade` makes the tables",
        url.set(query={"no_such": "option"}): "see fleet.database_url",
    }
    for address, problem in wrong.items():
        found = problem_of(address)
        assert isinstance(found, FleetUnusableError)
        assert str(found).startswith("the fleet database cannot be used: ")
        assert str(found).endswith(problem)


def test_refusal_is_known_by_its_code_in_whatever_language_the_server_speaks(
    postgresql_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetlight.cells.fleet.database._REMEDIES", {})
    monkeypatch.setattr("fleetlight.cells.database.refused_logins._looked_at_s", float("-inf"))
    nowhere = make_url(postgresql_database).set(database="no-such")
    assert isinstance(problem_of(nowhere), FleetUnusableError)
    assert type(problem_of(nowhere)) is FleetUnreachableError, "it is not looked each time, since that costs memory"


def test_server_that_refuses_for_a_while_is_waited_for(
    postgresql_url: str, postgresql_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetlight.cells.database.refused_logins._looked_at_s", float("-inf"))
    name = make_url(postgresql_database).database
    with psycopg.connect(
        make_url(postgresql_url).set(drivername="postgresql").render_as_string(hide_password=False),
        autocommit=True,
    ) as connection:
        connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
        found = problem_of(make_url(postgresql_database))
        connection.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
    assert type(found) is FleetUnreachableError


def test_database_that_is_away_may_come_back(postgresql_database: str) -> None:
    assert type(problem_of(make_url(postgresql_database).set(port=free_port()))) is FleetUnreachableError


@pytest.mark.parametrize("create", [create_database_engine, open_nova_database])
def test_server_that_vanishes_in_the_middle_of_a_question_is_not_waited_for_long(
    postgresql_database: str, create: Callable[[str], Engine]
) -> None:
    """No keepalives are sent while something was not received, which TCP goes on to send for a quarter of an hour."""
    engine = create(postgresql_database)
    with engine.connect() as connection, socket.socket(fileno=os.dup(connection.connection.fileno())) as of_server:
        assert 0 < of_server.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 30_000
    engine.dispose()
