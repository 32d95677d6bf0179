"""Commands on a fleet in a data folder, without the process of `fleetlight up`."""

import contextlib
import json
import os
import pty
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import select, update

from fleetlight.cells.database.engines import create_database_engine, writing
from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import cell_state, changes, instances
from fleetlight.cli.data_folder import DataFolder
from fleetlight.cli.fleet import open_fleet
from fleetlight.cli.settings import load_settings
from fleetlight.indexer.backends.base import REPAIRS
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.writing.leases import CellLeases
from fleetlight.manager.commands.embedded import set_up_cells, set_up_fleet
from fleetlight.resources.clock import system_clock
from tests.support.fleets.cell_databases import closed_cells
from tests.support.fleets.instance_operations import InstanceOperations
from tests.unit.cli.conftest import Run

SAMPLES = Path(__file__).parents[3] / "notifications" / "samples"
CREATED = SAMPLES / "instance.create.end.json"
SHOW_CURSOR = "\x1b[?25h"  # the last thing that progress bars do
NEVER_SEEN = "8a02cae4-35a0-431a-ac44-7d07a29b5ead"


@pytest.fixture
def cells(empty_place: Path) -> Sequence[Cell]:
    """A fleet of two cells with two instances each, in the default data folder; the index is empty."""
    folder = DataFolder(empty_place / "fleetlight-data")
    folder.create()
    fleet = set_up_fleet(folder)
    embedded = set_up_cells(folder, fleet, 2)
    for cell in embedded:
        operations = InstanceOperations(cell.engine, fleet, cell.cell)
        operations.create_many([{"display_name": f"{cell.cell.name}-{number}"} for number in range(2)])
        cell.engine.dispose()
        fleet.set_takes_announcements(cell.cell.uuid, True)
    fleet.close()
    with closing(open_writer(load_settings(None, None).index)) as writer:
        writer.prepare()
    return [cell.cell for cell in embedded]


def appended(cell: Cell) -> list[str]:
    engine = create_database_engine(cell.database_url)
    with engine.connect() as connection:
        events = list(connection.execute(select(changes.c.event_type).order_by(changes.c.id)).scalars())
    engine.dispose()
    # Two instances, and the nodes.
    return [event for event in events if not event.startswith("hypervisor.")][2:]


def read_terminal(terminal: int) -> str:
    """Everything that is written to a terminal until nobody has it open any more."""
    parts = []
    with contextlib.suppress(OSError):  # Linux says so with an error
        while part := os.read(terminal, 65_536):
            parts.append(part)
    os.close(terminal)
    return b"".join(parts).decode()


def instance_of(cell: Cell) -> str:
    engine = create_database_engine(cell.database_url)
    with engine.connect() as connection:
        of_instances = select(changes.c.instance_uuid).where(changes.c.instance_uuid != "")
        uuid = str(connection.execute(of_instances).scalars().first())
    engine.dispose()
    return uuid


def test_check_names_the_event_of_a_valid_file(run: Run) -> None:
    result = run("notifications", "check", CREATED)
    assert result.exit_code == 0
    assert result.stdout == f"{CREATED}: valid (instance.create.end, InstancePayload 1.1)\n"


def test_check_says_what_is_wrong_where(run: Run, tmp_path: Path) -> None:
    (tmp_path / "not-json").write_text("{")
    wrong = json.loads(CREATED.read_text())
    inner = json.loads(wrong["oslo.message"]) if "oslo.message" in wrong else wrong
    inner["payload"]["nova_object.data"]["locked"] = "perhaps"
    (tmp_path / "wrong").write_text(json.dumps(inner))
    result = run("notifications", "check", CREATED, tmp_path / "wrong", tmp_path / "not-json", tmp_path / "none")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert "valid" in lines[0]
    assert lines[1].startswith(f"{tmp_path}/wrong: payload.locked: ")
    assert lines[2].startswith(f"{tmp_path}/not-json: ")
    assert lines[3].startswith(f"{tmp_path}/none: file: cannot be read")


def test_check_can_be_read_by_programs(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    result = run("notifications", "check", "--output", "json", CREATED, tmp_path / "empty")
    assert result.exit_code == 1
    valid, invalid = json.loads(result.stdout)
    assert (valid["valid"], valid["event_type"], valid["problems"]) == (True, "instance.create.end", [])
    assert not invalid["valid"]
    assert invalid["problems"][0].keys() == {"where", "what"}


def test_emit_sends_to_the_first_cell_what_no_cell_knows(run: Run, cells: Sequence[Cell]) -> None:
    result = run("notifications", "emit", CREATED)
    assert result.exit_code == 0
    assert result.stdout == f"{CREATED}: instance.create.end sent to cell cell1\n"
    assert appended(cells[0]) == ["instance.create.end"]
    assert appended(cells[1]) == []


def test_emit_sends_to_the_cell_that_the_instance_lives_in(run: Run, cells: Sequence[Cell], tmp_path: Path) -> None:
    text = CREATED.read_text()
    document = json.loads(text)
    message = json.loads(document["oslo.message"]) if "oslo.message" in document else document
    (tmp_path / "mine.json").write_text(
        text.replace(message["payload"]["nova_object.data"]["uuid"], instance_of(cells[1]))
    )
    assert "sent to cell cell2" in run("notifications", "emit", "mine.json").stdout
    assert appended(cells[1]) == ["instance.create.end"]


def test_emit_refuses_invalid_files_and_sends_the_others(run: Run, cells: Sequence[Cell], tmp_path: Path) -> None:
    (tmp_path / "wrong").write_text("[]")
    result = run("notifications", "emit", "--cell", "cell2", "wrong", CREATED)
    assert result.exit_code == 1
    assert "1 of 2 files was not sent" in result.stderr
    assert appended(cells[1]) == ["instance.create.end"]


def test_emit_sends_nothing_to_a_cell_that_takes_no_announcements(run: Run, cells: Sequence[Cell]) -> None:
    assert run("cell", "set", "cell1", "--no-announcements").stdout == "cell1: takes no announcements\n"
    result = run("notifications", "emit", CREATED)
    assert result.exit_code == 1
    assert "cell cell1 takes no announcements of instances" in result.stderr
    assert "`fleetlight cell set cell1 --announcements` lets it" in result.stderr
    assert appended(cells[0]) == []
    assert run("cell", "set", "cell1", "--announcements").exit_code == 0
    assert run("notifications", "emit", CREATED).exit_code == 0
    assert appended(cells[0]) == ["instance.create.end"]


def test_schemas_are_written(run: Run, tmp_path: Path) -> None:
    result = run("notifications", "schemas", "schemas")
    assert result.exit_code == 0
    assert "schemas/fleetlight/InstancePayload-1.1.json" in result.stdout.splitlines()
    assert json.loads((tmp_path / "schemas" / "fleetlight" / "InstancePayload-1.1.json").read_text())["$schema"]


def test_cells_are_listed(run: Run, cells: Sequence[Cell]) -> None:
    assert [cell["name"] for cell in json.loads(run("cell", "list", "--output", "json").stdout)] == ["cell1", "cell2"]
    table = run("cell", "list").stdout
    assert cells[1].uuid in table
    assert "\x1b[" not in table


def test_database_upgrade_can_be_repeated(run: Run, cells: Sequence[Cell]) -> None:
    for _ in range(2):
        result = run("database", "upgrade")
        assert result.exit_code == 0
        assert result.stdout.splitlines() == [
            "fleet database: up to date",
            "cell cell1: up to date",
            "cell cell2: up to date",
        ]


def test_new_fleet_database_is_made_ready_by_upgrade(run: Run, empty_place: Path) -> None:
    (empty_place / "fleetlight.toml").write_text('[fleet]\ndatabase_url = "sqlite:///production.db"\n')
    failed = run("cell", "list")
    assert failed.exit_code == 1
    assert "`fleetlight database upgrade`" in failed.stderr
    assert run("database", "upgrade").exit_code == 0
    assert json.loads(run("cell", "list", "--output", "json").stdout) == []


def execute(database: Path, statement: str) -> None:
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute(statement)


@pytest.mark.usefixtures("migrated_each_time")
def test_database_that_a_newer_version_has_upgraded_is_refused_in_words(run: Run, cells: Sequence[Cell]) -> None:
    folder = DataFolder(Path("fleetlight-data"))
    execute(folder.cell_database("cell2"), "UPDATE fleetlight_cell_version SET version_num = 'cell_9999'")
    upgraded = run("database", "upgrade")
    assert upgraded.exit_code == 1
    assert "cell cell1: up to date" in upgraded.stdout
    assert "cell 'cell2' cannot be reached: a newer version of Fleetlight has upgraded its tables" in upgraded.stderr

    execute(folder.fleet_database, "UPDATE fleetlight_fleet_version SET version_num = 'fleet_9999'")
    for command in ("database", "upgrade"), ("up",):
        refused = run(*command)
        assert refused.exit_code == 1
        assert "the fleet database cannot be used: a newer version of Fleetlight has upgraded" in refused.stderr
        assert "(to fleet_9999)" in refused.stderr
        assert "restore a backup from before" in refused.stderr


def damage(database: Path) -> None:
    for file in database.parent.glob(f"{database.name}*"):
        file.unlink()
    database.write_text("no database at all, but a text that is long enough for one")


def test_cell_whose_database_is_damaged_is_named(run: Run, cells: Sequence[Cell]) -> None:
    folder = DataFolder(Path("fleetlight-data"))
    damage(folder.cell_database("cell2"))
    upgraded = run("database", "upgrade")
    assert upgraded.exit_code == 1
    assert "cell 'cell2' cannot be reached: file is not a database" in upgraded.stderr
    with closing(set_up_fleet(folder)) as fleet:
        assert [each.is_down for each in closed_cells(folder, fleet, 2)] == [False, True]


def test_damaged_fleet_database_is_named(run: Run, cells: Sequence[Cell]) -> None:
    folder = DataFolder(Path("fleetlight-data"))
    damage(folder.fleet_database)
    for command in (("database", "upgrade"), ("index", "status")):
        result = run(*command)
        assert result.exit_code == 1
        assert "the fleet database cannot be used: file is not a database; see fleet.database_url" in result.stderr
    with pytest.raises(FleetUnreachableError):
        set_up_fleet(folder)


@pytest.mark.parametrize(
    "command",
    [
        ("history", NEVER_SEEN),
        ("changes",),
        ("capacity",),
        ("balance",),
        ("reserve", "complete", NEVER_SEEN),
        ("usage", "--from", "2026-11-01T00:00:00Z"),
    ],
)
def test_command_that_our_application_answers_names_a_fleet_database_that_is_away(
    run: Run, monkeypatch: pytest.MonkeyPatch, command: Sequence[str]
) -> None:
    monkeypatch.setenv("FLEETLIGHT_FLEET_DATABASE_URL", "postgresql://fleetlight@127.0.0.1:1/fleet")
    result = run(*command)
    assert result.exit_code == 1
    assert "error: the fleet database cannot be reached: " in result.stderr


def test_status_of_cells_that_the_index_does_not_know(run: Run, cells: Sequence[Cell]) -> None:
    result = run("index", "status", "--output", "json")
    assert result.exit_code == 1
    first = json.loads(result.stdout)[0]
    assert (first["cell"], first["health"], first["complete"], first["watermark"]) == ("cell1", "unknown", False, None)


def test_status_without_an_index_shows_what_the_cells_know(run: Run, cells: Sequence[Cell]) -> None:
    for file in Path("fleetlight-data").glob("index.db*"):
        file.unlink()
    result = run("index", "status")
    assert result.exit_code == 1
    assert [line.split()[:4] for line in result.stdout.splitlines()[2:]] == [
        ["cell1", "unknown", "no", "changes"],
        ["cell2", "unknown", "no", "changes"],
    ]
    assert "the index cannot be read: " in result.stderr
    assert "`fleetlight up` makes it when it starts" in result.stderr


@pytest.mark.parametrize("url", ["nonsense", "mysql://db/fleet"])
def test_address_of_no_database_is_a_wrong_configuration(run: Run, monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("FLEETLIGHT_FLEET_DATABASE_URL", url)
    result = run("cell", "list")
    assert result.exit_code == 2
    assert result.stderr.startswith("error: database URL ")


@pytest.mark.parametrize(("command", "server"), [("sync", "Elasticsearch"), ("verify", "OpenSearch")])
def test_cluster_that_does_not_answer_is_named(
    run: Run, cells: Sequence[Cell], monkeypatch: pytest.MonkeyPatch, command: str, server: str
) -> None:
    monkeypatch.setenv("FLEETLIGHT_INDEX_BACKEND", server.lower())
    monkeypatch.setenv("FLEETLIGHT_INDEX_URLS", '["http://127.0.0.1:9"]')
    result = run("index", command)
    assert result.exit_code == 1
    assert result.stderr.startswith(f"error: {server} at http://127.0.0.1:9: ")
    assert "Connection refused" in result.stderr


def test_status_of_an_elasticsearch_that_is_away_does_not_say_that_it_was_never_there(
    run: Run, cells: Sequence[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETLIGHT_INDEX_BACKEND", "elasticsearch")
    monkeypatch.setenv("FLEETLIGHT_INDEX_URLS", '["http://127.0.0.1:9"]')
    result = run("index", "status")
    assert result.exit_code == 1
    assert "the index cannot be read: Elasticsearch at http://127.0.0.1:9: " in result.stderr
    assert "never there" not in result.stderr
    assert "until it can, lists are answered by the cells" in result.stderr


def test_sync_on_a_terminal_says_what_came_of_it_below_the_bars(run: Run, cells: Sequence[Cell]) -> None:
    """What is printed between bars that are still drawn is overwritten, and moves them."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "fleetlight.cli", "index", "sync", "--type", "OS::Nova::Server"]
    environment = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        shown = read_terminal(ours)
        assert process.wait() == 0
    end_of_the_bars = shown.rindex(SHOW_CURSOR)
    assert shown.index("cell1: 2 instances synced") > end_of_the_bars
    assert shown.index("cell2: 2 instances synced") > end_of_the_bars


def test_sync_fills_the_index(run: Run, cells: Sequence[Cell]) -> None:
    result = run("index", "sync", "--type", "OS::Nova::Server", "--cell", "cell2")
    assert result.exit_code == 0
    assert result.stdout.startswith("cell2: 2 instances synced")
    with closing(open_writer(load_settings(None, None).index)) as writer:
        assert writer.read([instance_of(cells[1])]).keys() == {instance_of(cells[1])}
        assert writer.load_progress()[cells[1].uuid].is_complete
        assert writer.read([instance_of(cells[0])]) == {}


def test_sync_and_verify_say_how_many_instances_are_deleted(run: Run, cells: Sequence[Cell]) -> None:
    uuid = instance_of(cells[0])
    engine = create_database_engine(cells[0].database_url)
    with writing(engine) as connection:
        connection.execute(update(instances).where(instances.c.uuid == uuid).values(deleted=True))
    engine.dispose()
    with open_fleet(load_settings(None, None).fleet) as fleet:
        fleet.mark_queued_for_delete(cells[0].uuid, [uuid])
    result = run("index", "sync", "--cell", "cell1")
    assert result.stdout.startswith("cell1: 2 instances synced, 1 of them deleted, complete up to sequence ")
    table = run("index", "verify", "--cell", "cell1").stdout.splitlines()
    assert table[0].split()[:5] == ["CELL", "AGREES", "INSTANCES", "DELETED", "INDEXED"]
    assert table[2].split()[:5] == ["cell1", "yes", "2", "1", "2"]


def test_sync_of_something_unknown_names_what_is_known(run: Run, cells: Sequence[Cell]) -> None:
    result = run("index", "sync", "--type", "OS::Nova::Flavor")
    assert result.exit_code == 2
    assert "OS::Nova::Server, OS::Nova::Hypervisor" in result.stderr


def test_sync_of_one_type_leaves_the_others(run: Run, cells: Sequence[Cell]) -> None:
    result = run("index", "sync", "--type", "OS::Nova::Hypervisor", "--cell", "cell1")
    assert (result.exit_code, result.stdout) == (0, "cell1: 8 nodes synced\n")
    rows = [line.split()[:4] for line in run("index", "status").stdout.splitlines()[2:]]
    unfollowed = [["cell1", "unknown", "no", "changes"], ["cell2", "unknown", "no", "changes"]]
    assert rows == unfollowed, "nobody follows them yet"
    assert run("index", "sync").stdout.splitlines()[1::2] == ["cell1: 8 nodes synced", "cell2: 8 nodes synced"]
    [first, second] = json.loads(run("index", "status", "--output", "json").stdout)
    assert first["items"] == second["items"] == {"node": 8}
    result = run(
        "index", "sync", "--type", "OS::Nova::Hypervisor", "--source", "api", "--cell", "cell1", "--url", "http://x"
    )
    assert result.exit_code == 2
    assert "--source api reads instances alone" in result.stderr


def test_sync_goes_on_when_one_cell_is_away(run: Run, cells: Sequence[Cell]) -> None:
    database = Path("fleetlight-data/cells/cell1.db")
    for file in database.parent.glob("cell1.db*"):
        file.unlink()
    database.mkdir()
    result = run("index", "sync", "--type", "OS::Nova::Server")
    assert result.exit_code == 1
    assert "cell 'cell1' cannot be reached" in result.stderr
    assert "not synced completely: cell1" in result.stderr
    assert result.stdout.startswith("cell2: 2 instances synced")


@pytest.mark.parametrize("command", ["relay", "indexer"])
def test_parts_of_an_embedded_fleet_do_not_run_alone(run: Run, cells: Sequence[Cell], command: str) -> None:
    result = run(command)
    assert result.exit_code == 2
    assert "inside the process of `fleetlight up`" in result.stderr


@pytest.mark.parametrize("command", ["api", "up"])
def test_listening_to_everybody_has_to_be_wanted(run: Run, cells: Sequence[Cell], command: str) -> None:
    result = run(command, "--auth", "none", "--host", "0.0.0.0")  # noqa: S104 -- that it is refused is what is tested
    assert result.exit_code == 2
    assert "--insecure" in result.stderr


def test_moved_data_folder_still_works(run: Run, cells: Sequence[Cell], empty_place: Path) -> None:
    (empty_place / "fleetlight-data").rename(empty_place / "moved")
    folder = DataFolder(empty_place / "moved")
    fleet = set_up_fleet(folder)
    closed_cells(folder, fleet, 1)
    fleet.close()
    listed = json.loads(run("cell", "list", "--output", "json", "--data-dir", "moved").stdout)
    assert [cell["database_url"] for cell in listed] == [
        f"sqlite:///{empty_place}/moved/cells/{name}.db" for name in ("cell1", "cell2")
    ]


def test_options_of_the_simulation_need_it(run: Run) -> None:
    result = run("up", "--rate", "3")
    assert result.exit_code == 2
    assert "add --simulate" in result.stderr


def test_a_fleet_database_that_is_not_there_is_not_made_by_looking(
    run: Run, empty_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETLIGHT_FLEET_DATABASE_URL", f"sqlite:///{empty_place}/none.db")
    result = run("cell", "list")
    assert result.exit_code == 1
    assert (
        "cannot be used: unable to open database file; `fleetlight database upgrade` makes a new one" in result.stderr
    )
    assert not (empty_place / "none.db").exists()


def test_cells_are_in_the_order_in_which_people_count(run: Run, empty_place: Path) -> None:
    folder = DataFolder(empty_place / "fleetlight-data")
    folder.create()
    fleet = set_up_fleet(folder)
    closed_cells(folder, fleet, 11)
    fleet.close()
    result = run("cell", "list", "--output", "json")
    assert [cell["name"] for cell in json.loads(result.stdout)] == [f"cell{number}" for number in range(1, 12)]


def test_status_of_a_fleet_that_does_not_run_says_so(run: Run, cells: Sequence[Cell]) -> None:
    assert run("index", "sync", "--type", "OS::Nova::Server").exit_code == 0
    config = Path("strict.toml")
    config.write_text("[search]\nstaleness_limit_s = 1e-9\n", encoding="utf-8")
    result = run("index", "status", "--config", config)
    assert result.exit_code == 1
    names = ", ".join(cell.name for cell in cells)
    assert f"that the index has every change of {names}; does `fleetlight up` run?" in result.stderr
    assert "says in its log what it waits for" in result.stderr


@pytest.mark.parametrize(
    ("lag", "question"),
    [(0, "do `fleetlight relay` and `fleetlight indexer` run?"), (1, "does `fleetlight indexer` run?")],
)
def test_stale_cell_of_which_all_is_indexed_that_was_published_may_lack_a_relay(
    run: Run, cells: Sequence[Cell], lag: int, question: str
) -> None:
    """Of such a cell the status alone cannot tell which of the two it is."""
    assert run("index", "sync", "--type", "OS::Nova::Server").exit_code == 0
    settings = load_settings(None, None)
    with closing(Fleet(create_database_engine(settings.fleet.database_url.get_secret_value()))) as fleet:
        # Such a fleet is not one of `fleetlight up`.
        fleet.add_cell(cells[0].name, cells[0].kind, cells[0].database_url, "amqp://127.0.0.1:1//")
    engine = create_database_engine(cells[1].database_url)
    with engine.begin() as connection:
        connection.execute(update(cell_state).values(last_sequence=lag))
    engine.dispose()
    Path("strict.toml").write_text("[search]\nstaleness_limit_s = 1e-9\n", encoding="utf-8")
    result = run("index", "status", "--config", "strict.toml")
    assert f"has every change of {cells[1].name}; {question}" in result.stderr


def test_status_tells_of_a_repair_that_was_cut_off(run: Run, cells: Sequence[Cell]) -> None:
    assert run("index", "sync").exit_code == 0
    with closing(open_writer(load_settings(None, None).index)) as writer:
        writer.save_state(REPAIRS, {cells[0].uuid: True})
    result = run("index", "status")
    assert result.exit_code == 1
    of_repair = f"{cells[0].name}: the index was found to differ"
    assert of_repair in result.stderr
    assert f"{cells[1].name}: the index was found to differ" not in result.stderr
    of_cells = json.loads(run("index", "status", "--output", "json").stdout)
    assert "found to differ" in of_cells[0]["lists_ask_cell"]
    run("index", "verify", "--repair")
    assert of_repair not in run("index", "status").stderr


def test_status_says_that_lists_are_not_to_use_the_index(
    run: Run, cells: Sequence[Cell], monkeypatch: pytest.MonkeyPatch
) -> None:
    notice = "search.enabled is off in this configuration: an API that has it lists from the cells alone"
    assert notice not in run("index", "status").stderr
    monkeypatch.setenv("FLEETLIGHT_SEARCH_ENABLED", "false")
    assert notice in run("index", "status").stderr


def test_status_says_that_lists_ask_a_cell_for_the_nodes_that_the_index_lacks(run: Run, cells: Sequence[Cell]) -> None:
    assert run("index", "sync", "--type", "OS::Nova::Server").exit_code == 0
    settings = load_settings(None, None)
    with closing(open_writer(settings.index)) as writer:
        known = writer.load_progress()[cells[0].uuid]
        writer.save_progress([replace(known, fresh_as_of=system_clock())])
    result = run("index", "status")
    assert "cell1: the index does not have every node of the cell; lists ask the cell" in result.stderr
    assert json.loads(run("index", "status", "--output", "json").stdout)[0]["health"] == "ok"


def lease_holder(purpose: str) -> CellLeases:
    engine = create_database_engine(load_settings(None, None).fleet.database_url.get_secret_value())
    return CellLeases(Fleet(engine).open_leases(purpose))


def test_second_sync_of_a_cell_says_who_holds_it(run: Run, cells: Sequence[Cell]) -> None:
    with closing(lease_holder("index sync")) as leases, leases.bulk(cells[0]):
        result = run("index", "sync", "--type", "OS::Nova::Server")
    assert result.exit_code == 1
    assert f"cell 'cell1' is being worked on by index sync (process {os.getpid()} on " in result.stderr
    assert result.stdout.startswith("cell2: 2 instances synced")
    assert run("index", "sync", "--type", "OS::Nova::Server", "--cell", "cell1").exit_code == 0


def test_cell_that_is_being_synced_is_not_verified_and_does_not_count_as_equal(run: Run, cells: Sequence[Cell]) -> None:
    assert run("index", "sync").exit_code == 0
    with closing(lease_holder("index sync")) as leases, leases.bulk(cells[0]):
        result = run("index", "verify")
    assert result.exit_code == 1
    assert "cell 'cell1' is being worked on by index sync" in result.stderr
    assert run("index", "verify", "--cell", "cell1").exit_code == 0


def test_cell_of_a_data_folder_is_not_removed_since_it_would_be_made_again(run: Run, cells: Sequence[Cell]) -> None:
    name = cells[1].name
    assert run("cell", "disable", name).exit_code == 0
    result = run("cell", "remove", name, "--yes")
    assert result.exit_code == 2
    assert f"cell {name} is one of a data folder" in result.stderr
    assert [each["name"] for each in json.loads(run("cell", "list", "--output", "json").stdout)] == ["cell1", "cell2"]
