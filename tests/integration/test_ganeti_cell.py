"""A Ganeti cluster in a fleet beside native cells: in every list, by index and live, also while it is down."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any
from uuid import UUID

import pytest
from httpx import Response
from typer.testing import CliRunner

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.model import CellAdapter
from fleetlight.cells.upstream.address import UpstreamAddress
from fleetlight.cli.app import app
from fleetlight.indexer.backends.base import CellProgress
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.reconcile.external_cell import ExternalComparisonResult, compare_cell
from fleetlight.indexer.writing.journaling import CellJournal
from fleetlight.resources.clock import system_clock
from tests.contract.compute_fleet import MEMBER, ComputeFleet, compute_fleet, searching
from tests.support.memory.memory_fleet import MemoryJournals
from tests.support.played.played_cluster import PASSWORD, USER, PlayedCluster, instance, played_cluster
from tests.support.servers.index_server import index_at
from tests.support.serving import QuietHandler

NAMES = ["db1.example.org", "web0.example.org", "web1.example.org"]
RESERVED = instance(3, name="soon.example.org", forthcoming=True, status="ADMIN_down", admin_state="down")
BY_NAME = "/v2.1/servers/detail?all_tenants=1&sort_key=display_name&sort_dir=asc"


@pytest.fixture
def cluster() -> Iterator[PlayedCluster]:
    node = {"uuid": "b3ddc90a-66cf-40d6-a127-d9c3aedf666e", "name": "node1.example.org", "mtotal": 81_920, "tags": []}
    database = instance(2, name="db1.example.org", status="ERROR_down", oper_state=False, oper_ram=(3, None))
    with played_cluster(instance(0), instance(1), database, RESERVED, node=[node]) as cluster:
        yield cluster


@pytest.fixture(params=["sqlite", pytest.param("elasticsearch", marks=pytest.mark.elasticsearch)])
def fleet(request: pytest.FixtureRequest, cluster: PlayedCluster, tmp_path: Path) -> Iterator[ComputeFleet]:
    """Three native cells and the cluster, `farm`, in an index that is good for an hour."""
    index = None
    if request.param == "elasticsearch":
        url, prefix = request.getfixturevalue("elasticsearch_url"), request.getfixturevalue("elasticsearch_prefix")
        index = index_at(url, prefix.rstrip("-"), search_timeout_s=30)
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    address = UpstreamAddress(cluster.url, username=USER, password_file=tmp_path / "password").write()
    with compute_fleet(tmp_path, index) as fleet:
        farm = fleet.cells["farm"] = fleet.fleet.add_cell("farm", CellKind.GANETI, address, "")
        fleet.index("north", "east", "south", age_s=0)
        with closing(open_adapter(farm)) as adapter:
            compare(fleet, adapter)
        yield fleet


def compare(
    fleet: ComputeFleet, adapter: CellAdapter, journal: CellJournal | None = None, *, age_s: int = 0
) -> ExternalComparisonResult:
    """As an indexer does; age_s: how long ago, as the index says."""
    with closing(open_writer(fleet.index_settings)) as writer:
        compared = compare_cell(adapter, writer, batch_size=2, journal=journal)
        writer.save_progress([CellProgress(adapter.cell.uuid, 0, system_clock() - age_s * 1_000_000, is_complete=True)])
        writer.make_searchable()
    return compared


def hangs_up(handler: QuietHandler) -> bool:
    handler.close_connection = True
    return True


def test_instances_are_servers_by_index_and_live_and_reservations_are_none(fleet: ComputeFleet) -> None:
    api = fleet.api(search=searching(cell_timeout_s=60, staleness_limit_s=3600))
    by_index, live = api.get(BY_NAME), api.get(BY_NAME, {"Fleetlight-Consistency": "strong"})
    assert "farm=index" in by_index.headers["Fleetlight-Route"]
    assert "farm=live" in live.headers["Fleetlight-Route"]
    for page in (by_index, live):
        assert page.headers["Fleetlight-Complete"] == "true"
        assert [(server["name"], server["status"]) for server in page.json()["servers"]] == [
            ("db1.example.org", "ERROR"),
            ("web0.example.org", "ACTIVE"),
            ("web1.example.org", "ACTIVE"),
        ]
    assert by_index.json() == live.json()
    assert api.get(BY_NAME.replace("all_tenants=1&", ""), MEMBER).json()["servers"] == []
    assert api.get(f"/v2.1/servers/{RESERVED['uuid']}").status_code == 404
    one = api.get(f"/v2.1/servers/{instance(0)['uuid']}")
    assert one.json()["server"]["name"] == "web0.example.org"


def test_cluster_that_is_down_is_a_down_cell_of_which_the_index_tells_what_is_stored(
    fleet: ComputeFleet, cluster: PlayedCluster
) -> None:
    with closing(open_adapter(fleet.cells["farm"])) as adapter:
        compare(fleet, adapter, age_s=3600)
    cluster.fault = hangs_up
    api = fleet.api(search=searching(cell_timeout_s=60))
    fields = "fields=name,os,hv/acpi,disk1.size,admin_up,status,oper_ram"
    answer = api.get(f"/fleetlight/query?what=instance&{fields}&filter=hv/boot_order+==+%22disk%22&all_projects=1")
    assert "farm=index-while-down" in answer.headers["Fleetlight-Route"]
    assert answer.headers["Fleetlight-Complete"] == "false"
    stored, unknown = [[0, "debian+bookworm"], [0, True], [0, 512], [0, True]], [[0, "ERROR_nodedown"], [2, None]]
    assert {row[0][1]: row[1:] for row in answer.json()["data"]}["web0.example.org"] == [*stored, *unknown]
    nodes = api.get("/fleetlight/query?what=node&fields=name&filter=cell+==+%22farm%22")
    assert (nodes.headers["Fleetlight-Complete"], nodes.json()["data"]) == ("false", [])


def test_queries_are_the_same_by_index_and_live(fleet: ComputeFleet) -> None:
    question = (
        "what=instance&fields=name,status,os,oper_ram,admin_up,be/memory,disk.sizes,nic.ip/0,nic.ip/1,hv/acpi,hv/pae,"
        "snodes,pnode.group,forthcoming,cell&filter=be/vcpus+==+2+and+nic.count+==+2&all_projects=1"
    )
    api = fleet.api(search=searching(cell_timeout_s=60, staleness_limit_s=3600))
    by_index = api.get(f"/fleetlight/query?{question}")
    live = api.get(f"/fleetlight/query?{question}", {"Fleetlight-Consistency": "strong"})
    assert "farm=index" in by_index.headers["Fleetlight-Route"]
    assert "farm=live" in live.headers["Fleetlight-Route"]
    assert by_index.json() == live.json()
    found = {row[0][1]: row[1:] for row in live.json()["data"]}
    assert found["db1.example.org"][:3] == [[0, "ERROR_down"], [0, "debian+bookworm"], [3, None]]
    assert found["soon.example.org"][-2:] == [[0, True], [0, "farm"]]


def test_remote_api_of_the_cell_shows_what_the_cluster_has(fleet: ComputeFleet) -> None:
    api = fleet.api(search=searching(cell_timeout_s=60, staleness_limit_s=3600))
    assert [each["id"] for each in api.get("/cells/farm/2/instances").json()] == [
        *NAMES[:1],
        "soon.example.org",
        *NAMES[1:],
    ]
    node = api.get("/cells/farm/2/nodes/node1").json()
    assert (node["name"], node["mtotal"]) == ("node1.example.org", 81_920)
    one = api.get("/cells/farm/2/instances/web1.example.org").json()
    assert (one["hvparams"], one["nic.links"]) == (instance(1)["hvparams"], ["br0", "br1"])


def test_configuration_of_the_cell_is_that_of_the_cluster(fleet: ComputeFleet, cluster: PlayedCluster) -> None:
    of_cluster = {"name": "farm.example.org", "master": "node1", "ctime": 1_700_000_000, "mtime": 1.5, "tags": ["site"]}
    cluster.info = {**of_cluster, "enabled_hypervisors": ["kvm"], "ndparams": {"cpu_speed": 1}, "beyond": "us"}
    api = fleet.api(search=searching(cell_timeout_s=60))
    info, tags = api.get("/cells/farm/2/info"), api.get("/cells/farm/2/tags")
    assert {name: info.json()[name] for name in of_cluster} == of_cluster
    assert (info.json()["ndparams"], info.json()["default_hypervisor"]) == ({"cpu_speed": 1}, "kvm")
    assert tags.json() == ["site"]
    assert [each.headers["Fleetlight-Complete"] for each in (info, tags)] == ["true"] * 2
    cluster.fault = hangs_up
    assert [api.get(f"/cells/farm/2/{what}").status_code for what in ("info", "tags")] == [503] * 2


def test_what_is_not_known_of_a_cell_of_other_software_is_said_to_be_missing(
    fleet: ComputeFleet, tmp_path: Path
) -> None:
    address = UpstreamAddress("http://127.0.0.1:1/v2.1", username="u", password_file=tmp_path / "password").write()
    fleet.fleet.add_cell("cloud", CellKind.NOVA_API, address, "")
    api = fleet.api()
    info, tags = api.get("/cells/cloud/2/info"), api.get("/cells/cloud/2/tags")
    assert (info.json()["name"], info.json()["ipolicy"], tags.json()) == ("cloud", None, [])
    assert [each.headers["Fleetlight-Complete"] for each in (info, tags)] == ["false"] * 2


def test_question_that_takes_too_long_is_lost_alone(fleet: ComputeFleet, cluster: PlayedCluster) -> None:
    go_on = Event()

    def wait_for_nodes(handler: QuietHandler) -> bool:
        handler.close_connection = cluster.questions[-1][0] == "node"
        return handler.close_connection and go_on.wait(60)

    cluster.fault = wait_for_nodes
    api = fleet.api(search=searching(cell_timeout_s=1, staleness_limit_s=3600))
    try:
        slow = api.get("/2/nodes?bulk=1")
        assert (slow.status_code, slow.headers["Fleetlight-Complete"], slow.json()) == (200, "false", [])
        assert "farm=skipped" in slow.headers["Fleetlight-Route"]
        for _ in range(2):
            other = api.get(BY_NAME, {"Fleetlight-Consistency": "strong"})
            assert (other.headers["Fleetlight-Complete"], len(other.json()["servers"])) == ("true", 3)
            assert "farm=live" in other.headers["Fleetlight-Route"]
    finally:
        go_on.set()


def test_item_that_is_asked_for_by_name_and_uuid_comes_as_often(fleet: ComputeFleet, cluster: PlayedCluster) -> None:
    """As in a cluster, whose items the uuids find too, and which the names then let pass."""
    [node] = cluster.items["node"]
    cluster.items["group"] = [{"uuid": "73ed6efc-8c5d-4b25-b14b-fb42f5caa84a", "name": "racks"}]
    api = fleet.api(search=searching(cell_timeout_s=60))
    for item_type, uuid, names in (
        ("group", cluster.items["group"][0]["uuid"], ["racks"]),
        ("node", node["uuid"], ["node1.example.org", "NODE1"]),
        ("instance", instance(0)["uuid"], ["web0", "web0.example.org"]),
    ):
        for wanted in ([uuid, *names], [*names, uuid]):
            question = {"fields": ["uuid"], "qfilter": ["|", *(["=", "name", each] for each in wanted)]}
            found = api.request("PUT", f"/2/query/{item_type}", json=question).json()["data"]
            assert found == [[[0, uuid]]] * len(wanted), (item_type, wanted)
        of_uuid = {"fields": ["uuid"], "qfilter": ["=", "name", uuid]}
        assert api.request("PUT", f"/2/query/{item_type}", json=of_uuid).json()["data"] == []


def test_exports_are_asked_for_by_the_nodes_that_there_are(fleet: ComputeFleet, cluster: PlayedCluster) -> None:
    cluster.items["node"].append({"uuid": str(UUID(int=9)), "name": "node2.example.org", "tags": []})
    cluster.items["export"] = [{"node": "node1.example.org", "export": name} for name in ("old", "older")]
    api = fleet.api(search=searching(cell_timeout_s=60))

    def asked(expression: Any) -> Response:
        return api.request("PUT", "/2/query/export", json={"fields": ["export"], "qfilter": expression})

    of_node = [[[0, "old"]], [[0, "older"]]]
    assert asked(["=", "node", "node1"]).json()["data"] == of_node
    assert asked(["|", *[["=", "node", each] for each in ("node1", "node2", "NODE1.example.org")]]).json()["data"] == (
        of_node * 2
    )
    for expression in (["=", "node", "node9"], ["|", ["=", "node", "node1"], ["=", "node", "node9"]]):
        refused = asked(expression)
        assert (refused.status_code, refused.json()["message"]) == (400, "Node name node9 not found")
    # Not by names alone.
    assert asked(["&", ["=", "node", "node9"]]).json()["data"] == []
    cluster.fault = hangs_up
    assert "part of the fleet does not answer" in asked(["=", "node", "node9"]).json()["message"]


def test_each_look_at_the_cluster_tells_the_journal_what_has_changed(
    fleet: ComputeFleet, cluster: PlayedCluster
) -> None:
    journals = MemoryJournals()
    farm = fleet.cells["farm"]
    with closing(open_adapter(farm)) as adapter, closing(open_writer(fleet.index_settings)) as state:
        journals.start_over(farm.uuid)
        journal = CellJournal(farm.uuid, journals, state)
        unchanged = compare(fleet, adapter, journal)
        assert (unchanged.rows, unchanged.written, unchanged.removed) == (4, 0, 0)
        assert journals.found == []
        cluster.items["instance"] = [
            instance(0, status="ERROR_up", admin_state="down", serial_no=4),
            instance(1),
            RESERVED,
            instance(7),
        ]
        changed = compare(fleet, adapter, journal)
    assert (changed.rows, changed.written, changed.removed) == (4, 2, 1)
    told = {
        each.instance_uuid: (each.record["ganeti"]["values"].get("status"), each.is_gone) for each in journals.found
    }
    assert told == {
        instance(0)["uuid"]: ("ERROR_up", False),
        instance(2)["uuid"]: ("ERROR_down", True),
        instance(7)["uuid"]: ("running", False),
    }


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, arguments)


def test_cluster_is_added_by_command_and_what_makes_no_sense_is_refused(
    cluster: PlayedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLEETLIGHT_FLEET_DATABASE_URL", f"sqlite:///{tmp_path}/fleet.db")
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    assert run("database", "upgrade").exit_code == 0
    login = ["--user", USER, "--password-file", str(tmp_path / "password")]
    add = ["cell", "add", "ganeti", "farm"]
    for arguments, said in (
        ([], "--url is missing"),
        (["--url", cluster.url], "with a user name and the file that has the password"),
        (["--url", cluster.url, "--user", USER], "belong together"),
        (["--url", cluster.url, *login, "--os-cloud", "east"], "No such option: --os-cloud"),
        (["--url", "farm:5080", *login], "the address of an API must be like"),
        (["--url", "https://farm:5080", *login, "--ca-file", str(tmp_path / "password")], "has no certificates"),
    ):
        refused = run(*add, *arguments)
        assert (refused.exit_code, said in refused.output) == (2, True), refused.output
    for word in ("added", "brought up to date"):
        added = run(*add, "--url", cluster.url, *login)
        assert (added.exit_code, word in added.output) == (0, True), added.output
        assert "4 instances" in added.output
    moved = run(*add, "--url", cluster.url)
    assert (moved.exit_code, "4 instances" in moved.output) == (0, True), moved.output
    assert PASSWORD not in run("cell", "list").output
