"""`fleetlight list` over the files of a fleet, without a running API."""

import csv
import io
import json
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import func, select, update

from fleetlight.cells.database.engines import create_database_engine, writing
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.tables import cell_state, changes
from fleetlight.cli.list_forms import LIST_FORMS, ItemWord
from fleetlight.manager.operations.hosts.cell_nodes import CellNodes, NewHost
from fleetlight.resources.amount import Amount
from tests.support.fleets.instance_operations import InstanceOperations
from tests.unit.cli.conftest import Run

FLAVOR = {"flavorid": "1", "name": "small", "memory_mb": 1536, "vcpus": 1, "root_gb": 1, "ephemeral_gb": 0, "swap": 0}


@pytest.fixture(autouse=True)
def three_instances(empty_place: Path, run: Run, create: Callable[..., None]) -> None:
    """web2, web10 and db1 in the cell `one`; the project of one of them has another name."""
    fleet_url, cell_url = (f"sqlite:///{empty_place}/{name}.db" for name in ("fleet", "one"))
    (empty_place / "fleetlight.toml").write_text(f'[fleet]\ndatabase_url = "{fleet_url}"\n')
    assert run("database", "upgrade").exit_code == 0
    assert (
        run(
            "cell", "add", "native", "one", "--database-url", cell_url, "--transport-url", "amqp://127.0.0.1:9//"
        ).exit_code
        == 0
    )
    for name, project in (("web10", "a"), ("web2", "b"), ("db1", "a")):
        create(f"{name}.example.com", project)


@pytest.fixture
def create(empty_place: Path) -> Iterator[Callable[..., None]]:
    """Creates an instance in the cell `one`; its name, and its project."""
    engines = [create_database_engine(f"sqlite:///{empty_place}/{name}.db") for name in ("one", "fleet")]
    fleet = Fleet(engines[1])

    def create_instance(name: str, project: str = "a") -> None:
        operations = InstanceOperations(engines[0], fleet, fleet.cells()[0])
        values = {"display_name": name, "project_id": project, "user_id": "ada", "flavor": FLAVOR}
        operations.create({**values, "image_ref": "", "power_state": 1, "tags": ["x", "y"]})

    yield create_instance
    fleet.close()
    engines[0].dispose()


def test_usual_fields_of_all_projects_stand_in_nice_order(run: Run) -> None:
    shown = run("list", "instances")
    assert shown.exit_code == 0, shown.stderr
    assert [line.rstrip() for line in shown.stdout.splitlines()] == [
        "Instance          Cell Primary_node Status  ConfigMaxMem",
        "db1.example.com   one  ?            running         1.5G",
        "web2.example.com  one  ?            running         1.5G",
        "web10.example.com one  ?            running         1.5G",
    ]


def test_names_choose_and_fields_are_added(run: Run) -> None:
    shown = run("list", "instances", "web*", "-o", "+tags", "--no-headers", "--separator", "|")
    assert shown.stdout.splitlines() == [
        "web2.example.com|one|?|running|1536|x,y",
        "web10.example.com|one|?|running|1536|x,y",
    ]


def test_names_alone_are_looked_up_and_shown_in_their_order(run: Run) -> None:
    shown = run("list", "instances", "web10", "db1.example.com", "-o", "name", "--no-headers")
    assert shown.stdout.splitlines() == ["web10.example.com", "db1.example.com"]
    unknown = run("list", "instances", "web10", "nothing")
    assert (unknown.exit_code, unknown.stdout) == (1, "")
    assert unknown.stderr == "error: Instance name nothing not found\n"


def test_filter_and_order_and_units(run: Run) -> None:
    filter_ = 'be/memory >= 1536 and not name == "db1"'
    shown = run(
        "list", "instances", "-F", filter_, "-o", "name,be/memory,pnode", "--order", "-name", "--units", "g", "-v",
        "--no-headers",
    )  # fmt: skip
    assert shown.stdout.splitlines() == ["web10.example.com 1.5 (nodata)", "web2.example.com  1.5 (nodata)"]
    first = run("list", "instances", "-o", "name", "--order", "-name", "--no-headers", "--limit", "1")
    assert (first.stdout, first.stderr) == ("web10.example.com\n", "These are the first 1; there are more\n")
    assert run("list", "instances", "--limit", "3").stderr == ""


def test_programs_get_json_and_csv(run: Run) -> None:
    told = json.loads(run("list", "instances", "db1", "-o", "name,tags,pnode", "--output", "json").stdout)
    assert told["data"] == [[[0, "db1.example.com"], [0, ["x", "y"]], [2, None]]]
    assert [field["name"] for field in told["fields"]] == ["name", "tags", "pnode"]
    assert told["complete"] is True
    rows = list(csv.reader(io.StringIO(run("list", "instances", "db1", "-o", "name,pnode", "--output", "csv").stdout)))
    assert rows == [["name", "pnode"], ["db1.example.com", ""]]


def test_spreadsheet_reckons_nothing_that_a_name_says(run: Run, create: Callable[..., None]) -> None:
    for name in ("=1+1", "+1", "-1", "@SUM(A1)"):
        create(name)
    shown = run("list", "instances", "-F", 'not name =* "*.example.com"', "-o", "name,oper_vcpus", "--output", "csv")
    rows = list(csv.reader(io.StringIO(shown.stdout)))
    assert sorted(row[0] for row in rows[1:]) == ["'+1", "'-1", "'=1+1", "'@SUM(A1)"]
    unknown = run("list", "instances", "db1", "-o", "=1+1", "--output", "csv")
    assert unknown.stdout.splitlines()[0] == "'=1+1"


def test_groups_are_counted(run: Run) -> None:
    shown = run("list", "instances", "--group-by", "project,cell")
    assert [line.rstrip() for line in shown.stdout.splitlines()] == [
        "Project Cell Count",
        "a       one      2",
        "b       one      1",
    ]
    told = json.loads(run("list", "instances", "db*", "--group-by", "tags", "--output", "json").stdout)
    assert told["data"] == [[[0, "x"], [0, 1]], [[0, "y"], [0, 1]]]
    shown = run("list", "instances", "--group-by", "be/memory,pnode", "--no-headers", "-v")
    assert shown.stdout.splitlines() == ["1.5G (nodata) 3"]
    assert run("list", "groups", "--group-by", "node_cnt,cell", "--no-headers").stdout == "0 one 1\n"
    assert run("list", "instances", "--group-by", "nothing").exit_code == 2


def test_instances_are_listed_as_they_were(run: Run) -> None:
    moment = datetime.now(UTC).isoformat()
    assert run("list", "instances", "--as-of", "2026-01-01T00:00:00Z", "--no-headers").stdout == ""
    shown = run("list", "instances", "db1", "--as-of", moment, "-o", "name,vm_state,status", "--no-headers", "-v")
    assert shown.stdout.splitlines() == ["db1.example.com active (nodata)"]
    for what, as_of, says in (
        ("instances", "2999-01-01T00:00:00Z", "still to come"),
        ("jobs", moment, "only instances"),
    ):
        refused = run("list", what, "--as-of", as_of)
        assert refused.exit_code == 2
        assert says in refused.stderr


def test_field_that_does_not_exist_is_a_column_and_an_exit_code(run: Run) -> None:
    shown = run("list", "instances", "db1", "-o", "name,foo", "--no-headers")
    assert shown.exit_code == 14
    assert shown.stdout.splitlines() == ["db1.example.com ??"]
    assert "Warning: there is no field 'foo'" in shown.stderr


@pytest.mark.parametrize(
    ("arguments", "exit_code", "says"),
    [
        (["instances", "-F", "name =="], 1, "Failed to parse query filter 'name =='"),
        (["instances", "-F", "hst == 1"], 2, "Unknown field 'hst'; did you mean 'host'?"),
        (["instances", "-F"], 1, "Exactly one argument must be given as a filter"),
        (["instances", "--order", "status"], 2, "error: --order: 'status' is no field to sort by"),
    ],
)
def test_what_makes_no_sense_is_told_in_words(run: Run, arguments: list[str], exit_code: int, says: str) -> None:
    refused = run("list", *arguments)
    assert refused.exit_code == exit_code
    assert refused.stderr.startswith("error: ")
    assert says in refused.stderr


def test_history_is_readable_and_json_for_programs(run: Run) -> None:
    told = json.loads(run("list", "instances", "db1", "-o", "uuid", "--output", "json").stdout)
    [[[_, uuid]]] = told["data"]
    shown = run("history", uuid)
    assert shown.exit_code == 0, shown.stderr
    assert "revision 1  instance.create.end  by " in shown.stdout
    assert '    display_name: null -> "db1.example.com"' in shown.stdout
    assert json.loads(run("history", uuid, "--output", "json").stdout)["history"][0]["revision"] == 1
    assert run("history", "db1").stdout == shown.stdout
    assert run("history", "db9").stderr == "error: Instance name db9 not found\n"
    changes = csv.DictReader(io.StringIO(run("history", "db1", "--output", "csv").stdout))
    assert ("display_name", "null", '"db1.example.com"') in [
        (change["FIELD"], change["BEFORE"], change["AFTER"]) for change in changes
    ]
    refused = run("history", "11111111-1111-4111-8111-111111111111")
    assert refused.exit_code == 2
    assert "could not be found" in refused.stderr


def test_changes_of_all_instances_come_newest_first_as_many_as_are_asked_for(
    run: Run, empty_place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = create_database_engine(f"sqlite:///{empty_place}/one.db")
    with writing(engine) as connection:
        connection.execute(update(changes).values(sequence=changes.c.id))
        connection.execute(update(cell_state).values(last_sequence=select(func.max(changes.c.id)).scalar_subquery()))
    engine.dispose()
    shown = run("changes", "-F", 'name =* "*1.example.com"').stdout.splitlines()
    assert [line.split("  ")[1:] for line in shown if "revision" in line][:1] == [
        ["db1.example.com in one", "revision 1", "instance.create.end", "by fleetlight-cell:one"]
    ]
    whole = json.loads(run("changes", "--output", "json").stdout)["changes"]
    one = run("changes", "--limit", "1", "--output", "json")
    assert len(json.loads(one.stdout)["changes"]) == 1
    assert one.stderr == "There are older ones.\n"
    monkeypatch.setattr("fleetlight.cli.history._PAGE", 1)
    assert json.loads(run("changes", "--output", "json").stdout)["changes"] == whole
    table = csv.DictReader(io.StringIO(run("changes", "--output", "csv").stdout))
    assert {"db1.example.com", "web2.example.com"} <= {change["INSTANCE"] for change in table}
    assert run("changes", "--before", "1h ago").stdout == run("changes", "--by", "ada").stdout == ""
    assert run("changes", "--since", "soon").stderr.startswith("error: --since: 'soon' is no time")


@pytest.fixture
def two_hosts(empty_place: Path) -> None:
    engine = create_database_engine(f"sqlite:///{empty_place}/one.db")
    fleet = Fleet(create_database_engine(f"sqlite:///{empty_place}/fleet.db"))
    size = Amount.of_gib(vcpus=8, memory_mib=4096, disk_gib=10)
    CellNodes(engine, fleet.cells()[0]).add_hosts([NewHost("host10", size), NewHost("host9", size)])
    fleet.close()
    engine.dispose()


@pytest.mark.usefixtures("two_hosts")
def test_nodes_and_groups_are_listed_as_instances_are(run: Run) -> None:
    shown = run("list", "nodes", "-o", "name,role,mtotal,mnode,tags,ndparams", "--cell", "one")
    parameters = (
        "{'oob_program': '', 'spindle_count': 1, 'exclusive_storage': False, 'ovs': False, 'ovs_name': 'switch1', "
        "'ovs_link': '', 'ssh_port': 22, 'cpu_speed': 1}"
    )
    assert shown.stdout.splitlines() == [
        "Node   Role MTotal MNode Tags NodeParameters",
        f"host9  R      4.0G    0M      {parameters}",
        f"host10 R      4.0G    0M      {parameters}",
    ]
    assert run("list", "groups", "--no-headers", "-o", "name,node_cnt,node_list").stdout == "default 2 host9,host10\n"
    assert run("list", "nodes", "--cell", "two", "--no-headers").stdout == ""


def test_jobs_are_named_by_numbers(run: Run) -> None:
    # As in Ganeti, a job that is not there is a row without values.
    assert run("list", "jobs", "7", "--no-headers", "-o", "id,status").stdout.split() == ["7", "-"]
    refused = run("list", "jobs", "seven")
    assert refused.exit_code == 1
    assert "Invalid job ID passed: seven" in refused.stderr


@pytest.mark.parametrize(("value", "shown"), [([], "-"), ([["shared", ["job 1", "job 2"]]], "shared:job 1,job 2")])
def test_what_waits_for_a_lock_is_shown_by_mode(value: object, shown: str) -> None:
    assert LIST_FORMS[ItemWord.LOCKS].formats["pending"](value) == shown


def test_usage_of_each_project_is_a_row_and_a_notice_says_what_is_not_exact(run: Run) -> None:
    shown = run("usage", "--from", "2026-01-01T00:00:00Z")
    assert shown.exit_code == 0, shown.stderr
    assert [line.split()[:3] for line in shown.stdout.splitlines()[2:]] == [
        ["a", "2", "0.0"],
        ["b", "1", "0.0"],
        ["total", "3", "0.0"],
    ]
    assert shown.stderr == ""
    asked = ("usage", "--from", "2026-01-01T00:00:00Z", "--by", "cell,flavor", "--output")
    document = json.loads(run(*asked, "json").stdout)
    assert (document["complete"], document["cells"][0]["exact"]) == (True, True)
    [row] = csv.DictReader(io.StringIO(run(*asked, "csv").stdout))
    assert (row["cell"], row["flavor"], row["instances"]) == ("one", "small", "3")
    assert float(row["memory_gib_hours"]) == pytest.approx(1.5 * float(row["vcpu_hours"]))
    engine = create_database_engine("sqlite:///one.db")
    with writing(engine) as connection:
        connection.execute(update(cell_state).values(forgotten_until=1_790_000_000_000_000))
    engine.dispose()
    notice = run(*asked, "csv").stderr
    assert notice.startswith("Not exact: cell one: it keeps changes since 2026-09-21T14:13:20.000000Z: before,")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--from", "monday"), "--from: 'monday' is no time with its zone"),
        (("--from", "2026-01-01T00:00:00Z", "--by", "colour"), "--by: 'colour' is not one of project, flavor, cell"),
        (("--from", "2026-01-01T00:00:00Z", "--to", "2999-01-01T00:00:00Z"), "--to: 2999-"),
    ],
)
def test_usage_that_makes_no_sense_is_refused_in_the_words_of_its_options(
    run: Run, arguments: Sequence[str], says: str
) -> None:
    refused = run("usage", *arguments)
    assert refused.exit_code == 2
    assert refused.stderr.startswith(f"error: {says}")


def test_history_of_a_name_of_two_instances_names_both(run: Run, create: Callable[..., None]) -> None:
    create("db1.example.com")
    found = json.loads(run("list", "instances", "-F", 'name == "db1"', "-o", "uuid", "--output", "json").stdout)
    assert len(found["data"]) == 2
    refused = run("history", "db1.example.com")
    assert refused.exit_code == 2
    for [[_, uuid]] in found["data"]:
        assert f"{uuid} in cell one" in refused.stderr


def test_uuid_names_an_instance_as_its_name_does(run: Run) -> None:
    [[[_, uuid]]] = json.loads(run("list", "instances", "db1", "-o", "uuid", "--output", "json").stdout)["data"]
    shown = run("list", "instances", uuid, "web2", "-o", "name", "--no-headers")
    assert shown.stdout.splitlines() == ["db1.example.com", "web2.example.com"], shown.stderr
    missing = "11111111-1111-4111-8111-111111111111"
    assert run("list", "instances", missing).stderr == f"error: Instance name {missing} not found\n"


def test_cell_of_a_list_is_meant_by_name_or_uuid(run: Run) -> None:
    [cell] = json.loads(run("cell", "list", "--output", "json").stdout)
    for name in (cell["name"], cell["uuid"]):
        assert len(run("list", "instances", "--cell", name, "--no-headers").stdout.splitlines()) == 3


def test_field_that_may_be_meant_is_named(run: Run) -> None:
    assert "no field 'statuss'; did you mean 'status'?" in run("list", "instances", "-o", "statuss").stderr
    counted = run("list", "instances", "--group-by", "statuss")
    assert "--group-by: there is no field 'statuss' of 'instance'; did you mean 'status'?" in counted.stderr
