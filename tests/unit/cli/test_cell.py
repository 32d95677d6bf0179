"""Cells that join and leave a configured fleet; its databases are SQLite files."""

import json
import re
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import delete
from typer.testing import CliRunner

from fleetlight.bus.bus import Publisher
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine, writing
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.native.relay import Relay
from fleetlight.cells.migrations import upgrade_cell
from fleetlight.cells.model import Cell
from fleetlight.cells.settings import RelaySettings
from fleetlight.cells.tables import instances
from fleetlight.cells.upstream.address import UpstreamAddress
from fleetlight.cli.app import app
from fleetlight.cli.settings import load_settings
from fleetlight.indexer.backends.opening import open_writer
from scripts.servers.certificates import CA_FILE, make_certificates
from tests.support.fleets.instance_operations import InstanceOperations
from tests.unit.cli.conftest import Run

BUS = "amqp://guest:hidden@127.0.0.1:9//"
SYNC = ("index", "sync", "--type", "OS::Nova::Server")


@pytest.fixture(autouse=True)
def fleet_file(empty_place: Path, run: Run) -> Path:
    file = empty_place / "fleetlight.toml"
    file.write_text(f'[fleet]\ndatabase_url = "sqlite:///{empty_place}/fleet.db"\ncells_refresh_interval_s = 0.1\n')
    assert run("database", "upgrade").exit_code == 0
    return file


@pytest.fixture
def database(empty_place: Path) -> str:
    return f"sqlite:///{empty_place}/one.db"


@pytest.fixture
def cell(run: Run, database: str) -> Cell:
    result = run("cell", "add", "native", "one", "--database-url", database, "--transport-url", BUS)
    assert result.exit_code == 0, result.stderr
    (listed,) = listed_cells(run)
    return Cell(str(listed["uuid"]), "one", CellKind.NATIVE, database, BUS)


def listed_cells(run: Run) -> Sequence[dict[str, object]]:
    cells: Sequence[dict[str, object]] = json.loads(run("cell", "list", "--output", "json").stdout)
    return cells


def create_instances(cell: Cell, count: int) -> list[str]:
    engine = create_database_engine(cell.database_url)
    fleet = Fleet(create_database_engine(load_settings(None, None).fleet.database_url.get_secret_value()))
    changed = InstanceOperations(engine, fleet, cell).create_many([{} for _ in range(count)])
    fleet.close()
    engine.dispose()
    return [each.uuid for each in changed]


def test_added_cell_is_ready_and_its_passwords_are_not_shown(run: Run, cell: Cell) -> None:
    assert len(create_instances(cell, 2)) == 2
    (listed,) = listed_cells(run)
    assert (listed["name"], listed["kind"], listed["disabled"]) == ("one", "native", False)
    assert "hidden" not in str(listed)


def test_adding_again_brings_the_urls_up_to_date_and_keeps_the_uuid(run: Run, cell: Cell) -> None:
    create_instances(cell, 2)
    other_bus = "amqps://other.example//"
    result = run("cell", "add", "native", "one", "--database-url", cell.database_url, "--transport-url", other_bus)
    assert result.exit_code == 0
    assert result.stdout == f"one: brought up to date, uuid {cell.uuid}, 2 instances\n"
    (listed,) = listed_cells(run)
    assert (listed["uuid"], listed["transport_url"]) == (cell.uuid, other_bus)


def test_database_that_has_nothing_of_a_known_cell_is_refused(run: Run, cell: Cell, empty_place: Path) -> None:
    create_instances(cell, 2)
    other = f"sqlite:///{empty_place}/other.db"
    upgrade_cell(create_database_engine(other))
    result = run("cell", "add", "native", "one", "--database-url", other, "--transport-url", BUS)
    assert result.exit_code == 2
    said = " ".join(result.stderr.split())
    assert "another database than that of cell one, which has 2 instances, and has none of those" in said
    assert listed_cells(run)[0]["database_url"] == cell.database_url


@pytest.mark.parametrize("place", ["one.db", "other.db"])
def test_no_empty_database_is_made_for_a_known_cell(run: Run, cell: Cell, empty_place: Path, place: str) -> None:
    create_instances(cell, 2)
    for each in empty_place.glob("one.db*"):
        each.unlink()
    url = f"sqlite:///{empty_place}/{place}"
    add = ("cell", "add", "native", "one", "--database-url", url, "--transport-url", BUS)
    for command in (add, ("database", "upgrade")):
        result = run(*command)
        assert result.exit_code == 1
        said = " ".join(result.stderr.split())
        assert "cell 'one' cannot be reached: the file of its database is not there" in said
    assert not list(empty_place.glob("o*.db"))


def test_database_that_was_moved_is_taken_and_said(run: Run, cell: Cell, empty_place: Path) -> None:
    _, lost = create_instances(cell, 2)
    (empty_place / "one.db").rename(empty_place / "moved.db")
    moved = f"sqlite:///{empty_place}/moved.db"
    engine = create_database_engine(moved)
    with writing(engine) as connection:
        connection.execute(delete(instances).where(instances.c.uuid == lost))
    engine.dispose()
    result = run("cell", "add", "native", "one", "--database-url", moved, "--transport-url", BUS)
    assert result.exit_code == 0
    assert result.stdout == f"one: brought up to date, uuid {cell.uuid}, 1 instance\n"
    assert "one: its database is now" in result.stderr
    assert listed_cells(run)[0]["database_url"] == moved


def test_cell_without_instances_may_get_any_database(run: Run, cell: Cell, empty_place: Path) -> None:
    other = f"sqlite:///{empty_place}/other.db"
    result = run("cell", "add", "native", "one", "--database-url", other, "--transport-url", BUS)
    assert result.exit_code == 0
    assert "one: its database is now" in result.stderr


def test_urls_come_from_files_or_the_environment(
    run: Run, database: str, empty_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (empty_place / "db").write_text(database + "\n")
    monkeypatch.setenv("FLEETLIGHT_CELL_TRANSPORT_URL", BUS)
    result = run("cell", "add", "native", "one", "--database-url-file", "db")
    assert result.exit_code == 0, result.stderr
    assert listed_cells(run)[0]["database_url"] == database


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["a=b"], "cannot be the name of a cell"),
        (["00000000-0000-4000-8000-000000000000"], "not a uuid"),
        (["one", "--database-url", "mysql://root:secret@db/one"], "'mysql' is not supported"),
        (["one", "--database-url", "secret"], "--database-url: it is not a URL like"),
        (["one", "--database-url", "sqlite:///one.db"], "give an absolute path"),
        (
            ["one", "--transport-url", "redis://:secret@bus"],
            "no bus speaks 'redis': the address must begin with amqp:// or amqps://\n",
        ),
        (["one", "--transport-url", "amqp://me:sec/ret@bus"], "the address of the bus cannot be read"),
        (["one", "--transport-url", "memory://"], "`fleetlight up --cells N`"),
        (["one", "--transport-url-file", "bus"], "give either --transport-url or --transport-url-file"),
    ],
)
def test_what_cannot_work_is_refused_with_what_would(
    run: Run, database: str, arguments: Sequence[str], problem: str
) -> None:
    rest = [] if "--database-url" in arguments else ["--database-url", database]
    rest += [] if "--transport-url" in arguments else ["--transport-url", BUS]
    result = run("cell", "add", "native", *arguments, *rest)
    assert result.exit_code == 2
    assert problem in result.stderr
    assert "sec" not in result.stderr
    assert listed_cells(run) == []


def test_bus_is_changed_without_asking_for_the_database_again(run: Run, cell: Cell) -> None:
    changed = run("cell", "add", "native", "one", "--transport-url", "amqp://guest:hidden@127.0.0.2:9//")
    assert (changed.exit_code, changed.stderr) == (0, "")
    assert "127.0.0.2" in changed.stdout
    assert "hidden" not in changed.stdout
    (listed,) = listed_cells(run)
    assert "127.0.0.2" in str(listed["transport_url"])
    assert (listed["uuid"], listed["database_url"]) == (cell.uuid, cell.database_url)
    assert run("cell", "add", "native", "one", "--transport-url", "memory://").exit_code == 2
    assert run("cell", "add", "native", "two", "--transport-url", BUS).exit_code == 2, "a new one needs a database"


def test_database_is_moved_without_asking_for_the_bus_again(run: Run, cell: Cell, empty_place: Path) -> None:
    (empty_place / "one.db").rename(empty_place / "moved.db")
    moved = f"sqlite:///{empty_place}/moved.db"
    changed = run("cell", "add", "native", "one", "--database-url", moved)
    assert (changed.exit_code, changed.stderr) == (0, f"one: its database is now {moved}\n")
    with closing(
        Fleet(create_database_engine(load_settings(None, None).fleet.database_url.get_secret_value()))
    ) as fleet:
        stored = fleet.cell("one")
    assert (stored.uuid, stored.database_url, stored.transport_url) == (cell.uuid, moved, BUS)


def test_what_has_not_changed_is_not_said_to_have(run: Run, cell: Cell) -> None:
    again = run("cell", "add", "native", "one", "--database-url", cell.database_url, "--transport-url", BUS)
    assert (again.exit_code, again.stderr) == (0, "")
    bus = run("cell", "add", "native", "one", "--database-url", cell.database_url, "--transport-url", "amqp://bus2//")
    assert bus.stderr == "one: its bus is now amqp://bus2//\n"


def test_url_that_is_missing_is_asked_for(run: Run, database: str) -> None:
    result = run("cell", "add", "native", "one", "--database-url", database)
    assert result.exit_code == 2
    assert "--transport-url" in result.stderr


def test_database_of_another_cell_is_refused(run: Run, cell: Cell) -> None:
    result = run("cell", "add", "native", "two", "--database-url", cell.database_url, "--transport-url", BUS)
    assert result.exit_code == 2
    assert "the database of cell 'one' already" in result.stderr


def test_database_that_cannot_be_reached_is_not_registered(run: Run, empty_place: Path) -> None:
    url = f"sqlite:///{empty_place}/missing/one.db"
    result = run("cell", "add", "native", "one", "--database-url", url, "--transport-url", BUS)
    assert result.exit_code == 1
    assert "cell 'one' cannot be reached" in result.stderr
    assert listed_cells(run) == []


def test_disabled_cell_is_listed_as_such_until_it_is_enabled(run: Run, cell: Cell) -> None:
    assert run("cell", "disable", "one").stdout == "one: disabled\n"
    assert listed_cells(run)[0]["disabled"] is True
    assert "disabled" in run("cell", "list").stdout
    assert run("cell", "enable", cell.uuid).stdout == "one: enabled\n"
    assert listed_cells(run)[0]["disabled"] is False


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """No list is under way."""
    monkeypatch.setattr("fleetlight.indexer.reconcile.cell_removal.LISTS_DELAY_S", 0)


def test_removed_cell_leaves_no_row_and_its_database_stays(run: Run, cell: Cell) -> None:
    uuids = create_instances(cell, 3)
    assert run(*SYNC).exit_code == 0
    assert run("cell", "disable", "one").exit_code == 0
    result = run("cell", "remove", "one", "--yes")
    assert result.exit_code == 0, result.stderr
    assert "waiting 0 s, until no list counts on the index to have all of the cell" in result.stderr
    assert result.stdout == ("one: removed, 3 rows from the index and 3 instance mappings; its database is as it was\n")
    # There is no broker.
    assert f"delete its queues fleetlight.{cell.uuid}.index and fleetlight.{cell.uuid}.dead" in result.stderr
    assert "hidden" not in result.stderr
    assert listed_cells(run) == []
    with closing(open_writer(load_settings(None, None).index)) as writer:
        assert writer.read(uuids) == {}
        assert writer.load_progress() == {}
    again = run("cell", "add", "native", "one", "--database-url", cell.database_url, "--transport-url", BUS)
    assert again.stdout.endswith(", 3 instances\n")
    assert run(*SYNC).stdout.startswith("one: 3 instances synced")
    with closing(open_writer(load_settings(None, None).index)) as writer:
        assert writer.read(uuids).keys() == set(uuids)


def test_cell_in_use_is_not_removed(run: Run, cell: Cell) -> None:
    result = run("cell", "remove", "one", "--yes")
    assert result.exit_code == 1
    assert "`fleetlight cell disable one`" in result.stderr
    assert len(listed_cells(run)) == 1


def test_cell_with_an_active_relay_is_not_removed(run: Run, cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEETLIGHT_FLEET_CELLS_REFRESH_INTERVAL_S", "0.1")
    monkeypatch.setattr("fleetlight.cli.cells.cell._FINISHING_S", 0.1)
    run("cell", "disable", "one")
    engine = create_database_engine(cell.database_url)
    relay = Relay(engine, cell, Publisher("memory://", cell.uuid), RelaySettings())
    relay.run_once()
    result = run("cell", "remove", "one", "--yes")
    relay.close()
    engine.dispose()
    assert result.exit_code == 1
    assert "a relay still publishes its changes" in result.stderr
    assert run("cell", "remove", "one", "--yes").exit_code == 0


def test_cell_whose_database_is_gone_can_be_removed(run: Run, cell: Cell, empty_place: Path) -> None:
    run("cell", "disable", "one")
    for file in empty_place.glob("one.db*"):
        file.unlink()
    assert run("cell", "remove", "one", "--yes").exit_code == 0


def test_nobody_is_asked_where_nobody_can_answer(run: Run, cell: Cell) -> None:
    run("cell", "disable", "one")
    result = run("cell", "remove", "one")
    assert result.exit_code == 2
    assert "--yes" in result.stderr
    assert len(listed_cells(run)) == 1


@pytest.mark.parametrize(("answer", "left"), [("y\n", 0), ("n\n", 1)])
def test_removal_is_confirmed_on_a_terminal(
    run: Run, cell: Cell, monkeypatch: pytest.MonkeyPatch, answer: str, left: int
) -> None:
    run("cell", "disable", "one")
    monkeypatch.setattr("fleetlight.cli.cells.cell.is_terminal", lambda: True)
    result = CliRunner().invoke(app, ["cell", "remove", "one"], input=answer)
    assert result.exit_code == left
    assert len(listed_cells(run)) == left


def test_cells_of_a_data_folder_are_made_by_up(run: Run, database: str, fleet_file: Path, empty_place: Path) -> None:
    fleet_file.write_text(f'[fleet]\ndatabase_url = "sqlite:///{empty_place}/fleetlight-data/fleet.db"\n')
    result = run("cell", "add", "native", "one", "--database-url", database, "--transport-url", BUS)
    assert result.exit_code == 2
    assert "`fleetlight up --cells N`" in result.stderr


def test_compute_api_joins_with_where_its_login_is_and_without_its_secrets(run: Run, empty_place: Path) -> None:
    (empty_place / "password").write_text("secret")
    login = ("--username", "fleetlight", "--password-file", "password")
    result = run("cell", "add", "nova-api", "east", "--url", "http://127.0.0.1:9/v2.1", *login)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith("east: added, uuid ")
    assert "east: it cannot be read yet: http://127.0.0.1:9/v2.1 cannot be reached" in result.stderr
    (listed,) = listed_cells(run)
    assert (listed["kind"], listed["transport_url"]) == ("nova-api", "")
    assert str(listed["database_url"]).startswith("http://127.0.0.1:9/v2.1?username=fleetlight&password_file=")
    assert "secret" not in str(listed)
    # Whoever reads it may run anywhere.
    assert str(empty_place).replace("/", "%2F") in str(listed["database_url"])


def east(run: Run) -> tuple[UpstreamAddress, str]:
    """Address and bus of the cell of that name."""
    (listed,) = listed_cells(run)
    return UpstreamAddress.read(str(listed["database_url"])), str(listed["transport_url"])


@pytest.fixture
def compute_api(run: Run, empty_place: Path) -> UpstreamAddress:
    """A cell `east` with a bus, a login and an authority."""
    for name in ("password", "newer", "token"):
        (empty_place / name).write_text("secret")
    make_certificates("these tests", empty_place)
    login = ("--username", "fleetlight", "--password-file", "password", "--ca-certs", CA_FILE)
    url = ("--url", "https://127.0.0.1:9/v2.1", "--transport-url", "amqp://bus1//")
    assert run("cell", "add", "nova-api", "east", *url, *login).exit_code == 0
    return east(run)[0]


def test_what_is_not_given_of_an_api_stays(run: Run, empty_place: Path, compute_api: UpstreamAddress) -> None:
    for arguments, changed in (
        (("--url", "https://127.0.0.1:9/v2.1"), compute_api),
        (("--url", "https://127.0.0.2:9/v2.1"), replace(compute_api, url="https://127.0.0.2:9/v2.1")),
        (
            ("--password-file", "newer", "--url", "https://127.0.0.1:9/v2.1"),
            replace(compute_api, password_file=empty_place / "newer"),
        ),
        (("--password-file", "password"), compute_api),
        (
            ("--token-file", "token"),
            replace(compute_api, username=None, password_file=None, token_file=empty_place / "token"),
        ),
    ):
        before = east(run)[0]
        result = run("cell", "add", "nova-api", "east", *arguments)
        assert result.exit_code == 0, result.stderr
        assert east(run) == (changed, "amqp://bus1//"), arguments
        assert ("its address is now" in result.stderr) is (changed != before)


def test_bus_and_login_of_an_api_are_changed_together(
    run: Run, empty_place: Path, compute_api: UpstreamAddress
) -> None:
    result = run("cell", "add", "nova-api", "east", "--transport-url", "amqp://bus2//", "--password-file", "newer")
    assert result.exit_code == 0, result.stderr
    assert east(run) == (replace(compute_api, password_file=empty_place / "newer"), "amqp://bus2//")
    assert "east: its bus is now amqp://bus2//" in result.stderr


@pytest.mark.usefixtures("compute_api")
def test_database_of_a_cell_that_has_none_is_refused(run: Run, database: str) -> None:
    before = east(run)
    result = run("cell", "add", "native", "east", "--database-url", database, "--transport-url", BUS)
    assert (result.exit_code, "'nova-api'" in result.stderr) == (2, True), result.stderr
    assert "`fleetlight cell add nova-api east`" in " ".join(result.stderr.split())
    assert east(run) == before


@pytest.mark.parametrize(
    ("arguments", "instead"),
    [
        (["one", "--database-url", "sqlite:////secret"], "native one"),
        (["east", "--kind", "nova-api", "--url", "http://nova/v2.1"], "nova-api east"),
        (["farm", "--kind=ganeti"], "ganeti farm"),
        (["--kind", "nova-db", "cell1"], "nova-db NAME"),
        (["one", "--kind", "xen"], "native one"),
    ],
)
def test_kind_behind_the_name_is_refused_with_what_to_type_instead(
    run: Run, arguments: Sequence[str], instead: str
) -> None:
    result = run("cell", "add", *arguments)
    assert result.exit_code == 2
    said = " ".join(result.stderr.split())
    assert f"`fleetlight cell add {instead} ...`" in said
    assert "native, nova-db, nova-api, ganeti" in said
    assert "secret" not in said
    assert listed_cells(run) == []


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("native", {"database-url", "database-url-file", "transport-url", "transport-url-file"}),
        ("ganeti", {"url", "username", "password-file", "ca-certs"}),
    ],
)
def test_command_of_a_kind_has_the_options_of_that_kind_alone(run: Run, kind: str, options: set[str]) -> None:
    shown = run("cell", "add", kind, "--help").stdout.partition("Examples:")[0]
    found = set(re.findall(r"--[a-z-]+", shown.partition("Options")[2]))
    assert {f"--{option}" for option in options} <= found
    assert found - {f"--{option}" for option in options} <= {"--config", "--data-dir", "--help", "--user", "--ca-file"}


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "--url is missing"),
        (["--url", "nova"], "must be like https://"),
        (["--url", "http://nova/v2.1", "--username", "me"], "belong together"),
        (["--url", "http://nova/v2.1", "--os-cloud", "x", "--clouds-file", "no"], "cannot read"),
        (["--url", "http://nova/v2.1", "--transport-url", f"{BUS}?queue=q"], "is not known"),
        (["--url", "http://nova/v2.1", "--token-file", "no-such"], "cannot read"),
        (["--url", "http://nova/v2.1", "--token-file", "empty"], "is empty"),
    ],
)
def test_compute_api_that_cannot_work_is_refused_and_not_added(
    run: Run, empty_place: Path, arguments: Sequence[str], problem: str
) -> None:
    (empty_place / "empty").touch()
    result = run("cell", "add", "nova-api", "east", *arguments)
    assert result.exit_code == 2
    assert problem in result.stderr
    assert listed_cells(run) == []
