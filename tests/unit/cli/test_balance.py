"""`fleetlight balance`."""

import json
from pathlib import Path
from typing import NoReturn

import pytest
from typer.testing import CliRunner

from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.native.adapter import NativeAdapter
from fleetlight.cli.app import app
from fleetlight.manager.operations.balancing.cluster_file import read_cluster
from fleetlight.manager.operations.hosts.cell_nodes import CellNodes, NewHost
from fleetlight.resources.amount import Amount
from tests.support.fleets.instance_operations import InstanceOperations
from tests.unit.cli.conftest import Run

_RUNNER = CliRunner()
_FILE = """\
default|uuid-1|preferred||

node1|65523|1023|63475|3405248|3305248|24|M|uuid-1|1||N|0|1|1.0
node2|65523|1023|60000|3405248|3305248|24|N|uuid-1|1||N|0|1|1.0
node3|65523|1023|64500|3405248|3405248|24|N|uuid-1|1||N|0|1|1.0

web|1024|2176|1|running|Y|node1|node2|drbd||1|-|N
db|1024|50000|1|ADMIN_down|Y|node1|node2|drbd||1|-|N
6f0c|128|1024|1|ADMIN_down|Y|node1|node2|drbd||1|-|Y


"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "cluster.data"
    path.write_text(_FILE)
    return path


def test_moves_are_a_table_with_the_scores_of_the_group(file: Path) -> None:
    result = _RUNNER.invoke(app, ["balance", "--text-data", str(file)])
    assert result.exit_code == 0
    first, header, _, *moves = result.stdout.splitlines()
    assert header.split() == ["INSTANCE", "FROM", "TO", "GAIN", "SCORE", "STEPS"]
    assert any(move.startswith(("web", "db")) for move in moves)
    assert first.startswith("Group default: score ")
    assert first.endswith(f"after {len(moves)} moves")


def test_json_has_scores_and_moves_with_both_nodes(file: Path) -> None:
    document = json.loads(_RUNNER.invoke(app, ["balance", "--text-data", str(file), "--output", "json"]).stdout)
    assert document["score_after"] < document["score_before"]
    assert [group["group"] for group in document["groups"]] == ["default"]
    first = document["moves"][0]
    assert first["instance"] == "6f0c" or not first["forthcoming"]
    assert first["from"] == {"primary": "node1", "secondary": "node2"}
    assert set(first["to"]) == {"primary", "secondary"}
    assert document["score_before"] - sum(move["gain"] for move in document["moves"]) == pytest.approx(
        document["score_after"]
    )


def test_cluster_after_the_moves_is_saved(file: Path, tmp_path: Path) -> None:
    saved = tmp_path / "balanced.data"
    result = _RUNNER.invoke(app, ["balance", "--text-data", str(file), "--save-text", str(saved), "--output", "json"])
    places = {each.name: (each.primary, each.secondary) for each in read_cluster(saved.read_text()).instances}
    for move in json.loads(result.stdout)["moves"]:
        expected = (move["to"]["primary"], move["to"]["secondary"])
        assert places[move["instance"]] == expected


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\xff", "byte 1 is no UTF-8"),
        (_FILE.replace("|running|", "|walking|").encode(), "line 7, column 5: status: 'walking' is none of running"),
    ],
)
def test_file_that_is_none_of_htools_is_wrong_usage(file: Path, content: bytes, said: str) -> None:
    file.write_bytes(content)
    result = _RUNNER.invoke(app, ["balance", "--text-data", str(file)])
    assert result.exit_code == 2
    assert f"{file}: {said}" in result.stderr


def test_file_that_is_not_there_and_unknown_group_are_wrong_usage(file: Path) -> None:
    missing = _RUNNER.invoke(app, ["balance", "--text-data", f"{file}x"])
    assert (missing.exit_code, "no such file or directory" in missing.stderr) == (2, True)
    unknown = _RUNNER.invoke(app, ["balance", "--text-data", str(file), "--group", "far"])
    assert (unknown.exit_code, "there is no node group 'far'; there are default" in unknown.stderr) == (2, True)


@pytest.fixture
def crowded_cell(empty_place: Path, run: Run) -> None:
    """The cell `one`, with four instances on one of its two hosts."""
    fleet_url, cell_url = (f"sqlite:///{empty_place}/{name}.db" for name in ("fleet", "one"))
    (empty_place / "fleetlight.toml").write_text(f'[fleet]\ndatabase_url = "{fleet_url}"\n')
    assert run("database", "upgrade").exit_code == 0
    added = run("cell", "add", "native", "one", "--database-url", cell_url, "--transport-url", "amqp://127.0.0.1:9//")
    assert added.exit_code == 0
    engine, fleet = create_database_engine(cell_url), Fleet(create_database_engine(fleet_url))
    [cell] = fleet.cells()
    CellNodes(engine, cell).add_hosts([NewHost(host, Amount.of_gib(16, 65536, 400)) for host in ("host1", "host2")])
    flavor = {"flavorid": "1", "name": "s", "memory_mb": 2048, "vcpus": 2, "root_gb": 10, "ephemeral_gb": 0, "swap": 0}
    operations = InstanceOperations(engine, fleet, cell)
    for number in range(4):
        values = {"display_name": f"web{number}", "project_id": "a", "user_id": "ada", "flavor": flavor}
        operations.create({**values, "image_ref": "", "power_state": 1, "host": "host1", "node": "host1"})
    fleet.close()
    engine.dispose()


@pytest.mark.usefixtures("crowded_cell")
def test_cells_are_balanced_where_no_file_is_given(run: Run, tmp_path: Path) -> None:
    saved = tmp_path / "one.data"
    document = json.loads(run("balance", "--output", "json", "--save-text", saved).stdout)
    assert document["complete"] is True
    assert {(move["cell"], move["group"]) for move in document["moves"]} == {("one", "default")}
    assert [move["to"] for move in document["moves"]] == [{"primary": "host2", "secondary": None}] * 2
    assert sorted(each.primary for each in read_cluster(saved.read_text()).instances) == ["host1"] * 2 + ["host2"] * 2
    assert "Cell one, group default: score" in run("balance", "--cell", "one").stdout


@pytest.mark.usefixtures("crowded_cell")
def test_cell_that_does_not_tell_what_its_nodes_keep_for_themselves_is_not_complete(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: NativeAdapter) -> NoReturn:
        raise CellUnreachableError("one", "it is away")

    monkeypatch.setattr(NativeAdapter, "read_capacity", fails)
    for command in (("balance",), ("capacity", "--memory", "1G", "--disk", "1G", "--vcpus", "1")):
        assert json.loads(run(*command, "--output", "json").stdout)["complete"] is False
        assert "Not complete: not all cells could answer" in run(*command).stderr


@pytest.mark.usefixtures("crowded_cell")
def test_unknown_cell_and_cell_of_a_file_are_wrong_usage(run: Run, file: Path) -> None:
    assert run("balance", "--cell", "two").exit_code == 2
    assert run("balance", "one").stdout == run("balance", "--cell", "one").stdout
    assert "name one cell" in run("balance", "one", "--cell", "one").stderr
    for option in (("--cell", "one"), ("--execute",)):
        both = run("balance", *option, "--text-data", file)
        assert (both.exit_code, f"leave out {option[0]} or --text-data" in both.stderr) == (2, True)
