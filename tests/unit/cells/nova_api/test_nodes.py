"""From hypervisors and services of a compute API to nodes."""

from typing import Any

import pytest

from fleetlight.cells.errors import UpstreamError
from fleetlight.cells.kinds.nova_api.nodes import node_capacities, node_records
from fleetlight.cells.node_capacity import UNKNOWN_RATIOS, UNKNOWN_ZONE
from fleetlight.resources.amount import Amount
from fleetlight.resources.query_fields.definitions import ResultStatus

UUID = "b1e43b5f-eec1-44e0-9f10-7b4945c0226d"
HYPERVISOR: dict[str, Any] = {
    "id": UUID,
    "hypervisor_hostname": "node1.example.org",
    "state": "up",
    "status": "enabled",
    "host_ip": "192.0.2.7",
    "service": {"id": "6e9a7d2c-5a5f-4b0f-8a5c-0a1b2c3d4e5f", "host": "host1", "disabled_reason": None},
    "vcpus": 8,
    "memory_mb": 4096,
    "memory_mb_used": 5000,
    "local_gb": 100,
    "local_gb_used": 30,
    "servers": [{"name": "web10", "uuid": "1"}, {"name": "web9", "uuid": "2"}],
}
SERVICE = {"host": "host1", "binary": "nova-compute", "status": "enabled", "state": "up", "forced_down": False}


def test_node_tells_what_the_api_shows_and_lacks_all_else() -> None:
    assert node_records([HYPERVISOR], [SERVICE]) == [
        {
            "name": "node1.example.org",
            "uuid": UUID,
            "pip": "192.0.2.7",
            "offline": False,
            "drained": False,
            "role": "R",
            "pinst_cnt": 2,
            "pinst_list": ["web9", "web10"],
            "sinst_cnt": 0,
            "sinst_list": [],
            "ctotal": 8,
            "mtotal": 4096,
            "mfree": -904,
            "dtotal": 102_400,
            "dfree": 71_680,
        }
    ]


def test_capacity_is_told_with_zones_and_without_ratios() -> None:
    hypervisor = HYPERVISOR | {"vcpus_used": 3}
    [node] = node_capacities([hypervisor], [SERVICE | {"zone": "east"}])
    assert (node.total, node.used) == (Amount(8, 4096, 102_400), Amount(3, 5000, 30_720))
    assert (node.zone, node.unknown, node.free.memory_mib) == ("east", frozenset({UNKNOWN_RATIOS}), -904)
    [later] = node_capacities([{name: value for name, value in hypervisor.items() if name != "vcpus"}], [SERVICE])
    assert (later.is_available, later.total, later.unknown) == (
        False,
        Amount(),
        frozenset({UNKNOWN_RATIOS, UNKNOWN_ZONE}),
    )


def test_service_says_whether_a_node_is_drained_or_offline() -> None:
    [drained] = node_records([HYPERVISOR | {"status": "disabled"}], [SERVICE])
    [down] = node_records([HYPERVISOR], [SERVICE | {"forced_down": True}])
    [without] = node_records([HYPERVISOR], [])
    assert [each["role"] for each in (drained, down, without)] == ["D", "O", "R"]
    assert down["mfree"] is ResultStatus.OFFLINE


def test_cell_of_the_api_that_is_down_is_no_cell_without_nodes() -> None:
    dead = {"binary": "nova-compute", "host": "host2", "status": "UNKNOWN"}
    with pytest.raises(UpstreamError, match="a cell of its own that is down"):
        node_records([HYPERVISOR], [SERVICE, dead])


@pytest.mark.parametrize(
    "change",
    [
        {"id": 7},
        {"id": "seven"},
        {"hypervisor_hostname": None},
        {"service": None},
        {"service": {}},
        {"vcpus": "8"},
        {"memory_mb": True},
        {"local_gb": 1.5},
        {"servers": [{}]},
        {"servers": 3},
        {"host_ip": 4},
    ],
)
def test_what_no_compute_api_shows_is_a_failure_of_the_cell(change: dict[str, Any]) -> None:
    with pytest.raises(UpstreamError, match="a hypervisor is not shown as one is"):
        node_records([HYPERVISOR | change], [SERVICE])


def test_size_that_is_not_told_is_not_known() -> None:
    [node] = node_records([{name: value for name, value in HYPERVISOR.items() if name != "vcpus"}], [SERVICE])
    assert node["ctotal"] is ResultStatus.NO_DATA
