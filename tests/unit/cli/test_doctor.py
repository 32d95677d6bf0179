"""The doctor finds what is wrong, says what to do, and answers within seconds whatever hangs."""

import json
import shutil
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sqlalchemy import text

from fleetlight.cells import migrations
from fleetlight.cells.database.engines import create_database_engine, writing
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.fleet.fleet_clock import FleetClock
from fleetlight.cells.fleet.restored_cells import RestoredCell
from fleetlight.cells.model import Cell
from fleetlight.cli.data_folder import DataFolder
from fleetlight.cli.doctor import checks
from fleetlight.cli.fleet import open_fleet
from fleetlight.cli.settings import load_settings
from fleetlight.indexer.backends.base import REPAIRS, CellProgress
from fleetlight.indexer.backends.elasticsearch import examination
from fleetlight.indexer.backends.elasticsearch.mapping import instance_mapping
from fleetlight.indexer.backends.elasticsearch.names import Names
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.manager.commands.embedded import set_up_cells, set_up_fleet
from fleetlight.resources.clock import system_clock
from fleetlight.resources.query_fields.node import NODE
from tests.unit.cli.conftest import Run

_NAMES = Names.of("fleetlight")
_PHYSICAL = "fleetlight-instances-v1"


@pytest.fixture
def cell(empty_place: Path) -> Cell:
    """The only cell of a fleet in the default data folder, which the index has as of now."""
    folder = DataFolder(empty_place / "fleetlight-data")
    folder.create()
    with closing(set_up_fleet(folder)) as fleet:
        (embedded,) = set_up_cells(folder, fleet, 1)
        embedded.engine.dispose()
    with closing(open_writer(load_settings(None, None).index)) as writer:
        writer.prepare()
        writer.save_progress([CellProgress(embedded.cell.uuid, 0, system_clock(), is_complete=True)])
    return embedded.cell


class Found(NamedTuple):
    exit_code: int
    wrong: Mapping[str, tuple[str, str]]
    about: list[str]


def examine(run: Run, *arguments: str) -> Found:
    """What is wrong, and what to do, by what it is about."""
    result = run("doctor", "--output=json", *arguments)
    findings: list[dict[str, Any]] = json.loads(result.stdout)
    wrong = {each["about"]: (each["found"], each["what_to_do"]) for each in findings if each["state"] == "wrong"}
    return Found(result.exit_code, wrong, [each["about"] for each in findings])


def test_nothing_is_wrong_with_a_fleet_that_is_followed(run: Run, cell: Cell) -> None:
    found = examine(run)
    assert (found.exit_code, found.wrong) == (0, {})
    assert {"configuration", "fleet database", "index", "cell cell1", "index of cell1"} <= set(found.about)
    assert "WHAT TO DO" in run("doctor").stdout


def test_cell_that_went_back_to_a_backup_is_found_until_that_is_acknowledged(run: Run, cell: Cell) -> None:
    with open_fleet(load_settings(None, None).fleet) as fleet:
        fleet.restored_cells.record(cell.uuid, RestoredCell(system_clock(), 6743, 8))
    says, remedy = examine(run).wrong["database of cell1"]
    assert "change 6743, its log ended at 8" in says
    assert "`fleetlight cell acknowledge cell1`" in remedy
    status = run("status")
    assert (status.exit_code, "database of cell1" in status.stdout) == (1, True)
    assert "cell1: acknowledged" in run("cell", "acknowledge", "cell1").stdout
    assert "nothing to acknowledge" in run("cell", "acknowledge", "cell1").stdout
    assert examine(run).wrong == {}


def test_cell_that_no_process_follows_is_found(run: Run, cell: Cell) -> None:
    with closing(open_writer(load_settings(None, None).index)) as writer:
        writer.save_progress([CellProgress(cell.uuid, 0, system_clock() - 600_000_000, is_complete=True)])
    found = examine(run)
    says, remedy = found.wrong["index of cell1"]
    assert found.exit_code == 1
    assert says.startswith("stale, as of 600.")
    assert "`fleetlight indexer`" in remedy


def test_route_of_lists_is_told_with_its_reason(run: Run, cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    def says(about: str) -> str:
        [found] = [
            each["found"] for each in json.loads(run("doctor", "--output=json").stdout) if each["about"] == about
        ]
        return str(found)

    assert says("index of cell1").endswith("; lists ask the cell: the index does not have every node of the cell")
    with closing(open_writer(load_settings(None, None).index)) as writer:
        writer.mark_items(NODE.name, cell.uuid, are_whole=True)
    assert says("index of cell1").startswith("complete, as of ")
    assert "lists ask" not in says("index of cell1")
    with closing(open_writer(load_settings(None, None).index)) as writer:
        writer.save_state(REPAIRS, {cell.uuid: True})
    assert "lists ask the cell: the index was found to differ" in says("index of cell1")
    monkeypatch.setenv("FLEETLIGHT_SEARCH_ENABLED", "false")
    assert says("configuration").endswith("; an API with it lists from the cells alone (search.enabled is off)")


@pytest.mark.usefixtures("cell")
def test_hosts_that_are_served_are_told(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def findings() -> dict[str, tuple[str, str]]:
        found = json.loads(run("doctor", "--output=json").stdout)
        return {each["about"]: (each["state"], each["found"]) for each in found if each["about"].startswith("hosts")}

    assert findings() == {"hosts of api": ("ok", "serves addresses, localhost")}
    monkeypatch.setenv("FLEETLIGHT_API_HOST", "10.0.0.5")
    monkeypatch.setenv("FLEETLIGHT_MONITORING_HOST", "10.0.0.5")
    monkeypatch.setenv("FLEETLIGHT_MONITORING_PORT", "9100")
    monkeypatch.setenv("FLEETLIGHT_MONITORING_HOSTS", '["api1"]')
    assert findings() == {
        "hosts of api": ("unknown", "serves any name: api.hosts can limit that"),
        "hosts of monitoring": ("ok", "serves addresses, localhost, api1"),
    }


def test_disabled_cell_is_not_asked(run: Run, cell: Cell) -> None:
    with closing(fleet_of_folder()) as fleet:
        fleet.set_disabled(cell.uuid, True)
    Path(cell.database_url.removeprefix("sqlite:///")).unlink()
    assert examine(run).wrong == {}


def fleet_of_folder() -> Fleet:
    url = load_settings(None, None).fleet.database_url.get_secret_value()
    return Fleet(create_database_engine(url, must_exist=True))


def test_tables_of_a_newer_version_are_found(run: Run, cell: Cell) -> None:
    engine = create_database_engine(cell.database_url)
    with writing(engine) as connection:
        connection.execute(text("UPDATE fleetlight_cell_version SET version_num = 'cell_9999'"))
    engine.dispose()
    found = examine(run)
    assert "are newer" in found.wrong["cell cell1"][0]
    assert "run the newer version" in found.wrong["cell cell1"][1]


@pytest.mark.usefixtures("cell")
def test_tables_of_an_older_version_are_found(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(migrations, "_known_revisions", lambda schema: {f"{schema}_0001", f"{schema}_0002"})
    found = examine(run)
    assert "are older than" in found.wrong["cell cell1"][0]
    assert "fleetlight database upgrade" in found.wrong["cell cell1"][1]


def test_cell_and_index_that_are_gone_are_found_beside_each_other(run: Run, cell: Cell) -> None:
    Path(cell.database_url.removeprefix("sqlite:///")).unlink()
    load_settings(None, None).index.path.unlink()
    found = examine(run)
    assert {"cell cell1", "index"} <= found.wrong.keys()
    assert "fleetlight indexer" in found.wrong["index"][1]


def test_full_disk_is_found(run: Run, cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage(NamedTuple):
        total: int
        used: int
        free: int

    monkeypatch.setattr(shutil, "disk_usage", lambda _folder: Usage(100 * 2**30, 95 * 2**30, 5 * 2**30))
    found = examine(run)
    assert {says for says, _ in found.wrong.values()} == {"95 % full, 5.0 GiB free"}


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Of a server that takes connections and never says anything."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield server.getsockname()[1]


@pytest.mark.parametrize("backend", ["elasticsearch", pytest.param("opensearch", marks=pytest.mark.night)])
def test_servers_that_say_nothing_are_named_within_seconds(
    run: Run, cell: Cell, silent_port: int, monkeypatch: pytest.MonkeyPatch, backend: str
) -> None:
    monkeypatch.setattr(checks, "DEADLINE_S", 0.5)
    with closing(fleet_of_folder()) as fleet:
        address = f"127.0.0.1:{silent_port}"
        fleet.add_cell("hangs", cell.kind, f"postgresql://nobody@{address}/cell", f"amqp://{address}//")
    monkeypatch.setenv("FLEETLIGHT_INDEX_BACKEND", backend)
    monkeypatch.setenv("FLEETLIGHT_INDEX_URLS", f'["http://{address}"]')
    began = time.monotonic()
    found = examine(run)
    # What this machine is late with does not count.
    assert time.monotonic() - began < 30
    assert {"cell hangs", "bus of hangs", "index"} <= found.wrong.keys()
    # The time in which the command itself waits for a processor does not count, so its driver may give up first.
    silent = {"no answer within 0.5 s", "cell 'hangs' cannot be reached: connection timeout expired"}
    assert found.wrong["cell hangs"][0] in silent
    assert "cell cell1" not in found.wrong


def test_configuration_that_makes_no_sense_has_exit_code_2(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETLIGHT_INDEX_BACKEND", "paper")
    assert run("doctor").exit_code == 2


def index_of(aliases: Mapping[str, Any], **settings: str) -> dict[str, Any]:
    return {"aliases": aliases, "mappings": instance_mapping(), "settings": settings}


_CLOSED = "closed"
_BLOCKED = index_of({}, **{"index.blocks.write": "true"})
_WELL = {_PHYSICAL: index_of({_NAMES.read: {}, _NAMES.write: {}}), "fleetlight-progress": index_of({})}


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (_WELL, None),
        ({}, "there is no index"),
        ({_PHYSICAL: index_of({_NAMES.write: {}})}, "is an alias of nothing"),
        ({**_WELL, "other": index_of({_NAMES.read: {}})}, f"is an alias of {_PHYSICAL}, other"),
        ({**_WELL, _NAMES.write: index_of({})}, "has to be an alias"),
        ({_PHYSICAL: {**_WELL[_PHYSICAL], "mappings": {"_meta": {"version": 1}}}}, "of another version"),
        ({_PHYSICAL: index_of({_NAMES.read: {}, _NAMES.write: {}}, **{"index.blocks.write": "true"})}, "is blocked"),
        ({**_WELL, "replaced": {**_BLOCKED, "mappings": {"_meta": {"version": 1, "paused": True}}}}, None),
        ({**_WELL, "x": _BLOCKED}, "x is blocked"),
        ({**_WELL, _CLOSED: index_of({})}, f"{_CLOSED} is closed"),
    ],
)
def test_what_is_wrong_with_indexes_is_said(found: dict[str, Any], says: str | None) -> None:
    _, problems = examination.problems_of_indexes(found, {_CLOSED}, _NAMES)
    assert [says is not None and says in problem.says for problem in problems] == ([] if says is None else [True])


def test_nearly_full_disk_of_a_node_is_said() -> None:
    nodes = {"a": {"name": "es1", "fs": {"total": {"total_in_bytes": 100, "available_in_bytes": 10}}}}
    problems = list(examination.problems_of_cluster({"status": "green"}, {"nodes": nodes}))
    assert [problem.says for problem in problems] == ["the disk of node es1 is 90 % full"]


def test_ages_of_mappings_are_by_the_clock_of_the_fleet(run: Run, cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not by that of this machine, which may be wrong."""
    with open_fleet(load_settings(None, None).fleet) as fleet:
        fleet.compared_mappings.record(cell.uuid, compared_at=system_clock(), repaired=0, elsewhere=0)
    monkeypatch.setattr(FleetClock, "__call__", lambda _clock: system_clock() + 7200 * 1_000_000)
    said, _ = examine(run).wrong["mappings of cell1"]
    assert "compared with its rows 120 minutes ago" in said
