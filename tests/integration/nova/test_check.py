"""`fleetlight cell add-nova --check` says what each cell of a deployment can be, and changes nothing."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa

from fleetlight.cells.kinds.nova_db import tables
from scripts.servers.mariadb import MariaDB
from scripts.servers.private import PrivateServer, private_server
from tests.support.servers.logged_nova import LoggedNova, LoggingMariaDB
from tests.unit.cli.conftest import Run, empty_place, run

__all__ = ["empty_place", "run"]

pytestmark = [pytest.mark.own_servers, pytest.mark.mariadb, pytest.mark.no_rerun, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def logging_server() -> Iterator[PrivateServer]:
    with private_server(LoggingMariaDB()) as started:
        yield started


@pytest.fixture(scope="module")
def silent_server() -> Iterator[PrivateServer]:
    """It keeps no log, as MariaDB is packaged."""
    with private_server(MariaDB()) as started:
        yield started


def deployment(server: PrivateServer, cells: Sequence[str] = ("cell0", "cell1")) -> LoggedNova:
    made = LoggedNova(server, f"nova_{uuid4().hex[:8]}_")
    made.create(["api", *cells])
    with made.engine("api") as engine, engine.connect() as connection:
        for number, name in enumerate(cells):
            mapping = {"id": number + 1, "uuid": str(UUID(int=number)), "name": name}
            # Nova's own account, which is not used.
            address = made.url(name, "nova:secret")
            connection.execute(sa.insert(tables.cell_mappings).values(database_connection=address, **mapping))
    return made


def checked(run: Run, nova: LoggedNova, *options: str) -> tuple[int, dict[str, dict[str, Any]]]:
    result = run("cell", "add-nova", "--check", "--output=json", "--api-database-url", nova.url("api"), *options)
    assert "secret" not in result.output
    return result.exit_code, {each["name"]: each for each in json.loads(result.stdout)}


def test_every_cell_of_a_server_with_a_log_can_be_followed_by_it(run: Run, logging_server: PrivateServer) -> None:
    code, cells = checked(run, deployment(logging_server), "--prefix", "east-")
    assert code == 0
    assert cells.keys() == {"east-build-requests", "east-cell0", "east-cell1"}
    for each in cells.values():
        assert (each["readable"], each["followed_by"], each["reason"]) == (True, "log", None)
    assert not list(Path().iterdir()), "no fleet is made"


@pytest.mark.parametrize(
    ("statement", "mends"),
    [
        ("REVOKE REPLICATION SLAVE ON *.* FROM fleetlight@'%'", "GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.*"),
        ("SET GLOBAL binlog_format = 'MIXED'", "SET GLOBAL binlog_format = 'ROW'"),
        ("SET GLOBAL gtid_slave_pos = '7-7-7'", "log_slave_updates"),
    ],
)
def test_what_keeps_a_log_from_being_followed_is_said_with_what_mends_it(
    run: Run, logging_server: PrivateServer, statement: str, mends: str
) -> None:
    nova = deployment(logging_server)
    nova.administer(statement)
    try:
        code, cells = checked(run, nova)
    finally:
        nova.administer("SET GLOBAL binlog_format = 'ROW'", "SET GLOBAL gtid_slave_pos = ''")
    assert code == 1
    for each in cells.values():
        assert (each["readable"], each["followed_by"]) == (True, "comparisons")
        assert mends in each["reason"]


def test_server_that_keeps_no_log_is_said_to(run: Run, silent_server: PrivateServer) -> None:
    nova = deployment(silent_server)
    code, cells = checked(run, nova)
    assert (code, {each["followed_by"] for each in cells.values()}) == (1, {"comparisons"})
    assert "set log_bin" in cells["cell1"]["reason"]
    shown = run("cell", "add-nova", "--check", "--api-database-url", nova.url("api"))
    assert (shown.exit_code, "log_bin" in shown.stdout) == (1, True)


def test_cell_that_cannot_be_read_is_beside_those_that_can(run: Run, logging_server: PrivateServer) -> None:
    nova = deployment(logging_server, ["cell0", "cell1", "cell2"])
    nova.administer(f"DROP DATABASE `{nova.prefix}cell1`")
    template = sa.update(tables.cell_mappings).values(database_connection="{scheme}://db/cell2")
    with nova.engine("api") as engine, engine.connect() as connection:
        connection.execute(template.where(tables.cell_mappings.c.name == "cell2"))
    code, cells = checked(run, nova)
    assert code == 1
    assert [(cells[name]["readable"], cells[name]["followed_by"]) for name in ("cell0", "cell1", "cell2")] == [
        (True, "log"),
        (False, None),
        (False, None),
    ]
    assert "template" in cells["cell2"]["reason"]
