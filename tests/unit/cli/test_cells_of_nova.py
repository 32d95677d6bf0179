"""Cells of Nova join the fleet, and what can be asked of them on the command line."""

import json
from collections.abc import Mapping
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import create_engine, text
from typer.testing import Result

from fleetlight.bus.bus import Message
from fleetlight.bus.topology import RESOURCE_HEADER
from fleetlight.cells.fleet.fleet_clock import FleetClock
from fleetlight.cells.kinds.nova_db import tables
from fleetlight.cells.model import LogPosition
from fleetlight.cli.fleet import open_fleet
from fleetlight.cli.index.sync import syncing_cells
from fleetlight.cli.processes.following import run_indexer
from fleetlight.cli.settings import load_settings
from fleetlight.indexer.backends.base import COMMIT_LOGS, CellProgress, LogState
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.errors import DeadLetterReason
from fleetlight.indexer.metrics import IndexerMetrics
from fleetlight.indexer.reconcile.ranges import ignore
from fleetlight.indexer.writing.dead_letters import DeadLetter, to_failure
from fleetlight.resources.clock import system_clock
from tests.support.fleets.indexer_worlds import in_thread
from tests.support.fleets.nova_tables import CELL1, SmallNova, small_nova
from tests.support.memory.memory_cell import ROUTING_KEY
from tests.support.waiting import wait_until
from tests.unit.cli.conftest import Run


@pytest.fixture
def nova(empty_place: Path, run: Run) -> SmallNova:
    """A deployment; the fleet has no cell yet."""
    (empty_place / "fleetlight.toml").write_text(f'[fleet]\ndatabase_url = "sqlite:///{empty_place}/fleet.db"\n')
    assert run("database", "upgrade").exit_code == 0
    made = small_nova(empty_place)
    made.add("cell1", 1)
    made.add("cell1", 2, deleted=2)
    made.add("cell0", 3, vm_state="error")
    return made


@pytest.fixture
def joined(run: Run, nova: SmallNova) -> Result:
    return run("cell", "add-nova", "--api-database-url", nova.urls["api"], "--prefix", "east-")


def lines_of(result: Result) -> list[list[str]]:
    return [line.split() for line in result.stdout.splitlines() if "east-" in line]


def test_all_cells_of_a_deployment_join_with_one_command(run: Run, joined: Result) -> None:
    assert joined.exit_code == 0, joined.output
    cells = {cell["name"]: cell for cell in json.loads(run("cell", "list", "--output", "json").stdout)}
    assert {name: cell["kind"] for name, cell in cells.items()} == dict.fromkeys(
        ("east-build-requests", "east-cell0", "east-cell1"), "nova-db"
    )


def test_deployment_is_checked_without_being_added(run: Run, nova: SmallNova) -> None:
    checked = run("cell", "add-nova", "--check", "--api-database-url", nova.urls["api"], "--output", "json")
    assert checked.exit_code == 1
    found = {each["name"]: (each["readable"], each["followed_by"]) for each in json.loads(checked.stdout)}
    assert found == dict.fromkeys(("build-requests", "cell0", "cell1"), (True, "comparisons"))
    assert json.loads(run("cell", "list", "--output", "json").stdout) == []


def test_deployment_that_is_added_again_stays_as_it_is(run: Run, nova: SmallNova, joined: Result) -> None:
    before = run("cell", "list", "--output", "json").stdout
    again = run("cell", "add-nova", "--api-database-url", nova.urls["api"], "--prefix", "east-")
    assert again.exit_code == 0
    assert run("cell", "list", "--output", "json").stdout == before


def test_api_database_that_is_none_is_said_so(run: Run, nova: SmallNova, empty_place: Path) -> None:
    for url, code in (
        (f"sqlite:///{empty_place}/nothing.db", 1),
        ("oracle://db/nova", 2),
        ("sqlite:///relative.db", 2),
    ):
        result = run("cell", "add-nova", "--api-database-url", url)
        assert result.exit_code == code, result.output
        assert "Traceback" not in result.output
    assert json.loads(run("cell", "list", "--output", "json").stdout) == []


def test_one_cell_is_added_by_the_name_that_it_has_in_its_deployment(run: Run, nova: SmallNova) -> None:
    urls = ("--api-database-url", nova.urls["api"], "--database-url", nova.urls["cell1"])
    assert run("cell", "add", "nova-db", "cell1", *urls).exit_code == 0
    unknown = run("cell", "add", "nova-db", "cell9", *urls[:2], "--database-url", f"{nova.urls['cell1']}x")
    assert unknown.exit_code == 2
    assert "cell0, cell1" in unknown.stderr
    assert CELL1 not in run("cell", "list").stdout  # the uuid in the fleet is another one


def buses(run: Run) -> dict[str, str]:
    return {cell["name"]: cell["transport_url"] for cell in json.loads(run("cell", "list", "--output", "json").stdout)}


def test_cells_get_the_bus_that_their_deployment_names_and_keep_what_they_have(run: Run, nova: SmallNova) -> None:
    nova.set_transport_url("cell0", "none:///")
    nova.set_transport_url("cell1", "rabbit://nova:secret@bus1:5672/cell1?ssl=1")
    add = ("cell", "add-nova", "--api-database-url", nova.urls["api"])
    assert run(*add).exit_code == 0
    expected = {"build-requests": "", "cell0": "", "cell1": "amqps://bus1:5672/cell1"}
    assert buses(run) == expected
    changed = run("cell", "add", "nova-db", "cell1", "--transport-url", "amqp://bus2/nova")
    assert (changed.exit_code, changed.stdout) == (0, "cell1: its bus is now amqp://bus2/nova\n")
    assert run(*add).exit_code == 0
    assert buses(run) == expected | {"cell1": "amqp://bus2/nova"}
    assert run(*add, "--transport-url", "amqp://one/nova").exit_code == 0
    assert buses(run) == {"build-requests": "", "cell0": "amqp://one/nova", "cell1": "amqp://one/nova"}


def test_bus_that_is_not_given_stays_and_what_has_changed_is_said(run: Run, nova: SmallNova) -> None:
    urls = ("--database-url", nova.urls["cell1"], "--api-database-url", nova.urls["api"])
    assert run("cell", "add", "nova-db", "cell1", *urls, "--transport-url", "amqp://bus1/nova").exit_code == 0
    for arguments in (urls, urls[:2], urls[2:]):
        again = run("cell", "add", "nova-db", "cell1", *arguments)
        assert (again.exit_code, again.stderr) == (0, ""), arguments
        assert buses(run) == {"cell1": "amqp://bus1/nova"}
    changed = run("cell", "add", "nova-db", "cell1", *urls, "--transport-url", "amqp://bus2/nova")
    assert changed.stderr == "cell1: its bus is now amqp://bus2/nova\n"


def test_deployment_that_is_added_again_leaves_what_it_cannot_say(run: Run, nova: SmallNova, joined: Result) -> None:
    """The bus of what is in no cell yet, and an address that is a template in Nova's own words."""
    assert run("cell", "add", "nova-db", "east-build-requests", "--transport-url", "amqp://bus1/nova").exit_code == 0
    nova.execute("api", text("UPDATE cell_mappings SET database_connection = '{scheme}://{hostname}/nova'"))
    before = run("cell", "list", "--output", "json").stdout
    again = run("cell", "add-nova", "--api-database-url", nova.urls["api"], "--prefix", "east-")
    assert again.exit_code == 0
    assert run("cell", "list", "--output", "json").stdout == before
    assert "east-cell1: it keeps its database: " in again.stderr


def test_deployment_whose_buses_may_not_be_read_joins_without(run: Run, nova: SmallNova) -> None:
    nova.execute("api", text("ALTER TABLE cell_mappings DROP COLUMN transport_url"))
    joined = run("cell", "add-nova", "--api-database-url", nova.urls["api"])
    assert joined.exit_code == 0
    assert "cell1: its bus is not known" in joined.stderr
    assert "give --transport-url" in joined.stderr
    assert set(buses(run).values()) == {""}


def test_cells_are_listed_with_what_they_are_followed_by(run: Run, joined: Result) -> None:
    assert joined.exit_code == 0

    def cells() -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(run("cell", "list", "--output=json").stdout)
        return found

    first, second, *_ = cells()
    assert (first["followed_by"], second["followed_by"]) == (None, None)  # the index alone knows it, and is not there
    with closing(open_writer(load_settings(None, None).index)) as writer:
        writer.prepare()
        writer.save_progress([CellProgress(first["uuid"], 0, system_clock(), is_complete=True)])
        writer.save_state(COMMIT_LOGS, {first["uuid"]: msgspec.to_builtins(LogState())})
    assert [each["followed_by"] for each in cells()][:2] == ["log", "comparisons"]
    run("cell", "disable", first["name"])
    assert [each["followed_by"] for each in cells()][:2] == [None, "comparisons"]


def add_cell1(run: Run, nova: SmallNova, database_url: str) -> Result:
    urls = ("--database-url", database_url, "--api-database-url", nova.urls["api"])
    return run("cell", "add", "nova-db", "cell1", *urls)


def database_of_cell1(run: Run) -> str:
    [cell] = json.loads(run("cell", "list", "--output", "json").stdout)
    return str(cell["database_url"])


@pytest.mark.parametrize("other", ["cell0", "empty"])
def test_database_that_has_nothing_of_a_known_cell_is_refused(
    run: Run, nova: SmallNova, empty_place: Path, other: str
) -> None:
    elsewhere = empty_place / "elsewhere"
    elsewhere.mkdir()
    urls = {"cell0": nova.urls["cell0"], "empty": small_nova(elsewhere).urls["cell1"]}
    assert add_cell1(run, nova, nova.urls["cell1"]).exit_code == 0
    refused = add_cell1(run, nova, urls[other])
    assert refused.exit_code == 2
    assert "another database than that of cell cell1" in " ".join(refused.stderr.split())
    assert database_of_cell1(run) == nova.urls["cell1"]


def test_database_that_was_moved_is_taken_and_said(run: Run, nova: SmallNova, empty_place: Path) -> None:
    assert add_cell1(run, nova, nova.urls["cell1"]).exit_code == 0
    (empty_place / "cell1.db").rename(empty_place / "moved.db")
    moved = f"sqlite:///{empty_place}/moved.db"
    added = add_cell1(run, nova, moved)
    assert added.exit_code == 0
    assert "cell1: its database is now" in added.stderr
    assert database_of_cell1(run) == moved


def test_database_of_a_known_cell_that_cannot_be_read_yet_is_taken(run: Run, nova: SmallNova) -> None:
    assert add_cell1(run, nova, nova.urls["cell1"]).exit_code == 0
    added = add_cell1(run, nova, f"{nova.urls['cell1']}.later")
    assert added.exit_code == 0
    assert "cell1: it cannot be read yet" in added.stderr


def verified(run: Run, *arguments: str) -> tuple[int, Mapping[str, Any]]:
    result = run("index", "verify", "--output", "json", *arguments)
    return result.exit_code, {cell["cell"]: cell for cell in json.loads(result.stdout)}


def test_index_is_filled_verified_and_repaired(run: Run, nova: SmallNova, joined: Result) -> None:
    assert run("index", "sync").exit_code == 0
    code, cells = verified(run)
    assert (code, {name: cell["instances"] for name, cell in cells.items()}) == (
        0,
        {"east-build-requests": 0, "east-cell0": 1, "east-cell1": 2},
    )
    added = nova.add("cell1", 4)
    code, cells = verified(run, "--repair", "--cell", "east-cell1")
    assert code == 0
    assert [(each["uuid"], each["kind"], each["is_repaired"]) for each in cells["east-cell1"]["differences"]] == [
        (added, "missing in the index", True)
    ]
    assert verified(run)[0] == 0


def test_sync_of_all_cells_is_complete_although_a_hidden_row_is_read_before_the_shown_one(
    run: Run, nova: SmallNova, joined: Result
) -> None:
    uuid = nova.add("cell1", 5)
    hidden = {"id": 5, "uuid": uuid, "deleted": 0, "hidden": True, "project_id": "demo", "user_id": "ada"}
    nova.insert("cell0", tables.instances, hidden)
    alone = run("index", "sync", "--cell", "east-cell0")
    assert alone.exit_code == 1
    assert "where it lives, was not read since" in alone.stderr
    synced = run("index", "sync", "--parallel", "1")
    assert synced.exit_code == 0, synced.output
    code, cells = verified(run)
    assert (code, cells["east-cell0"]["instances"], cells["east-cell1"]["instances"]) == (0, 1, 3)
    with closing(open_writer(load_settings(None, None).index)) as writer:
        owner = writer.read([uuid])[uuid].cell_uuid
        assert all(progress.is_complete for progress in writer.load_progress().values())
    with open_fleet(load_settings(None, None).fleet) as fleet:
        assert owner == fleet.cell("east-cell1").uuid


def test_child_of_a_sync_goes_on_with_what_another_one_has_seen(run: Run, nova: SmallNova, joined: Result) -> None:
    uuid = nova.add("cell1", 5)
    hidden = {"id": 5, "uuid": uuid, "deleted": 0, "hidden": True, "project_id": "demo", "user_id": "ada"}
    nova.insert("cell0", tables.instances, hidden)
    settings = load_settings(None, None)
    with open_fleet(settings.fleet) as fleet:
        cell = fleet.cell("east-cell0")
    with syncing_cells(settings, None, Event()) as sync_one:
        first, seen_at = sync_one((cell, {}), ignore)
        assert (first.is_unsettled, list(seen_at)) == (True, [uuid])
    assert run("index", "sync", "--cell", "east-cell1").exit_code == 0
    with syncing_cells(settings, None, Event()) as sync_one:
        second, again = sync_one((cell, seen_at), ignore)
    assert (second.is_unsettled, again) == (False, seen_at)


@pytest.mark.parametrize("written_by", ["indexer", "sync", "verify", "retry"])
def test_rows_are_as_new_as_the_clock_of_the_fleet_says(
    run: Run, nova: SmallNova, joined: Result, monkeypatch: pytest.MonkeyPatch, written_by: str
) -> None:
    """And not that of the machine, which may be wrong: what is told of an instance later has to be newer."""
    now = system_clock() - 3_600_000_000
    monkeypatch.setattr(FleetClock, "__call__", lambda _: now)
    uuid, settings = nova.add("cell1", 4), load_settings(None, None)
    with closing(open_writer(settings.index)) as writer:
        writer.prepare()
        if written_by == "indexer":
            with (
                open_fleet(settings.fleet) as fleet,
                in_thread(partial(run_indexer, settings, fleet, IndexerMetrics(CollectorRegistry()))),
            ):
                wait_until(lambda: uuid in writer.read([uuid]))
        elif written_by == "retry":
            letter = DeadLetter(Message(b"{", ROUTING_KEY, {RESOURCE_HEADER: uuid}), DeadLetterReason.MALFORMED, "{")
            with open_fleet(settings.fleet) as fleet:
                fleet.failures.add([to_failure(fleet.cell("east-cell1").uuid, letter, now)])
            assert run("index", "failures", "retry", "--all").exit_code == 0
        else:
            command = {"sync": ["sync"], "verify": ["verify", "--repair"]}[written_by]
            assert run("index", *command).exit_code == 0
        assert writer.read([uuid])[uuid].version == now


def test_operators_see_how_a_cell_is_followed_and_what_keeps_its_log_from_being_read(
    run: Run, joined: Result, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETLIGHT_SEARCH_ENABLED", "true")
    monkeypatch.setenv("FLEETLIGHT_SEARCH_STALENESS_LIMIT_S", "300")
    settings = load_settings(None, None)
    with (
        open_fleet(settings.fleet) as fleet,
        closing(open_writer(settings.index)) as writer,
        in_thread(partial(run_indexer, settings, fleet, IndexerMetrics(CollectorRegistry()))),
    ):
        writer.prepare()
        cells = {cell.name: cell.uuid for cell in fleet.cells()}
        wait_until(lambda: writer.load_state(COMMIT_LOGS).keys() == set(cells.values()), timeout_s=30)
        wait_until(lambda: len(writer.load_progress()) == len(cells), timeout_s=30)
    with closing(open_writer(settings.index)) as writer:
        log = LogState({"db:3306": LogPosition("log.000001", 4, "0-1-3", 3, 0)})
        writer.save_state(COMMIT_LOGS, {cells["east-cell0"]: msgspec.to_builtins(log)})
        hour_ago = system_clock() - 3_600_000_000
        writer.save_progress([CellProgress(cells["east-cell0"], 3, system_clock(), is_complete=True)])
        writer.save_progress([CellProgress(cells["east-cell1"], 0, system_clock() - 600_000_000, is_complete=True)])
        writer.save_progress([CellProgress(cells["east-build-requests"], 0, hour_ago, is_complete=True)])
    listed = {each["cell"]: each for each in json.loads(run("index", "status", "--output=json").stdout)}
    assert [(each["followed_by"], each["health"], each["watermark"]) for each in listed.values()] == [
        ("comparisons", "stale", None),
        ("log", "ok", 3),
        ("comparisons", "ok", None),
    ]
    assert "SQLite" in listed["east-cell1"]["log_problem"]
    assert listed["east-cell0"]["log_positions"]["db:3306"]["gtid"] == "0-1-3"
    shown = run("index", "status")
    assert "followed by the log" in " ".join(shown.stderr.split())
    found = {each["about"]: each for each in json.loads(run("doctor", "--output=json").stdout)}
    assert "followed by log" in found["index of east-cell0"]["found"]
    assert "not read: a SQLite file" in found["index of east-cell1"]["found"]
    assert "a SQLite file" in found["lists of east-cell1"]["what_to_do"]


def test_list_is_explained_with_what_the_databases_are_asked(run: Run, joined: Result) -> None:
    found = run("explain", "GET /v2.1/servers?all_tenants=1&name=web", "--consistency", "strong")
    assert found.exit_code == 0, found.output
    assert "2 rows, complete" in found.stdout
    assert "FROM instances AS o" in found.stdout


def test_schema_that_is_not_known_is_told_when_the_cell_is_added(run: Run, nova: SmallNova) -> None:
    engine = create_engine(nova.urls["cell1"])
    with engine.begin() as connection:
        connection.execute(text("ALTER TABLE instance_extra DROP COLUMN trusted_certs"))
        connection.execute(text("DROP TABLE tags"))
    engine.dispose()
    added = run("cell", "add-nova", "--api-database-url", nova.urls["api"])
    assert added.exit_code == 0
    assert "cell1: it cannot be read yet: its schema is not known here: there is no " in added.stderr
    assert "column instance_extra.trusted_certs" in added.stderr
    assert "from Wallaby on" in added.stderr
    assert "cell0: it cannot be read" not in added.stderr
