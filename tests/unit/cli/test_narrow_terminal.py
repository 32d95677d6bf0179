"""Every command that prints data, on a terminal of 80 columns and piped, over a fleet with long names."""

import csv
import io
import re
from collections.abc import Sequence
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from fleetlight.bus.bus import Message
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fleet.audit_rounds import AuditRound
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.fleet.index_work import WorkKind
from fleetlight.cli.app import app
from fleetlight.indexer.errors import DeadLetterReason
from fleetlight.indexer.writing.dead_letters import DeadLetter, to_failure
from fleetlight.manager.operations.hosts.cell_nodes import CellNodes, NewHost
from fleetlight.resources.amount import Amount
from tests.support.fleets.instance_operations import InstanceOperations
from tests.support.memory.memory_cell import NOW, ROUTING_KEY
from tests.unit.cli.conftest import Run, run_command, work_in
from tests.unit.cli.test_grammar import PRINTING_DATA
from tests.unit.cli.test_list_items import FLAVOR
from tests.unit.cli.test_output import Terminal

CELL = f"cell-{'c' * 40}"
HOSTS = [f"compute-{'h' * 40}-{number}.example.org" for number in range(2)]
PROJECT_NAME = f"project-{'p' * 50}"
WHY = f"message: is not JSON, {'since it was cut off somewhere between its producer and the bus of its cell; ' * 3}end"
SAMPLE = Path(__file__).parents[3] / "notifications" / "samples" / "instance.create.end.json"
COMMANDS = {
    "accounts producers": (),
    "balance": (),
    "capacity": ("--parts",),
    "cell list": (),
    "doctor": (),
    "findings": (),
    "explain": ("GET /v2.1/servers?name=web",),
    "host list": (CELL,),
    "identity project list": (),
    "index failures list": (),
    "index fields": (),
    "index status": (),
    "index work list": (),
    "notifications check": (SAMPLE,),
    "status": (),
    "subscribe list": (),
    "usage": ("--from", "2026-01-01T00:00:00Z", "--by", "project,flavor,cell"),
}
OF_ONE_THING = {"changes", "history", "index failures show", "index work show", "reserve show", "subscribe show"}
"""They show names and values line by line, and no table."""
AS_GANETI = {"list", "list-fields", "reserve list"}
"""Their lines are those of Ganeti's commands, which scripts take apart."""
WAITING = {"index verify"}
"""It waits for an indexer to catch up; its table is made by the same function."""
OF_NOVA = {"cell add-nova", "compare"}
"""Their tables tell of a Nova, which tests/unit/cli/test_cells_of_nova.py and tests/unit/cli/compare have."""
SHORT = {
    "identity credential list",
    "identity role list",
    "identity user list",
    "index find",
    "subscribe failures",
}
"""Made as `identity project list` and `index failures list`, by the same function, and of the same names."""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The working directory of the operator of a fleet with long names, which the tests only read."""
    place = tmp_path_factory.mktemp("narrow")
    with pytest.MonkeyPatch.context() as patch:
        work_in(place, patch)
        fill(place)
    return place


@pytest.fixture(autouse=True)
def terminal(place: Path, empty_place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the working directory of the fleet, not in the `empty_place`, with a terminal of 80 columns."""
    monkeypatch.chdir(place)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")


def fill(place: Path) -> None:
    """A cell with two hosts, three instances on one of them, and two failures; each name is long."""
    url, of_cell = f"sqlite:///{place}/fleet.db", f"sqlite:///{place}/one.db"
    (place / "fleetlight.toml").write_text(
        f'[fleet]\ndatabase_url = "{url}"\n[identity]\nfile = "{place}/identity.json"\n'
    )
    for command in (
        ("database", "upgrade"),
        ("cell", "add", "native", CELL, "--database-url", of_cell, "--transport-url", "amqp://127.0.0.1:9//"),
        ("identity", "project", "add", PROJECT_NAME, "--description", "what it is for, in so many words " * 4),
    ):
        done = run_command(*command)
        assert done.exit_code == 0, done.stderr
    engine, fleet = create_database_engine(of_cell), Fleet(create_database_engine(url))
    cell = fleet.cell(CELL)
    CellNodes(engine, cell).add_hosts([NewHost(host, Amount.of_gib(16, 65536, 400)) for host in HOSTS])
    placed = {"image_ref": "", "power_state": 1, "host": HOSTS[0], "node": HOSTS[0]}
    for number in range(3):
        values = {"display_name": f"web{number}-{'w' * 60}", "project_id": "a", "user_id": "ada", "flavor": FLAVOR}
        InstanceOperations(engine, fleet, cell).create({**values, **placed})
    letter = DeadLetter(Message(b"{", ROUTING_KEY, {}), DeadLetterReason.MALFORMED, WHY)
    fleet.failures.add([to_failure(cell.uuid, letter, NOW)])
    fleet.index_work.order(WorkKind.VERIFY, [cell.uuid], f"operator-{'o' * 60}", NOW)
    added = run_command("subscribe", "add", "s" * 60, "--url", f"https://{'hooks.' * 12}example.org/{'h' * 40}")
    assert added.exit_code == 0, added.stderr
    fleet.audit_rounds.record(cell.uuid, AuditRound(NOW, 3, 2, 1))
    fleet.close()
    engine.dispose()


def on_terminal(*arguments: str) -> str:
    with redirect_stdout(Terminal()) as shown:
        app(list(arguments), standalone_mode=False)
    return shown.getvalue()


def without_blanks(text: str) -> str:
    return "".join(text.split())


def test_each_command_that_prints_data_is_held_to_its_width() -> None:
    assert COMMANDS.keys() | OF_ONE_THING | AS_GANETI | OF_NOVA | SHORT | WAITING == PRINTING_DATA


@pytest.mark.parametrize("name", COMMANDS)
def test_no_line_is_wider_than_the_terminal_but_for_what_can_be_copied(name: str) -> None:
    for line in on_terminal(*name.split(), *map(str, COMMANDS[name])).splitlines():
        beside_the_longest_word = len(line) - max(map(len, line.split()), default=0)
        assert len(line) <= 80 or beside_the_longest_word <= 20, line


# The others tell on a terminal and as CSV what happened at that moment, or have other rows there.
@pytest.mark.parametrize(
    "name",
    sorted(
        COMMANDS.keys() - {"doctor", "status", "capacity", "index status", "balance", "notifications check", "usage"}
    ),
)
def test_no_value_is_cut_off(run: Run, name: str) -> None:
    arguments = [*name.split(), *map(str, COMMANDS[name])]
    shown = without_blanks(on_terminal(*arguments))
    rows = list(csv.reader(io.StringIO(run(*arguments, "--output", "csv").stdout)))
    for value in (value for row in rows[1:] for value in row):
        assert without_blanks(value) in shown


def test_failures_say_first_how_many_there_are_and_why(run: Run) -> None:
    assert on_terminal("index", "failures", "list").splitlines()[0] == "1 failure: 1 malformed"
    assert " ".join(WHY.split()) in run("index", "failures", "list").stdout


def test_what_is_wrong_comes_first(run: Run) -> None:
    first, _, _head, _rule, *lines = on_terminal("doctor").splitlines()
    assert "wrong" in first
    states = [re.split(" {3,}", line)[1] for line in run("doctor").stdout.splitlines()[2:]]
    assert states == sorted(states, reverse=True)
    assert "wrong" in " ".join(lines[:2])


@pytest.mark.parametrize("arguments", [("index", "failures", "list"), ("doctor",), ("capacity",), ("cell", "list")])
def test_piped_rows_are_one_line_each_without_blanks_at_the_end(run: Run, arguments: Sequence[str]) -> None:
    lines = run(*arguments).stdout.splitlines()
    assert [line for line in lines if line != line.rstrip()] == []
    assert set(lines[1]) == {"─"}
