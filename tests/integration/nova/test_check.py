"""`fleetlight cell add-nova --check` says what each cell of a deployment can be, and changes nothing."""

import json
import re
import textwrap
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
import sqlalchemy as sa
from prometheus_client import CollectorRegistry

from fleetlight.cells.kinds.nova_db import tables
from fleetlight.cli.fleet import open_fleet
from fleetlight.cli.processes.following import run_indexer
from fleetlight.cli.settings import load_settings
from fleetlight.indexer.metrics import IndexerMetrics
from scripts.servers.mariadb import MariaDB
from scripts.servers.private import PrivateServer, private_server
from tests.integration.nova.test_account import PAGE, grants
from tests.support.fleets.indexer_worlds import in_thread
from tests.support.servers.logged_nova import LoggedNova, LoggingMariaDB
from tests.support.waiting import wait_until
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


@pytest.mark.night
def test_cells_that_nova_has_behind_a_proxy_are_read_from_the_server_itself(
    run: Run, logging_server: PrivateServer
) -> None:
    nova = deployment(logging_server)
    with nova.engine("api") as engine, engine.begin() as connection:
        address = tables.cell_mappings.c.database_connection
        behind = sa.func.regexp_replace(address, "@[^/]*/", "@127.0.0.1:1/")
        connection.execute(sa.update(tables.cell_mappings).values(database_connection=behind))
    code, cells = checked(run, nova)
    assert (code, cells["cell1"]["readable"], cells["build-requests"]["followed_by"]) == (1, False, "log")
    code, cells = checked(run, nova, "--one-server")
    assert (code, {each["followed_by"] for each in cells.values()}) == (0, {"log"})
    Path("fleetlight.toml").write_text('[fleet]\ndatabase_url = "sqlite:///fleet.db"\n')
    assert run("database", "upgrade").exit_code == 0
    added = run("cell", "add-nova", "--one-server", "--api-database-url", nova.url("api"))
    assert (added.exit_code, "down" in added.output) == (0, False), added.output


@pytest.mark.night
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


@pytest.mark.night
def test_server_that_keeps_no_log_is_said_to(run: Run, silent_server: PrivateServer) -> None:
    nova = deployment(silent_server)
    code, cells = checked(run, nova)
    assert (code, {each["followed_by"] for each in cells.values()}) == (1, {"comparisons"})
    assert "set log_bin" in cells["cell1"]["reason"]
    shown = run("cell", "add-nova", "--check", "--api-database-url", nova.url("api"))
    assert (shown.exit_code, "log_bin" in shown.stdout) == (1, True)


@pytest.mark.night
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


def test_page_leads_from_nothing_to_a_complete_list_from_the_index(
    run: Run, logging_server: PrivateServer, empty_place: Path
) -> None:
    """With the account, the settings and the commands of docs/operations/nova-databases.md."""
    nova, name = deployment(logging_server), f"reader_{uuid4().hex[:8]}"
    nova.administer(f"CREATE USER {name} IDENTIFIED BY 'read-only'", *as_page_says("log", name))
    for database in ("api", "cell0", "cell1"):
        with nova.engine(database) as engine, engine.connect() as connection:
            for statement in as_page_says("api" if database == "api" else "cell", name):
                # What no list is made of is not among the columns here.
                connection.execute(sa.text(statement.replace(", transport_url", "")))
    url = nova.url("api", f"{name}:read-only")
    toml = re.search(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert toml is not None
    Path("fleetlight.toml").write_text(textwrap.dedent(toml[1]).replace("/var/lib/fleetlight", str(empty_place)))

    checked_first = run("cell", "add-nova", "--check", "--api-database-url", url)
    assert checked_first.exit_code == 0, checked_first.output
    assert run("database", "upgrade").exit_code == 0
    assert run("cell", "add-nova", "--api-database-url", url).exit_code == 0
    settings = load_settings(None, None)
    with (
        open_fleet(settings.fleet) as fleet,
        in_thread(partial(run_indexer, settings, fleet, IndexerMetrics(CollectorRegistry()))),
    ):
        wait_until(lambda: run("index", "status").exit_code == 0, timeout_s=120)
        uuid = str(uuid4())
        with nova.engine("cell1") as engine, engine.connect() as connection:
            values = {"uuid": uuid, "project_id": "demo", "user_id": "ada", "vm_state": "active", "deleted": 0}
            connection.execute(sa.insert(tables.instances).values(hidden=False, **values))
        wait_until(lambda: "1" in rows_of(run)["cell1"], timeout_s=60)
        assert {words[1] for words in rows_of(run).values()} == {"index"}


def as_page_says(which: str, account: str) -> list[str]:
    return [statement.replace("TO fleetlight", f"TO {account}") for statement in grants(which)]


def rows_of(run: Run) -> dict[str, list[str]]:
    """What is explained of each cell in one list."""
    lines = run("explain", "GET /v2.1/servers/detail?all_tenants=1&limit=5").stdout.splitlines()
    return {words[0]: words for line in lines if (words := line.split()) and words[0] in ("cell0", "cell1")}
