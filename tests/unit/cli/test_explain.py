"""`fleetlight explain` from the files of a fleet, without a running API."""

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run


@pytest.fixture(autouse=True)
def one_cell(empty_place: Path, run: Run) -> None:
    file = empty_place / "fleetlight.toml"
    file.write_text(f'[fleet]\ndatabase_url = "sqlite:///{empty_place}/fleet.db"\n')
    assert run("database", "upgrade").exit_code == 0
    url = f"sqlite:///{empty_place}/one.db"
    assert (
        run("cell", "add", "native", "one", "--database-url", url, "--transport-url", "amqp://127.0.0.1:9//").exit_code
        == 0
    )


def test_explanation_is_readable_and_json_for_programs(run: Run) -> None:
    shown = run("explain", "GET /v2.1/servers?name=web")
    assert shown.exit_code == 0, shown.stderr
    assert shown.stdout.startswith("GET /v2.1/servers?name=web: 0 rows, complete, ")
    assert "lists do not use the index" in shown.stdout
    assert "FROM instances" in shown.stdout
    told = json.loads(run("explain", "GET /v2.1/servers?name=web", "--output=json", "--consistency", "strong").stdout)
    assert [cell["cell"] for cell in told["cells"]] == ["one"]


def test_query_that_is_the_same_for_many_cells_is_shown_once(run: Run, empty_place: Path) -> None:
    for name in ("two", "three", "four", "five", "six"):
        urls = ("--database-url", f"sqlite:///{empty_place}/{name}.db", "--transport-url", "amqp://127.0.0.1:9//")
        assert run("cell", "add", "native", name, *urls).exit_code == 0
    shown = run("explain", "GET /v2.1/servers?name=web").stdout
    assert shown.count("FROM instances") == 1
    assert "six and 2 more:\n" in shown


def test_request_that_cannot_be_explained_is_one_sentence(run: Run) -> None:
    for arguments in (
        ("GET /v2.1/flavors",),
        ("GET /v2.1/servers?sort_key=nope",),
        ("GET /v2.1/servers", "--consistency", "eventual"),
        ("GET /v2.1/servers", "--microversion", "9.9"),
    ):
        refused = run("explain", *arguments)
        assert refused.exit_code == 2
        assert refused.stderr.startswith("error: ")


def test_fleet_database_that_cannot_be_used_is_what_is_told(empty_place: Path, run: Run) -> None:
    file = empty_place / "elsewhere.toml"
    file.write_text(f'[fleet]\ndatabase_url = "sqlite:///{empty_place}/elsewhere.db"\n')
    refused = run("explain", "GET /v2.1/servers", "--config", file)
    assert refused.exit_code == 1
    assert refused.stderr.startswith("error: the fleet database cannot be used: unable to open database file; ")


def test_fleet_that_has_no_cells_yet_has_no_servers(empty_place: Path, run: Run) -> None:
    file = empty_place / "empty.toml"
    file.write_text(f'[fleet]\ndatabase_url = "sqlite:///{empty_place}/empty.db"\n')
    assert run("database", "upgrade", "--config", file).exit_code == 0
    shown = run("explain", "GET /v2.1/servers", "--output=json", "--config", file)
    assert shown.exit_code == 0, shown.stderr
    told = json.loads(shown.stdout)
    assert (told["rows"], told["complete"], told["cells"]) == (0, True, [])


def test_query_is_explained_with_the_parts_of_its_filter(run: Run) -> None:
    shown = run("explain", 'GET /fleetlight/query?what=node&fields=name&filter=role == "C" and cell == "one"')
    assert shown.exit_code == 0, shown.stderr
    assert ": 0 rows, complete, " in shown.stdout.splitlines()[0]
    lines = shown.stdout.splitlines()
    assert 'tried on the rows that they give: ["or", ["eq", "role", "C"], ["is_null", "role"]]' in lines
    assert "asked of databases, indexes and clusters: nothing" in lines
    assert "FROM compute_nodes" in shown.stdout
