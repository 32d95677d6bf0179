"""Nodes of Nova's cells, as its compute nodes and services have them."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import create_engine

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.kinds.nova_db import tables
from fleetlight.cells.kinds.nova_db.adapter import NovaDbAdapter
from fleetlight.cells.kinds.nova_db.build_requests import NovaBuildRequests
from fleetlight.cells.model import Cell
from fleetlight.cells.node_capacity import UNKNOWN_RATIOS, UNKNOWN_ZONE
from fleetlight.resources.amount import Amount
from fleetlight.resources.query_fields.catalog import ITEM_TYPES
from fleetlight.resources.query_fields.definitions import ResultStatus
from tests.support.fleets.documents import CREATED_AT
from tests.support.fleets.nova_tables import CELL1, SmallNova, small_nova

ALL = frozenset(ITEM_TYPES["node"])


@pytest.fixture
def nova(tmp_path: Path) -> SmallNova:
    return small_nova(tmp_path)


def add_node(nova: SmallNova, name: str, service: dict[str, Any] | None = None, **values: Any) -> None:
    row = {
        "uuid": f"uuid of {name}",
        "host": f"host of {name}",
        "hypervisor_hostname": name,
        "host_ip": "192.0.2.7",
        "deleted": 0,
        "created_at": CREATED_AT,
        "updated_at": CREATED_AT + 5,
        "vcpus": 8,
        "memory_mb": 4096,
        "memory_mb_used": 1024,
        "local_gb": 100,
        "local_gb_used": 30,
    }
    nova.insert("cell1", tables.compute_nodes, row | values)
    if service is not None:
        own = {"host": f"host of {name}", "binary": "nova-compute", "deleted": 0, "disabled": False}
        nova.insert("cell1", tables.services, own | {"forced_down": False} | service)


def adapter_of(nova: SmallNova) -> NovaDbAdapter:
    return NovaDbAdapter(Cell(CELL1, "cell1", CellKind.NOVA_DB, nova.urls["cell1"], ""))


def nodes(nova: SmallNova) -> dict[str, Any]:
    with closing(adapter_of(nova)) as adapter:
        return {record["name"]: record for record in adapter.read_items("node", ALL)}


def test_node_tells_what_nova_knows_and_lacks_all_else(nova: SmallNova) -> None:
    add_node(nova, "node1", {})
    for number, name in enumerate(("web10", "web9", None, "gone", "copy", "elsewhere"), 1):
        deleted, hidden = (number if name == "gone" else 0), name == "copy"
        node = "node2" if name == "elsewhere" else "node1"
        nova.add("cell1", number, display_name=name, node=node, deleted=deleted, hidden=hidden)
    assert nodes(nova) == {
        "node1": {
            "name": "node1",
            "uuid": "uuid of node1",
            "ctime": CREATED_AT,
            "mtime": CREATED_AT + 5,
            "pip": "192.0.2.7",
            "offline": False,
            "drained": False,
            "role": "R",
            "pinst_cnt": 3,
            "pinst_list": ["web9", "web10"],
            "sinst_cnt": 0,
            "sinst_list": [],
            "ctotal": 8,
            "mtotal": 4096,
            "mfree": 3072,
            "dtotal": 102_400,
            "dfree": 71_680,
        }
    }


def test_service_says_whether_a_node_is_drained_or_offline(nova: SmallNova) -> None:
    add_node(nova, "alone")
    add_node(nova, "drained", {"disabled": True})
    add_node(nova, "down", {"forced_down": True})
    add_node(nova, "old", {"disabled": True, "deleted": 4})
    add_node(nova, "other", {"disabled": True, "binary": "nova-conductor"})
    add_node(nova, "removed", {}, deleted=7)
    found = nodes(nova)
    assert {name: record["role"] for name, record in found.items()} == {
        "alone": "R",
        "drained": "D",
        "down": "O",
        "old": "R",
        "other": "R",
    }
    live = ("ctotal", "mtotal", "mfree", "dtotal", "dfree")
    assert {found["down"][name] for name in live} == {ResultStatus.OFFLINE}


def test_size_that_a_node_has_not_told_yet_is_not_known(nova: SmallNova) -> None:
    add_node(nova, "new", {}, memory_mb_used=None, local_gb=None)
    new = nodes(nova)["new"]
    assert (new["mtotal"], new["mfree"]) == (4096, ResultStatus.NO_DATA)
    assert new["mfree"] is ResultStatus.NO_DATA
    assert new["dtotal"] is new["dfree"] is ResultStatus.NO_DATA


def test_capacity_counts_what_services_give_away_and_says_what_is_not_known(nova: SmallNova) -> None:
    ratios = {"cpu_allocation_ratio": 4.0, "ram_allocation_ratio": 1.5, "disk_allocation_ratio": 1.0}
    add_node(nova, "node1", {}, vcpus_used=10, **ratios)
    add_node(nova, "older", {}, vcpus_used=2, **(ratios | {"cpu_allocation_ratio": 0.0}))
    add_node(nova, "drained", {"disabled": True}, vcpus_used=0, **ratios)
    add_node(nova, "silent", {}, vcpus_used=None, **ratios)
    with closing(adapter_of(nova)) as adapter:
        found = {node.name: node for node in adapter.read_capacity()}
    node = found["node1"]
    assert (node.total, node.usable) == (Amount(8, 4096, 102_400), Amount(32, 6144, 102_400))
    assert (node.used, node.reserved, node.free) == (Amount(10, 1024, 30_720), Amount(), Amount(22, 5120, 71_680))
    assert (node.zone, node.unknown, node.is_available) == (None, frozenset({UNKNOWN_ZONE}), True)
    assert (found["older"].usable.vcpus, found["older"].unknown) == (8, frozenset({UNKNOWN_RATIOS, UNKNOWN_ZONE}))
    assert (found["drained"].is_available, found["silent"].is_available) == (False, False)
    assert found["silent"].total == found["silent"].free == Amount()


def test_statements_are_told(nova: SmallNova) -> None:
    with closing(adapter_of(nova)) as adapter:
        statements = adapter.describe_items("node", {"name", "pinst_cnt"})["statements"]
        assert [" FROM compute_nodes" in each["sql"].replace("\n", " ") for each in statements] == [False, True]
        assert adapter.describe_items("job", {"id"}) == {"statements": []}


def test_cell_of_nova_has_nothing_of_the_other_types(nova: SmallNova) -> None:
    before = NovaBuildRequests(Cell(CELL1, "before", CellKind.NOVA_DB, nova.urls["api"], ""))
    with closing(adapter_of(nova)) as adapter, closing(before):
        for item_type in ITEM_TYPES.keys() - {"instance", "node"}:
            assert adapter.read_items(item_type, ()) == []
        assert before.read_items("node", ALL) == []
        assert before.read_capacity() == []


def test_account_that_may_not_read_compute_nodes_loses_nothing_but_nodes(nova: SmallNova) -> None:
    uuid = nova.add("cell1", 1)
    engine = create_engine(nova.urls["cell1"])
    tables.compute_nodes.drop(engine)
    engine.dispose()
    with closing(adapter_of(nova)) as adapter:
        with pytest.raises(CellUnreachableError, match="compute_nodes"):
            adapter.read_items("node", ALL)
        assert adapter.find(uuid) is not None
