"""A real Ganeti cluster as a cell: each question to it and to us has the same answer (contracts/ganeti-query)."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cli.app import app
from fleetlight.indexer.backends.base import CellProgress
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.reconcile.external_cell import compare_cell
from fleetlight.resources.clock import system_clock
from scripts.servers.certificates import unchecked_tls
from tests.contract.compute_fleet import Api, ComputeFleet, compute_fleet, searching
from tests.support.rapi_calls import RapiCalls
from tests.support.servers.htools import Htools
from tests.support.servers.real_cluster import PASSWORD, USER, RealCluster

ITEM_TYPES = ("instance", "node", "group", "network", "job", "export", "filter")
FOUR_HOURS_S = 4 * 3600
# It is not asked for (docs/reference/ganeti.md).
NOT_ASKED = {"console"}


@pytest.fixture(scope="module")
def fleet(ganeti_cluster: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ComputeFleet]:
    """The cluster, `farm`, beside three empty cells; all of it in an index that is good for hours."""
    folder = tmp_path_factory.mktemp("fleet")
    with compute_fleet(folder) as fleet:
        farm = fleet.cells["farm"] = fleet.fleet.add_cell("farm", CellKind.GANETI, ganeti_cluster.address(folder), "")
        fleet.index("north", "east", "south", age_s=0)
        with closing(open_adapter(farm)) as adapter, closing(open_writer(fleet.index_settings)) as writer:
            compared = compare_cell(adapter, writer, batch_size=10)
            assert (compared.rows, compared.rejected) == (26, {})
            assert compare_cell(adapter, writer, batch_size=10).written == 0
            writer.save_progress([CellProgress(farm.uuid, 0, system_clock(), is_complete=True)])
            writer.make_searchable()
        yield fleet


@pytest.fixture(autouse=True)
def unchanged(ganeti_cluster: RealCluster) -> Iterator[None]:
    with ganeti_cluster.unchanged():
        yield


@pytest.fixture
def api(fleet: ComputeFleet) -> Api:
    return fleet.api(search=searching(cell_timeout_s=60, staleness_limit_s=FOUR_HOURS_S))


def ask_cluster(cluster: RealCluster, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    # Whose certificate it is, the adapter looks at.
    answer = httpx.request(
        method, cluster.url + path, json=body, auth=(USER, PASSWORD), verify=unchecked_tls(), timeout=60
    )
    return answer.status_code, answer.json()


def ask_us(api: Api, item_type: str, question: Any, *, live: bool = False, is_complete: bool = True) -> Any:
    headers = {"Fleetlight-Consistency": "strong"} if live else {}
    answer = api.request("PUT", f"/cells/farm/2/query/{item_type}", headers, json=question)
    assert answer.status_code == 200, answer.text
    assert answer.headers["Fleetlight-Complete"] == str(is_complete).lower()
    if item_type == "instance":
        assert answer.headers["Fleetlight-Route"].startswith("farm=live" if live else "farm=index;")
    return answer.json()


def nearly(value: Any) -> Any:
    """What is equal to it, but for less than a microsecond of times: we keep whole ones."""
    match value:
        case float():
            return pytest.approx(value, rel=0, abs=1.5e-6)
        case list():
            return [nearly(each) for each in value]
    return value


@pytest.mark.parametrize("live", [False, True], ids=["as-usual", "live"])
@pytest.mark.parametrize("item_type", ITEM_TYPES)
def test_every_field_of_every_item_is_what_the_cluster_says(
    ganeti_cluster: RealCluster, api: Api, item_type: str, *, live: bool
) -> None:
    _, known = ask_cluster(ganeti_cluster, "GET", f"/2/query/{item_type}/fields")
    names = [field["name"] for field in known["fields"] if field["name"] not in NOT_ASKED]
    question = {"fields": names, "qfilter": None}
    _, theirs = ask_cluster(ganeti_cluster, "PUT", f"/2/query/{item_type}", question)
    ours = ask_us(api, item_type, question, live=live)
    assert len(theirs["data"]) > 0
    for row, expected in zip(ours["data"], theirs["data"], strict=True):
        assert dict(zip(names, row, strict=True)) == dict(zip(names, nearly(expected), strict=True))
    described = [(field["name"], field["title"], field["kind"]) for field in ours["fields"]]
    assert described == [(field["name"], field["title"], field["kind"]) for field in theirs["fields"]]


FILTERS = [
    ["==", "status", "running"],
    ["!=", "status", "running"],
    ["|", ["==", "status", "ERROR_nodedown"], ["==", "status", "ERROR_nodeoffline"]],
    ["&", ["==", "pnode", "node1"], [">", "be/memory", 128]],
    ["!", ["=~", "name", "^web"]],
    ["=~", "name", "(?i)^WEB[0-9]+[.]"],
    ["=[]", "tags", "prod"],
    ["!", ["=[]", "tags", "prod"]],
    ["?", "admin_up"],
    ["!", ["?", "oper_state"]],
    ["?", "forthcoming"],
    [">=", "disk.size/0", 16],
    ["==", "disk.count", 0],
    ["==", "nic.ip/0", "203.0.113.5"],
    ["<", "oper_ram", 200],
    ["!=", "oper_ram", 128],
    ["==", "os", "plainos"],
    ["==", "hypervisor", "fake"],
    ["|", ["==", "name", "web10.gnt.example"], ["==", "name", "web2.gnt.example"]],
    ["==", "name", "web1"],
    ["&", ["=~", "name", "^(db|mob)"], ["|", ["==", "admin_state", "down"], ["==", "pnode.group", "default"]]],
    ["&"],
]


@pytest.mark.parametrize("expression", FILTERS, ids=json.dumps)
def test_filter_finds_what_it_finds_in_the_cluster(
    ganeti_cluster: RealCluster, api: Api, expression: list[Any]
) -> None:
    question = {"fields": ["name", "status"], "qfilter": expression}
    status, theirs = ask_cluster(ganeti_cluster, "PUT", "/2/query/instance", question)
    assert status == 200, theirs
    is_complete = expression not in ON_WHAT_IS_NOT_KNOWN
    assert ask_us(api, "instance", question, is_complete=is_complete)["data"] == theirs["data"]


# Of an instance that is down the cluster does not say it, and by Query2's rule it is taken for another value.
ON_WHAT_IS_NOT_KNOWN: list[list[Any]] = [["!", ["?", "oper_state"]], ["!=", "oper_ram", 128]]
REFUSED = [
    ["==", "name", "nobody"],
    ["|", ["==", "name", "web1"], ["==", "name", "nobody"]],
    ["==", "no.such", "x"],
    ["=~", "name", "("],
    ["==", "be/memory", "much"],
    ["<", "name", 5],
    ["near", "name", "x"],
    ["!"],
    [],
]


@pytest.mark.parametrize("expression", REFUSED, ids=json.dumps)
def test_what_the_cluster_refuses_is_refused(ganeti_cluster: RealCluster, api: Api, expression: list[Any]) -> None:
    question = {"fields": ["name"], "qfilter": expression}
    assert ask_cluster(ganeti_cluster, "PUT", "/2/query/instance", question)[0] in (500, 502)
    assert api.request("PUT", "/cells/farm/2/query/instance", json=question).status_code == 400


LOOKUPS: list[tuple[str, list[str]]] = [
    ("group", ["default", "UUID"]),
    ("group", ["UUID", "second", "default"]),
    ("group", ["UUID"]),
    ("node", ["UUID", "node1", "node1.gnt.example"]),
    ("instance", ["crashed", "UUID"]),
    ("export", ["node1"]),
    ("export", ["node2", "node1", "node1.gnt.example"]),
    ("export", ["node1", "node9"]),
]


@pytest.mark.parametrize(("item_type", "names"), LOOKUPS, ids=str)
def test_names_and_uuids_find_what_they_find_in_the_cluster(
    ganeti_cluster: RealCluster, api: Api, item_type: str, names: list[str]
) -> None:
    """UUID stands for that of the first item."""
    name = "node" if item_type == "export" else "name"
    first = None
    if "UUID" in names:
        _, found = ask_cluster(ganeti_cluster, "PUT", f"/2/query/{item_type}", {"fields": ["uuid"], "qfilter": None})
        [[[_, first]], *_] = found["data"]
    wanted = ["|", *(["=", name, first if each == "UUID" else each] for each in names)]
    question = {"fields": [name], "qfilter": wanted}
    status, theirs = ask_cluster(ganeti_cluster, "PUT", f"/2/query/{item_type}", question)
    if status == 200:
        assert ask_us(api, item_type, question)["data"] == theirs["data"]
    else:
        assert api.request("PUT", f"/cells/farm/2/query/{item_type}", json=question).status_code == 400


def test_configuration_is_that_of_the_cluster(ganeti_cluster: RealCluster, api: Api) -> None:
    (_, info), (_, tags) = (ask_cluster(ganeti_cluster, "GET", f"/2/{path}") for path in ("info", "tags"))
    answers = [api.get(f"/cells/farm/2/{path}") for path in ("info", "tags")]
    assert [each.headers["Fleetlight-Complete"] for each in answers] == ["true", "true"]
    ours = answers[0].json()
    assert {name: ours[name] for name in info} == {name: nearly(value) for name, value in info.items()}
    assert answers[1].json() == tags == ["site:test"]


@pytest.mark.parametrize("path", ["instances", "nodes", "groups", "networks", "jobs", "filters"])
def test_lists_are_those_of_the_cluster(ganeti_cluster: RealCluster, api: Api, path: str) -> None:
    for query in ("", "?bulk=1"):
        _, theirs = ask_cluster(ganeti_cluster, "GET", f"/2/{path}{query}")
        ours = api.get(f"/cells/farm/2/{path}{query}").json()
        assert len(theirs) > 0
        assert len(ours) == len(theirs)
        for mine, expected in zip(ours, theirs, strict=True):
            # Of newer versions there are more keys.
            assert {key: mine[key] for key in expected} == {key: nearly(expected[key]) for key in expected}


def test_operating_systems_are_those_of_the_cluster(ganeti_cluster: RealCluster, api: Api) -> None:
    assert api.get("/cells/farm/2/os").json() == ask_cluster(ganeti_cluster, "GET", "/2/os")[1]


@pytest.fixture
def command_line(ganeti_cluster: RealCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    """A fleet with the cluster, for commands."""
    monkeypatch.setenv("FLEETLIGHT_FLEET_DATABASE_URL", f"sqlite:///{tmp_path}/fleet.db")
    monkeypatch.setenv("FLEETLIGHT_INDEX_PATH", str(tmp_path / "index.db"))
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    runner = CliRunner()
    login = ["--user", USER, "--password-file", str(tmp_path / "password")]
    certificate = ["--ca-file", str(ganeti_cluster.certificate)]
    assert runner.invoke(app, ["database", "upgrade"]).exit_code == 0
    added = runner.invoke(app, ["cell", "add", "ganeti", "farm", "--url", ganeti_cluster.url, *login, *certificate])
    assert (added.exit_code, "26 instances" in added.output) == (0, True), added.output
    return runner


INSTANCE_COLUMNS = "name,hypervisor,os,pnode,status,oper_ram"
LISTS: list[tuple[str, str, list[str]]] = [
    ("gnt-instance", "instances", ["-o", INSTANCE_COLUMNS]),
    ("gnt-instance", "instances", ["-o", INSTANCE_COLUMNS, "-v"]),
    ("gnt-instance", "instances", ["-o", INSTANCE_COLUMNS, "--no-headers", "--separator=|"]),
    ("gnt-instance", "instances", ["-o", "name,oper_ram,disk.size/0,be/memory", "--units=g"]),
    ("gnt-instance", "instances", ["-o", "name,tags,snodes,nic.macs,disk.sizes,nic.ips,admin_up,oper_state"]),
    ("gnt-instance", "instances", ["-o", "name,ctime,mtime,serial_no,be/auto_balance,hvparams,no.such"]),
    ("gnt-instance", "instances", ["-o", "name,status", "-F", 'status == "running" and be/memory > 200']),
    ("gnt-instance", "instances", ["-o", "name,status", "web*", "db1.gnt.example"]),
    ("gnt-node", "nodes", ["-o", "name,dtotal,dfree,mtotal,mnode,mfree,pinst_cnt,sinst_cnt"]),
    ("gnt-node", "nodes", ["-o", "name,ndp/cpu_speed,ndp/spindle_count"]),
    ("gnt-node", "nodes", ["-o", "name,role,group,pinst_list,tags,offline,ndparams", "-v"]),
    ("gnt-group", "groups", ["-o", "name,node_cnt,pinst_cnt,alloc_policy,ndparams"]),
    ("gnt-network", "networks", ["-o", "name,network,gateway,mac_prefix,group_list,tags"]),
    ("gnt-network", "networks", ["-o", "name,group_list,group_cnt,inst_list,map,free_count"]),
    ("gnt-group", "groups", ["-o", "name,pinst_list,node_list,tags,ipolicy"]),
    ("gnt-node", "nodes", ["-o", "name,sinst_list,hv_state,custom_ndparams,ctime,pip"]),
    ("gnt-filter", "filters", ["-o", "uuid,watermark,priority,predicates,action,reason_trail"]),
    ("gnt-instance", "instances", ["-o", "name,nic.networks.names,beparams,custom_beparams,snodes.group"]),
    ("gnt-job", "jobs", ["-o", "id,status,summary"]),
    ("gnt-job", "jobs", ["-o", "id,opstatus,oplog,start_ts", "3"]),
    ("gnt-job", "jobs", ["-o", "id,status,priority", "--separator=:"]),
]


@pytest.mark.night
@pytest.mark.parametrize(("command", "word", "arguments"), LISTS, ids=str)
def test_list_is_printed_as_the_command_of_ganeti_prints_it(
    ganeti_cluster: RealCluster, command_line: CliRunner, command: str, word: str, arguments: list[str]
) -> None:
    theirs = ganeti_cluster.run(command, "list", *arguments)
    ours = command_line.invoke(app, ["list", word, *arguments])
    assert theirs.stdout
    assert (ours.stdout, ours.exit_code) == (theirs.stdout, theirs.returncode), ours.stderr


def test_cell_of_ours_is_configured_as_a_cluster_is_by_default(
    fleet: ComputeFleet, api: Api, ganeti_cluster: RealCluster
) -> None:
    _, theirs = ask_cluster(ganeti_cluster, "GET", "/2/info")
    ours = RapiCalls(fleet, api, "/cells/north/2").get("/info")
    assert set(ours) == set(theirs)
    same = ("beparams", "diskparams", "hvparams", "ndparams", "nicparams", "candidate_pool_size", "compression_tools")
    for name in (*same, "enabled_data_collectors", "data_collector_interval", "mac_prefix", "file_storage_dir"):
        assert ours[name] == theirs[name], name
    for name in ("minmax", "std", "spindle-ratio", "vcpu-ratio"):
        assert ours["ipolicy"][name] == theirs["ipolicy"][name], name


def test_network_of_ours_has_the_addresses_of_the_same_one_in_a_cluster(
    fleet: ComputeFleet, api: Api, ganeti_cluster: RealCluster
) -> None:
    rapi = RapiCalls(fleet, api, "/cells/north/2")
    _, theirs = ask_cluster(ganeti_cluster, "GET", "/2/networks?bulk=1")
    assert len(theirs) == 2
    for each in theirs:
        body = {"network_name": each["name"], "network": each["network"], "gateway": each["gateway"]}
        rapi.result("POST", "/networks", {**body, "tags": each["tags"]})
        ours = rapi.get(f"/networks/{each['name']}")
        assert set(ours) == set(each)
        same = ("network", "gateway", "network6", "mac_prefix", "tags", "external_reservations", "serial_no")
        assert {name: ours[name] for name in same} == {name: each[name] for name in same}
        assert len(ours["map"]) == len(each["map"]) == ours["free_count"] + ours["reserved_count"]


def test_cluster_is_reckoned_from_its_answers_as_hbal_reckons_it(
    command_line: CliRunner, htools: Htools, tmp_path: Path
) -> None:
    saved = tmp_path / "farm.data"
    shown = command_line.invoke(app, ["balance", "--group", "default", "--save-text", str(saved), "--output", "json"])
    assert shown.exit_code == 0, shown.stderr
    document = json.loads(shown.stdout)
    assert document["complete"] is True
    of_hbal = htools.balance(saved.read_text(), "default", most_moves=0)
    assert of_hbal is not None
    assert document["score_after"] == pytest.approx(of_hbal.before, abs=1e-6)


def test_capacity_of_the_cluster_is_what_its_nodes_report(ganeti_cluster: RealCluster, command_line: CliRunner) -> None:
    reported = ganeti_cluster.run(
        "gnt-node", "list", "--no-headers", "--units=m", "--separator=|", "-o", "mtotal,dtotal", "node1", "node2"
    )
    totals = [[int(number) for number in line.split("|")] for line in reported.stdout.split()]
    document = json.loads(command_line.invoke(app, ["capacity", "--output", "json"]).stdout)
    [cell] = document["cells"]
    assert (cell["nodes"], cell["available_nodes"]) == (4, 2)
    assert [cell["total"]["memory_mib"], cell["total"]["disk_mib"]] == [sum(each) for each in zip(*totals, strict=True)]
    assert cell["reserved"]["memory_mib"] > 0
    assert {part["group"] for part in document["parts"]} == {"default", "second"}
