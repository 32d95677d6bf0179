"""Balance and capacity of a Ganeti cluster whose nodes do not say everything, measured by Ganeti's own hbal."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from fleetlight.cli.app import app
from fleetlight.resources.query_fields.cluster_parameters import POLICY_DEFAULTS
from tests.support.played.played_cluster import PASSWORD, USER, Item, PlayedCluster, instance, played_cluster
from tests.support.servers.htools import Htools, htools

__all__ = ["htools"]

NO_DATA = (2, None)
# A cluster without LVM: its nodes say nothing of a volume group.
WITHOUT_LVM = {"dtotal": NO_DATA, "dfree": NO_DATA, "sptotal": NO_DATA, "spfree": NO_DATA}


def node(number: int, **changed: Any) -> Item:
    return {
        "uuid": f"00000000-0000-4000-8000-00000000000{number}",
        "name": f"node{number}",
        "group": "default",
        "group.uuid": "uuid-1",
        "offline": False,
        "drained": False,
        "vm_capable": True,
        "master": number == 1,
        "ndp/exclusive_storage": False,
        "ndp/spindle_count": 1,
        "ndp/cpu_speed": 1.0,
        "mtotal": 65_536,
        "mnode": 1024,
        "mfree": 56_320 if number == 1 else 64_512,
        "ctotal": 16,
        "cnos": 1,
        "tags": [],
        **WITHOUT_LVM,
        **changed,
    }


def web(number: int, **changed: Any) -> Item:
    """An instance on the first node whose disk every node reaches."""
    backend = {"be/maxmem": 2048, "be/memory": 2048, "be/vcpus": 2, "be/auto_balance": True, "be/spindle_use": 1}
    placed = {"pnode": "node1", "disk_template": "ext", "disk_usage": 0}
    return instance(number, **{**placed, **backend, "disk.spindles": [None, None], **changed})


GROUP = {"uuid": "uuid-1", "name": "default", "alloc_policy": "preferred", "ipolicy": POLICY_DEFAULTS, "tags": []}


@pytest.fixture
def cluster() -> Iterator[PlayedCluster]:
    nodes = [node(number) for number in (1, 2, 3)]
    with played_cluster(*(web(number) for number in range(4)), node=nodes, group=[GROUP]) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def farm(cluster: PlayedCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fleet with the cluster, for commands."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLEETLIGHT_FLEET_DATABASE_URL", f"sqlite:///{tmp_path}/fleet.db")
    monkeypatch.setenv("FLEETLIGHT_INDEX_PATH", str(tmp_path / "index.db"))
    (tmp_path / "password").write_text(f"{PASSWORD}\n")
    assert run("database", "upgrade").exit_code == 0
    login = ("--user", USER, "--password-file", tmp_path / "password")
    added = run("cell", "add", "ganeti", "farm", "--url", cluster.url, *login)
    assert added.exit_code == 0, added.output


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def document(*arguments: object) -> Mapping[str, Any]:
    shown = run(*arguments, "--output", "json")
    assert shown.exit_code == 0, shown.output
    found: Mapping[str, Any] = json.loads(shown.stdout)
    return found


def of_nodes(cluster: PlayedCluster, **changed: Any) -> None:
    """Change what the second node says."""
    cluster.items["node"] = [node(1), node(2, **changed), node(3)]


def told_to_hbal(folder: Path, items: Mapping[str, list[Any]]) -> Path:
    """What the cluster says, in the files that hbal reads in the place of a remote API."""

    def plain(item: Item) -> Item:
        return {name: None if isinstance(value, tuple) else value for name, value in item.items()}

    backend = ("maxmem", "memory", "vcpus", "auto_balance", "spindle_use")
    files = {
        "groups": [plain(group) for group in items["group"]],
        "nodes": [
            {**plain(each), "ndparams": {"exclusive_storage": each["ndp/exclusive_storage"], "spindle_count": 1}}
            for each in items["node"]
        ],
        "instances": [
            {**plain(each), "beparams": {name: each[f"be/{name}"] for name in backend}} for each in items["instance"]
        ],
        "info": {"master": "node1", "tags": [], "ipolicy": POLICY_DEFAULTS, "default_hypervisor": "xen-pvm"},
    }
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    return folder


def test_nodes_without_a_volume_group_are_balanced_as_hbal_balances_them(
    cluster: PlayedCluster, htools: Htools, tmp_path: Path
) -> None:
    found = document("balance")
    of_hbal = htools.balance_of_answers(told_to_hbal(tmp_path, cluster.items), "default")
    assert found["score_before"] == pytest.approx(of_hbal.before, abs=1e-6)
    assert 0 < found["score_after"] <= of_hbal.best + 1e-6 < found["score_before"]
    assert len(found["moves"]) >= 2
    assert (found["complete"], found["left_out"]) == (True, [])


def test_nodes_without_a_volume_group_have_room(cluster: PlayedCluster) -> None:
    found = document("capacity")
    [cell] = found["cells"]
    assert (cell["nodes"], cell["available_nodes"], cell["silent_nodes"]) == (3, 3, [])
    assert cell["total"] == {"vcpus": 48, "memory_mib": 3 * 65_536, "disk_mib": 0}
    assert found["complete"] is True


@pytest.mark.parametrize(("said", "ratio"), [({}, 4), ({"ipolicy": {**POLICY_DEFAULTS, "vcpu-ratio": 1.5}}, 1.5)])
def test_free_processors_count_the_ratio_of_the_policy(
    cluster: PlayedCluster, said: Mapping[str, Any], ratio: float
) -> None:
    cluster.items["group"] = [{**GROUP, **said}]
    [cell] = document("capacity")["cells"]
    assert cell["used"]["vcpus"] == 3 + 4 * 2
    assert cell["free"]["vcpus"] == 48 * ratio - 11


@pytest.mark.parametrize("name", ["mtotal", "mnode", "mfree", "ctotal", "cnos"])
def test_node_without_a_figure_that_hbal_needs_is_named_by_balance(cluster: PlayedCluster, name: str) -> None:
    of_nodes(cluster, **{name: NO_DATA})
    found = document("balance")
    assert found["complete"] is False
    [left_out] = found["left_out"]
    assert (left_out["cell"], left_out["type"], left_out["name"]) == ("farm", "node", "node2")
    assert name in left_out["why"]
    assert "node2" not in {move["to"]["primary"] for move in found["moves"]}
    shown = run("balance")
    assert f"Not complete: cell farm: node node2 has not said {name}" in shown.stderr


@pytest.mark.parametrize("name", ["mtotal", "mnode", "mfree", "ctotal", "cnos"])
def test_hbal_takes_no_cluster_with_such_a_node(
    cluster: PlayedCluster, htools: Htools, tmp_path: Path, name: str
) -> None:
    of_nodes(cluster, **{name: NO_DATA})
    assert not htools.loads_answers(told_to_hbal(tmp_path, cluster.items))


@pytest.mark.parametrize("name", ["mtotal", "mfree", "ctotal", "cnos"])
def test_node_without_a_figure_is_named_by_capacity(cluster: PlayedCluster, name: str) -> None:
    of_nodes(cluster, **{name: NO_DATA})
    found = document("capacity")
    [cell] = found["cells"]
    assert (cell["nodes"], cell["available_nodes"], cell["silent_nodes"]) == (3, 2, ["node2"])
    assert (found["complete"], found["missing"]) == (False, [])
    shown = run("capacity")
    assert "Not complete: cell farm: nodes without figures do not count: node2" in shown.stderr
    assert "no answer" not in shown.stdout


@pytest.mark.parametrize("said", [{"offline": True}, {"vm_capable": False}])
def test_node_that_has_nothing_to_say_is_not_missed(cluster: PlayedCluster, said: Mapping[str, Any]) -> None:
    of_nodes(cluster, **said, **dict.fromkeys(("mtotal", "mnode", "mfree", "ctotal", "cnos"), NO_DATA))
    for command in ("balance", "capacity"):
        assert document(command)["complete"] is True, command
        assert "Not complete" not in run(command).stderr


def test_drained_node_that_does_not_answer_is_missed_in_what_there_is_and_not_in_balance(
    cluster: PlayedCluster,
) -> None:
    of_nodes(cluster, drained=True, **dict.fromkeys(("mtotal", "mnode", "mfree", "ctotal", "cnos"), NO_DATA))
    assert document("balance")["complete"] is True
    assert document("capacity")["cells"][0]["silent_nodes"] == ["node2"]


@pytest.mark.parametrize("name", ["mtotal", "ctotal"])
def test_node_that_says_it_has_none_is_named_and_ends_nothing(cluster: PlayedCluster, name: str) -> None:
    of_nodes(cluster, **{name: 0})
    assert [each["name"] for each in document("balance")["left_out"]] == ["node2"]


@pytest.mark.parametrize("said", [{"pnode": "node9"}, {"disk_template": "drbd", "snodes": ["node9"]}])
def test_instance_on_a_node_that_the_cell_does_not_have_is_named(
    cluster: PlayedCluster, said: Mapping[str, Any]
) -> None:
    cluster.items["node"] = [node(number, dtotal=102_400, dfree=51_200) for number in (1, 2, 3)]
    cluster.items["instance"][3] = web(3, **said)
    found = document("balance")
    assert [(each["type"], each["name"]) for each in found["left_out"]] == [("instance", "web3.example.org")]
    assert "node9" in found["left_out"][0]["why"]
    assert found["complete"] is False
    assert document("capacity", "--memory", "2G", "--disk", "1G", "--vcpus", "2")["left_out"] == found["left_out"]


@pytest.mark.parametrize(("missing", "said"), [("beparams", "be/memory, be/vcpus"), ("disk_template", "disk_template")])
def test_instance_that_does_not_say_its_size_is_named(cluster: PlayedCluster, missing: str, said: str) -> None:
    cluster.items["instance"][3] = web(3, **{missing: NO_DATA})
    [left_out] = document("balance")["left_out"]
    assert (left_out["name"], left_out["why"]) == ("web3.example.org", f"has not said {said}, and counts without")


def test_node_of_a_group_that_the_cell_does_not_have_is_named(cluster: PlayedCluster) -> None:
    of_nodes(cluster, **{"group.uuid": "uuid-9"})
    [left_out] = document("balance")["left_out"]
    assert (left_out["name"], "group" in left_out["why"]) == ("node2", True)
