"""Ganeti's own client of its local queries: at our socket it gets what it gets at that of a real cluster."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.migrations import upgrade_fleet
from tests.clients.conftest import INSTANCES
from tests.support.servers.live_api import LiveApi
from tests.support.servers.luxi_client import luxi_calls
from tests.support.servers.real_cluster import RealCluster
from tests.support.waiting import wait_until


@pytest.fixture(scope="module")
def socket(ganeti_cluster: RealCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """That of a fleet whose only cell is the cluster."""
    folder = tmp_path_factory.mktemp("fleet")
    engine = create_database_engine(f"sqlite:///{folder}/fleet.db")
    upgrade_fleet(engine)
    fleet = Fleet(engine)
    fleet.add_cell("farm", CellKind.GANETI, ganeti_cluster.address(folder), "")
    fleet.close()
    path, log = folder / "luxi.sock", folder / "log"
    variables = {"FLEETLIGHT_FLEET_DATABASE_URL": f"sqlite:///{folder}/fleet.db"}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "fleetlight.cli", "luxi", "--socket", str(path)],
            stdout=output,
            stderr=output,
            env=os.environ | variables,
        )
    try:
        wait_until(lambda: path.exists() or process.poll() is not None, timeout_s=60)
        assert process.poll() is None, log.read_text()
        yield path
        process.terminate()
        assert process.wait(60) == 0, log.read_text()
    finally:
        process.kill()


NAMES = ["name", "uuid", "tags", "serial_no"]
SAME: list[tuple[str, list[Any]]] = [
    ("Query", ["instance", ["name", "status", "oper_ram", "no.such"], None]),
    ("Query", ["instance", ["name"], ["|", ["==", "name", "web2.gnt.example"], ["==", "name", "db1"]]]),
    ("Query", ["node", ["name", "mfree", "role"], ["!=", "role", "M"]]),
    ("Query", ["job", ["id", "status"], ["==", "status", "success"]]),
    ("Query", ["instance", ["name"], ["==", "name", "nobody"]]),
    ("QueryInstances", [[], ["name", "status", "disk.sizes"], False]),
    ("QueryInstances", [["web1", "web20.gnt.example", "nobody"], ["name", "oper_ram"], False]),
    ("QueryInstances", [[], ["name", "no.such", "nor.this"], False]),
    ("QueryInstances", [[], ["name"], True]),
    ("QueryNodes", [[], ["name", "role", "dfree", "pinst_list"], False]),
    ("QueryNodes", [["node3", "node1"], ["name"], False]),
    ("QueryGroups", [[], [*NAMES, "node_list"], False]),
    ("QueryNetworks", [[], [*NAMES, "map", "group_list"], False]),
    ("QueryJobs", [[3, 2], ["id", "summary", "opstatus"]]),
    ("QueryJobs", [["2", 999_999], ["id", "status"]]),
    ("QueryExports", [[], False]),
    ("QueryFilters", [None, ["uuid", "priority", "action"]]),
    ("QueryTags", ["instance", "web1.gnt.example"]),
    ("QueryTags", ["node", "node1"]),
    ("WaitForJobChangeOnce", [3, ["status"], None, None, 1]),
    ("WaitForJobChangeOnce", [999_999, ["status"], None, None, 1]),
]


@pytest.fixture(scope="module")
def said(ganeti_cluster: RealCluster, socket: Path) -> list[tuple[Any, Any]]:
    """Of each call, what the cluster answers and what we do."""
    with ganeti_cluster.unchanged():
        theirs, ours = (luxi_calls(ganeti_cluster, each, SAME) for each in (ganeti_cluster.luxi_socket, socket))
    return list(zip(theirs, ours, strict=True))


def without_texts(answer: Any) -> Any:
    """Descriptions of fields are in words of ours."""
    match answer:
        case {"fields": fields, "data": data}:
            return {"fields": [(field["name"], field["title"], field["kind"]) for field in fields], "data": data}
    return answer


@pytest.mark.parametrize("number", range(len(SAME)), ids=lambda number: f"{SAME[number][0]}-{number}")
def test_call_has_the_answer_of_the_cluster(said: list[tuple[Any, Any]], number: int) -> None:
    theirs, ours = said[number]
    assert {key: without_texts(each) for key, each in ours.items()} == {
        key: without_texts(each) for key, each in theirs.items()
    }


def test_client_reads_everything_of_native_cells(ganeti_cluster: RealCluster, live: LiveApi) -> None:
    calls: list[tuple[str, list[Any]]] = [
        ("QueryInstances", [[], ["name", "pnode", "status", "be/memory"], False]),
        ("QueryNodes", [[], ["name", "role", "pinst_cnt", "mtotal"], False]),
        ("QueryGroups", [[], ["name", "node_cnt"], False]),
        ("QueryJobs", [None, ["id", "status"]]),
        ("QueryFields", ["instance", None]),
        ("QueryClusterInfo", []),
        ("QueryConfigValues", [["cluster_name", "no.such"]]),
    ]
    answers = [each["returned"] for each in luxi_calls(ganeti_cluster, live.data_dir / "luxi.sock", calls)]
    instances, nodes, groups, jobs, fields, cluster, values = answers
    assert len(instances) == INSTANCES
    assert sum(node[2] for node in nodes) == INSTANCES
    assert sum(group[1] for group in groups) == len(nodes)
    assert isinstance(jobs, list)
    assert len(fields["fields"]) > 292
    assert cluster["name"] == values[0]
    assert values[1] is None
