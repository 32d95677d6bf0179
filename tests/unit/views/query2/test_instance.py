"""Instances as rows of Query2."""

from typing import Any

import pytest

from fleetlight.query.evaluate import matcher
from fleetlight.query.expressions import to_filter
from fleetlight.query.filter_text import parse_filter
from fleetlight.resources.derived_fields import derived_values
from fleetlight.resources.fields import Kind
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.resources.query_fields.cluster_parameters import CLUSTER, filled_cluster
from fleetlight.resources.query_fields.ganeti import kept_in_part
from fleetlight.resources.query_fields.instance import INSTANCE
from fleetlight.views.query2.instance import INSTANCE_VALUES
from fleetlight.views.query2.values import GROUPS, NETWORKS, SYSTEMS, CellFacts, Facts, as_json, split
from tests.support.fleets.documents import make_record

FLAVOR = {"memory_mb": 2048, "vcpus": 2, "root_gb": 10, "ephemeral_gb": 0, "swap": 512}
VOLUME = {"volume_id": "11111111-1111-4111-8111-111111111111", "device_name": "/dev/vdb"}
ADDRESSES = [
    {"label": "net", "address": "10.0.0.1", "version": 4, "mac": "fa:16:3e:00:00:01", "device_name": "tap1"},
    {"label": "net", "address": "fd00::1", "version": 6, "mac": "fa:16:3e:00:00:01", "device_name": "tap1"},
    {"label": "other", "address": "10.1.0.1", "version": 4, "mac": "fa:16:3e:00:00:02"},
]
RECORD = make_record(
    display_name="web1.example.com",
    node="node1.example.com",
    vm_state="active",
    power_state=1,
    flavor=FLAVOR,
    image_ref="22222222-2222-4222-8222-222222222222",
    block_devices=[VOLUME],
    ip_addresses=ADDRESSES,
    tags=["a", "b"],
    created_at=1_700_000_000_250_000,
    updated_at=None,
)

IMAGE, GROUP, NETWORK = (f"{digit * 8}-{digit * 4}-4{digit * 3}-8{digit * 3}-{digit * 12}" for digit in "234")
ITEMS: dict[str, list[Any]] = {
    GROUPS: [{"name": "rack1", "uuid": GROUP, "node_list": ["node1.example.com", "node2.example.com"]}],
    NETWORKS: [{"uuid": NETWORK, "name": "front"}],
    SYSTEMS: [{"name": "debian-12", "image_ref": IMAGE}],
    CLUSTER: [
        filled_cluster(
            {
                "beparams": {"default": {"auto_balance": False}},
                "hvparams": {"kvm": {"cpu_type": "host"}},
                "os_hvp": {"debian-12": {"kvm": {"acpi": False}}},
                "osparams": {"debian-12": {"dhcp": "yes"}},
                "nicparams": {"default": {"link": "br7"}},
            }
        )
    ],
}
CELL = CellFacts("cell1", is_configured_here=True, items=ITEMS)


def cell(name: str, record: dict[str, Any] = RECORD) -> tuple[int, Any]:
    made = INSTANCE_VALUES[name].make(Facts({**record, **derived_values(record)}, 7, CELL))
    return as_json(made, INSTANCE[name])


def test_every_field_has_a_value() -> None:
    assert set(INSTANCE_VALUES) == set(INSTANCE)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("name", [0, "web1.example.com"]),
        ("serial_no", [0, 7]),
        ("cell", [0, "cell1"]),
        ("ctime", [0, 1_700_000_000.25]),
        ("mtime", [0, 1_700_000_000.25]),
        ("tags", [0, ["a", "b"]]),
        ("pnode", [0, "node1.example.com"]),
        ("snodes", [0, []]),
        ("os", [0, "debian-12"]),
        ("hypervisor", [0, "kvm"]),
        ("disk_template", [0, "mixed"]),
        ("network_port", [3, None]),
        ("disks_active", [0, True]),
        ("pnode.group", [0, "rack1"]),
        ("pnode.group.uuid", [0, GROUP]),
        ("snodes.group", [0, []]),
        ("admin_state", [0, "up"]),
        ("status", [0, "running"]),
        ("oper_state", [0, True]),
        ("oper_ram", [0, 2048]),
        ("oper_vcpus", [0, 2]),
        ("be/memory", [0, 2048]),
        ("vcpus", [0, 2]),
        ("be/minmem", [0, 2048]),
        ("be/auto_balance", [0, False]),
        ("be/spindle_use", [0, 1]),
        (
            "beparams",
            [
                0,
                {
                    "minmem": 2048,
                    "maxmem": 2048,
                    "vcpus": 2,
                    "auto_balance": False,
                    "always_failover": False,
                    "spindle_use": 1,
                },
            ],
        ),
        ("custom_beparams", [0, {"minmem": 2048, "maxmem": 2048, "vcpus": 2}]),
        ("hv/acpi", [0, False]),
        ("hv/cpu_type", [0, "host"]),
        ("hv/pae", [3, None]),
        ("custom_hvparams", [0, {}]),
        ("osparams", [0, {"dhcp": "yes"}]),
        ("disk.count", [0, 3]),
        ("disk.sizes", [0, [10240, 512, None]]),
        ("disk_usage", [0, 10752]),
        ("sda_size", [0, 10240]),
        ("disk2.uuid", [0, VOLUME["volume_id"]]),
        ("disk.size/2", [3, None]),
        ("disk.size/3", [3, None]),
        ("nic.count", [0, 2]),
        ("nic.ips", [0, ["10.0.0.1", "10.1.0.1"]]),
        ("nic.macs", [0, ["fa:16:3e:00:00:01", "fa:16:3e:00:00:02"]]),
        ("nic0.ip", [0, "10.0.0.1"]),
        ("nic.network.name/1", [0, "other"]),
        ("nic.name/1", [3, None]),
        ("nic.ip/7", [3, None]),
        ("nic.modes", [0, ["bridged", "bridged"]]),
        ("nic.links", [0, ["br7", "br7"]]),
        ("bridge", [0, "br7"]),
        ("nic.vlan/0", [3, None]),
        ("nic.network/0", [3, None]),
        ("custom_nicparams", [0, [{}, {}]]),
        ("forthcoming", [0, False]),
        ("task_state", [3, None]),
        ("updated_at", [3, None]),
        ("vm_state", [0, "active"]),
    ],
)
def test_value_is_made_of_the_record(name: str, expected: list[Any]) -> None:
    assert list(cell(name)) == expected


@pytest.mark.parametrize(
    ("vm_state", "power_state", "status", "oper_state"),
    [
        ("active", 1, "running", [0, True]),
        ("paused", 3, "running", [0, True]),
        ("stopped", 4, "ADMIN_down", [0, False]),
        ("stopped", 1, "ERROR_up", [0, True]),
        ("active", 4, "ERROR_down", [0, False]),
        ("active", 6, "ERROR_down", [0, False]),
        ("suspended", 7, "ADMIN_down", [0, False]),
        ("shelved_offloaded", 4, "ADMIN_down", [0, False]),
        ("building", 0, "ADMIN_down", [2, None]),
        ("error", None, "ERROR_down", [2, None]),
    ],
)
def test_status_is_of_what_is_wanted_and_what_the_hypervisor_said(
    vm_state: str, power_state: int | None, status: str, oper_state: list[Any]
) -> None:
    record = {**RECORD, "vm_state": vm_state, "power_state": power_state}
    assert cell("status", record) == (0, status)
    assert list(cell("oper_state", record)) == oper_state


def test_instance_that_boots_from_a_volume_has_no_root_disk() -> None:
    assert cell("disk.sizes", {**RECORD, "image_ref": ""}) == (0, [512, None])


def test_instance_of_which_little_is_known_has_values_too() -> None:
    empty: dict[str, Any] = dict.fromkeys(INSTANCE_FIELDS)
    empty |= {"uuid": RECORD["uuid"], "created_at": 0}
    for name in INSTANCE:
        status, value = cell(name, empty)
        assert (status == 0) or value is None
    assert cell("name", empty) == (2, None)
    assert cell("tags", empty) == (0, [])
    assert cell("be/memory", empty) == (2, None)


_PYTHON_TYPES: dict[Kind, tuple[type, ...]] = {
    Kind.TEXT: (str,),
    Kind.BOOL: (bool,),
    Kind.NUMBER: (int,),
    Kind.UNIT: (int,),
    Kind.FLOAT: (float,),
    Kind.TIMESTAMP: (int, float),
}


def test_values_are_of_the_kinds_of_their_fields() -> None:
    seen = 0
    for name, field in INSTANCE.items():
        status, value = cell(name)
        expected = _PYTHON_TYPES.get(field.kind)
        if status == 0 and expected is not None:
            seen += 1
            assert isinstance(value, expected), name
            assert expected == (bool,) or not isinstance(value, bool), name
    assert seen > 50


class _Watched(dict[str, Any]):
    """A record that tells what was read of it."""

    def __init__(self, record: dict[str, Any]) -> None:
        super().__init__(record)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)


def test_values_read_what_they_say_that_they_need() -> None:
    for name, value in INSTANCE_VALUES.items():
        record = _Watched(RECORD)
        value.make(Facts(record, 7, CELL))
        assert record.read <= value.needs, name


def test_values_need_of_the_cell_what_they_say_alone() -> None:
    kept = {"values": {"snodes": ["node2.example.com"], "nic.networks": [NETWORK]}, "no_data": [], "offline": []}
    for record in (RECORD, {**RECORD, "ganeti": {**kept, "is_whole": False}}):
        for name, value in INSTANCE_VALUES.items():
            items = {item_type: ITEMS[item_type] for item_type in value.of_cell}
            asked = CellFacts("cell1", is_configured_here=True, items=items)
            assert value.make(Facts(record, 7, asked)) == value.make(Facts(record, 7, CELL)), name


@pytest.mark.parametrize(
    ("is_native", "status"),
    [
        pytest.param(True, 2, id="a cell that does not answer"),
        pytest.param(False, 3, id="a cell that has no such rows"),
    ],
)
def test_what_other_rows_of_the_cell_would_say_is_no_guess(is_native: bool, status: int) -> None:
    facts = Facts(RECORD, None, CellFacts("cell1", is_configured_here=is_native))
    names = ("os", "hypervisor", "hvparams", "hv/acpi", "osparams", "be/auto_balance", "pnode.group", "nic.mode/0")
    for name in names:
        assert INSTANCE_VALUES[name].make(facts) == (status, None), name
    assert INSTANCE_VALUES["be/minmem"].make(facts) == (0, 2048)


def test_image_that_no_host_can_install_is_no_operating_system() -> None:
    for image in ("", NETWORK):
        assert cell("os", {**RECORD, "image_ref": image}) == (3, None)


def reserved(**values: Any) -> dict[str, Any]:
    return {
        **RECORD,
        "display_name": None,
        "node": None,
        "forthcoming": True,
        "vm_state": "building",
        "power_state": None,
        "flavor": None,
        "image_ref": None,
        "block_devices": [],
        "ip_addresses": [],
        "ganeti": kept_in_part(values),
    }


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("name", [2, None]),
        ("status", [0, "ADMIN_down"]),
        ("admin_state", [0, "down"]),
        ("disks_active", [0, False]),
        ("oper_state", [0, False]),
        ("oper_ram", [3, None]),
        ("oper_vcpus", [3, None]),
        ("pnode", [2, None]),
        ("pnode.group", [2, None]),
        ("os", [2, None]),
        ("hypervisor", [2, None]),
        ("hv/acpi", [2, None]),
        ("disk_template", [2, None]),
        ("beparams", [2, None]),
        ("be/memory", [2, None]),
        ("disk.count", [0, 0]),
    ],
)
def test_reservation_of_nothing_yet_runs_nowhere(name: str, expected: list[Any]) -> None:
    assert list(cell(name, reserved())) == expected


def test_reservation_is_down_and_not_lost_while_its_cell_is() -> None:
    facts = Facts(reserved(), None, CELL, cell_is_down=True)
    found = [INSTANCE_VALUES[name].make(facts) for name in ("status", "oper_state", "oper_ram")]
    assert found == [(0, "ADMIN_down"), (0, False), (3, None)]


OF_GANETI = {
    **RECORD,
    "image_ref": None,
    "block_devices": [],
    "ganeti": kept_in_part(
        {
            "os": "debian-12+small",
            "hypervisor": "kvm",
            "disk_template": "drbd",
            "snodes": ["node2.example.com"],
            "custom_beparams": {"maxmem": 512, "always_failover": True},
            "custom_hvparams": {"acpi": True},
            "custom_osparams": {"dhcp": "no"},
            "custom_nicparams": [{"mode": "openvswitch", "link": "ovs1", "vlan": ".7"}, {}],
            "nic.networks": [NETWORK, None],
            "disk.sizes": [1024, 512],
        }
    ),
}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("os", [0, "debian-12+small"]),
        ("disk_template", [0, "drbd"]),
        ("snodes", [0, ["node2.example.com"]]),
        ("snodes.group", [0, ["rack1"]]),
        ("snodes.group.uuid", [0, [GROUP]]),
        ("admin_state", [0, "up"]),
        ("status", [0, "running"]),
        # The memory is that of the flavor, which the compute API changes.
        ("custom_beparams", [0, {"maxmem": 2048, "always_failover": True}]),
        ("be/maxmem", [0, 2048]),
        ("be/minmem", [0, 128]),
        ("be/always_failover", [0, True]),
        ("be/auto_balance", [0, False]),
        ("hv/acpi", [0, True]),
        ("hv/cpu_type", [0, "host"]),
        ("osparams", [0, {"dhcp": "no"}]),
        ("nic.modes", [0, ["openvswitch", "bridged"]]),
        ("nic.link/0", [0, "ovs1"]),
        ("nic.vlans", [0, [".7", None]]),
        ("nic.bridges", [0, [None, "br7"]]),
        ("nic.network/0", [0, NETWORK]),
        ("nic.networks.names", [0, ["front", None]]),
        ("nic.network.name/0", [0, "front"]),
        ("disk.size/1", [0, 512]),
        ("disk_usage", [0, 1024 + 512 + 2 * 128]),
    ],
)
def test_value_is_what_was_kept_of_the_instance_or_follows_from_the_rest(name: str, expected: list[Any]) -> None:
    assert list(cell(name, OF_GANETI)) == expected


def test_nothing_is_kept_under_a_name_that_no_field_has() -> None:
    with pytest.raises(ValueError, match=r"called disk\.size$"):
        kept_in_part({"os": "debian", "disk.size": [1]})


def as_query_record(record: dict[str, Any]) -> dict[str, Any]:
    return {name: INSTANCE_VALUES[name].make(Facts(record, 7, CELL))[1] for name in INSTANCE}


@pytest.mark.parametrize(
    ("text", "is_all_stored"),
    [
        ('name == "web1"', True),
        ('name == "web2"', True),
        ('not name == "web1"', True),
        ('name =~ m/^web/ and "a" in tags and ctime > 5', True),
        ('task_state == "spawning"', True),
        ('name == "web1" and be/memory > 1024', True),
        ('name == "web1" and be/minmem > 1024', False),
        ('status == "running" or name == "x"', False),
        ("metadata =~ m/x/", False),
        ('host != "x" and not nic0.ip =* "10*"', False),
    ],
)
def test_filter_is_split_without_a_change_of_its_meaning(text: str, is_all_stored: bool) -> None:
    node = to_filter(parse_filter(text), INSTANCE)
    stored, rest = split(node, INSTANCE_VALUES)
    assert (rest == to_filter(["&"], INSTANCE)) is is_all_stored
    for changes in ({}, {"display_name": None}, {"task_state": "spawning"}, {"host": "x"}, {"tags": None}):
        record = {**RECORD, **changes}
        row = as_query_record(record)
        both = matcher(stored, INSTANCE_FIELDS)(record) and matcher(rest, INSTANCE)(row)
        assert both is matcher(node, INSTANCE)(row)


SAID: dict[str, Any] = {
    "values": {
        "os": "debian+bookworm",
        "admin_state": "up",
        "hvparams": {"acpi": True, "cpu_cores": "four"},
        "beparams": {"maxmem": 512, "vcpus": 1},
        "disk.sizes": [10_240, 512],
        "disk.names": ["root", None],
        "nic.macs": ["aa:00:00:00:00:01"],
        "nic.ips": [None],
        "status": "ERROR_up",
    },
    "no_data": ["snodes"],
    "offline": ["oper_ram"],
}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("os", [0, "debian+bookworm"]),
        ("admin_up", [0, True]),
        ("hv/acpi", [0, True]),
        ("hv/pae", [3, None]),
        ("hv/cpu_cores", [2, None]),
        ("be/memory", [0, 512]),
        ("be/minmem", [3, None]),
        ("disk.count", [0, 2]),
        ("disk.size/1", [0, 512]),
        ("disk1.size", [0, 512]),
        ("disk.size/2", [3, None]),
        ("disk.name/1", [3, None]),
        ("disk.names", [0, ["root", None]]),
        ("nic.count", [0, 1]),
        ("mac", [0, "aa:00:00:00:00:01"]),
        ("ip", [3, None]),
        ("snodes", [2, None]),
        ("oper_ram", [4, None]),
        ("hypervisor", [3, None]),
        ("status", [0, "ERROR_up"]),
        # Of the record, as for every other instance.
        ("name", [0, "web1.example.com"]),
        ("pnode", [0, "node1.example.com"]),
        ("console", [3, None]),
    ],
)
def test_value_is_what_its_cluster_says(name: str, expected: list[Any]) -> None:
    assert list(cell(name, make_record(**{**RECORD, "ganeti": SAID}))) == expected


def test_what_a_cluster_said_of_running_is_not_repeated_while_it_is_down() -> None:
    facts = Facts(make_record(**{**RECORD, "ganeti": SAID}), None, CellFacts("farm"), cell_is_down=True)
    found = {name: INSTANCE_VALUES[name].make(facts) for name in ("status", "oper_state", "oper_ram", "os")}
    assert found == {
        "status": (0, "ERROR_nodedown"),
        "oper_state": (2, None),
        "oper_ram": (2, None),
        "os": (0, "debian+bookworm"),
    }
