"""Selections as the contract has them (contracts/nova-selection): its example, and each row of its tables."""

import copy
import json
from typing import Any

import pytest
from jsonschema_rs import validator_for

from fleetlight.notifications.errors import PayloadError, UnsupportedVersionError
from fleetlight.notifications.payloads.selection import (
    AllocationRequest,
    NetworkMetadata,
    NUMATopologyLimits,
    SchedulerLimits,
    Selection,
    read_allocation_request,
)
from fleetlight.notifications.registry import json_schema, parse_payload

NODE = "5f0e3c7e-8d0d-4c1c-9d2f-0a4f6b1c2d3e"
SHARED = "11111111-2222-4333-8444-555555555555"
# Section 5, letter by letter.
EXAMPLE: dict[str, Any] = json.loads(r"""
{"nova_object.name": "Selection", "nova_object.namespace": "nova", "nova_object.version": "1.1",
 "nova_object.data": {
  "compute_node_uuid": "5f0e3c7e-8d0d-4c1c-9d2f-0a4f6b1c2d3e", "service_host": "cmp7", "nodename": "cmp7.example.org",
  "cell_uuid": "7a1d5a0a-90b1-4f36-8f6e-1e2d3c4b5a69", "availability_zone": "az-east",
  "allocation_request": "{\"allocations\": {\"5f0e3c7e-8d0d-4c1c-9d2f-0a4f6b1c2d3e\": {\"resources\": {\"VCPU\": 2, \"MEMORY_MB\": 4096}}}, \"mappings\": {\"\": [\"5f0e3c7e-8d0d-4c1c-9d2f-0a4f6b1c2d3e\"]}}",
  "allocation_request_version": "1.36",
  "limits": {"nova_object.name": "SchedulerLimits", "nova_object.namespace": "nova", "nova_object.version": "1.0",
   "nova_object.data": {"numa_topology": null, "vcpu": null, "disk_gb": null, "memory_mb": null}}}}
""")  # noqa: E501 -- one line in the contract as well
NUMA = NUMATopologyLimits(
    cpu_allocation_ratio=16.0,
    ram_allocation_ratio=1.5,
    network_metadata=NetworkMetadata(physnets=["net-a", "net-b"], tunneled=True),
)


def changed(**data: Any) -> dict[str, Any]:
    """The example with other fields; `...` leaves one out."""
    wrapped = copy.deepcopy(EXAMPLE)
    fields = {**wrapped["nova_object.data"], **data}
    wrapped["nova_object.data"] = {name: value for name, value in fields.items() if value is not ...}
    return wrapped


def read(wrapped: dict[str, Any]) -> Selection:
    selection = parse_payload(wrapped)
    assert isinstance(selection, Selection)
    return selection


def test_example_of_the_contract_is_read_and_written_again() -> None:
    selection = read(EXAMPLE)
    assert (selection.service_host, selection.nodename, selection.availability_zone) == (
        "cmp7",
        "cmp7.example.org",
        "az-east",
    )
    assert selection.limits == SchedulerLimits.of({})
    assert selection.wrap() == EXAMPLE
    assert validator_for(json_schema(Selection)).is_valid(EXAMPLE)


def test_changes_in_the_wrapper_are_read_over() -> None:
    """Section 5: they are normally there, in nested objects too, and only informational."""
    wrapped = changed()
    wrapped["nova_object.changes"] = ["limits", "cell_uuid"]
    wrapped["nova_object.data"]["limits"]["nova_object.changes"] = ["vcpu"]
    assert read(wrapped) == read(EXAMPLE)


@pytest.mark.parametrize("name", ["compute_node_uuid", "service_host", "nodename", "cell_uuid"])
@pytest.mark.parametrize("value", [None, ...])
def test_place_is_neither_null_nor_absent(name: str, value: object) -> None:
    with pytest.raises(PayloadError, match=name):
        read(changed(**{name: value}))


@pytest.mark.parametrize("name", ["compute_node_uuid", "cell_uuid"])
def test_node_and_cell_are_named_by_uuids(name: str) -> None:
    with pytest.raises(PayloadError, match=f"{name}.*uuid"):
        read(changed(**{name: "cmp7"}))


@pytest.mark.parametrize("name", ["limits", "allocation_request", "allocation_request_version", "availability_zone"])
def test_everything_else_may_be_null(name: str) -> None:
    wrapped = changed(**{name: None})
    assert getattr(read(wrapped), name) is None
    assert read(wrapped).wrap() == wrapped


@pytest.mark.parametrize("name", ["limits", "allocation_request", "allocation_request_version", "availability_zone"])
def test_what_may_be_null_is_absent_in_no_selection_of_11(name: str) -> None:
    with pytest.raises(PayloadError, match=name):
        read(changed(**{name: ...}))


def test_selection_of_10_has_no_zone_which_is_not_the_same_as_null() -> None:
    wrapped = changed(availability_zone=...) | {"nova_object.version": "1.0"}
    old = read(wrapped)
    assert (old.sent_version, old.has_zone, old.availability_zone) == ("1.0", False, None)
    assert read(changed(availability_zone=None)).has_zone
    assert old.wrap() == wrapped
    assert old.with_zone("az-west").wrap() == changed(availability_zone="az-west")
    assert read(EXAMPLE).with_zone("az-west") == read(EXAMPLE)


def test_downgrade_to_10_drops_the_zone() -> None:
    older = read(EXAMPLE).at_version("1.0")
    assert older.wrap() == changed(availability_zone=...) | {"nova_object.version": "1.0"}
    assert read(EXAMPLE).at_version("1.1") == read(EXAMPLE)


@pytest.mark.parametrize("version", ["1.2", "2.0", "0.9"])
def test_downgrade_goes_to_older_minor_versions_only(version: str) -> None:
    with pytest.raises(UnsupportedVersionError, match=version):
        read(EXAMPLE).at_version(version)


def test_selections_are_equal_when_their_fields_are() -> None:
    assert read(EXAMPLE) == read(copy.deepcopy(EXAMPLE))
    assert read(EXAMPLE) != read(changed(nodename="cmp8.example.org"))


def test_newer_minor_is_read_and_a_newer_major_is_refused() -> None:
    newer = read(changed(rack="r1") | {"nova_object.version": "1.12"})
    assert (newer.service_host, newer.unknown_fields) == ("cmp7", {"rack": "r1"})
    with pytest.raises(UnsupportedVersionError, match=r"Selection 2\.0"):
        read(changed() | {"nova_object.version": "2.0"})


def test_without_placement_the_text_is_null_and_the_field_is_not() -> None:
    selection = read(changed(allocation_request="null"))
    assert selection.allocation_request == "null"
    assert selection.requested_allocations is None
    assert read(changed(allocation_request=None)).requested_allocations is None


def test_allocation_request_is_json_inside_json() -> None:
    request = read(EXAMPLE).requested_allocations
    assert request is not None
    assert request.allocations[NODE].resources == {"VCPU": 2, "MEMORY_MB": 4096}
    assert request.mappings == {"": [NODE]}


@pytest.mark.parametrize(
    "request_",
    [
        {"allocations": {NODE: {"resources": {"VCPU": 1, "MEMORY_MB": 512}}, SHARED: {"resources": {"DISK_GB": 20}}},
         "mappings": {"": [NODE, SHARED]}},
        {"allocations": {NODE: {"resources": {"PCPU": 1, "VGPU": 1, "NET_BW_EGR_KILOBIT_PER_SEC": 1, "CUSTOM_X": 9}}},
         "mappings": {"": [NODE], f"{SHARED}-0": [NODE]}},
        {"allocations": {NODE: {"resources": {"VCPU": 1}}}},  # before placement 1.34
    ],
)  # fmt: skip
def test_allocation_requests_of_placement_are_read_and_written_again(request_: dict[str, Any]) -> None:
    read_back = read_allocation_request(json.dumps(request_))
    assert read_back is not None
    assert json.loads(read_back.as_text()) == request_


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "Invalid JSON"),
        ("{}", "allocations: Field required"),
        ('{"allocations": {}}', "allocations"),
        ('{"allocations": {"cmp7": {"resources": {"VCPU": 1}}}}', "cmp7"),
        ('{"allocations": {"%s": {"resources": {"VCPU": 0}}}}', "VCPU"),
        ('{"allocations": {"%s": {"resources": {"vcpu": 1}}}}', "vcpu"),
        ('{"allocations": {"%s": {"resources": {"VCPU": "1"}}}}', "VCPU"),
        ('{"allocations": {"%s": {"resources": {}}}}', "resources"),
        ('{"allocations": [{"resource_provider": {"uuid": "%s"}, "resources": {"VCPU": 1}}]}', "allocations"),
        ('{"allocations": {"%s": {"resources": {"VCPU": 1}}}, "mappings": {"": "%s"}}', "mappings"),
    ],
)
def test_text_that_is_no_allocation_request_is_refused_with_what_is_wrong(text: str, problem: str) -> None:
    with pytest.raises(PayloadError, match=f"allocation_request.*is no allocation request: .*{problem}"):
        read(changed(allocation_request=text.replace("%s", NODE)))


@pytest.mark.parametrize("version", ["1", "v1.36", "1.36.1", ""])
def test_version_of_the_request_is_a_microversion(version: str) -> None:
    with pytest.raises(PayloadError, match="allocation_request_version"):
        read(changed(allocation_request_version=version))


def test_request_that_is_made_here_has_the_documented_shape() -> None:
    request = AllocationRequest.model_validate(
        {"allocations": {NODE: {"resources": {"VCPU": 2}}}, "mappings": {"": [NODE]}}
    )
    assert (
        request.as_text() == f'{{"allocations":{{"{NODE}":{{"resources":{{"VCPU":2}}}}}},"mappings":{{"":["{NODE}"]}}}}'
    )


def test_limits_that_a_host_has_not_are_null() -> None:
    assert SchedulerLimits.of({}).wrap() == EXAMPLE["nova_object.data"]["limits"]
    limits = SchedulerLimits.of({"vcpu": 4, "numa_topology": NUMA})
    assert (limits.vcpu, limits.disk_gb, limits.memory_mb, limits.numa_topology) == (4, None, None, NUMA)


@pytest.mark.parametrize("name", ["numa_topology", "vcpu", "disk_gb", "memory_mb"])
def test_limit_that_is_absent_reads_as_null_and_stays_absent(name: str) -> None:
    wrapped = SchedulerLimits.of({}).wrap()
    del wrapped["nova_object.data"][name]
    limits = SchedulerLimits.unwrap(wrapped)
    assert getattr(limits, name) is None
    assert limits.wrap() == wrapped


@pytest.mark.parametrize(("name", "value"), [("vcpu", "4"), ("disk_gb", 1.5), ("memory_mb", True)])
def test_limits_are_whole_numbers(name: str, value: object) -> None:
    with pytest.raises(PayloadError, match=name):
        SchedulerLimits.of({name: value})


def test_limits_nest_in_wrappers_of_their_own() -> None:
    selection = read(EXAMPLE)
    limits = SchedulerLimits.of({"numa_topology": NUMA})
    wrapped = type(selection)(**{**dict(selection), "limits": limits}).wrap()
    numa = wrapped["nova_object.data"]["limits"]["nova_object.data"]["numa_topology"]
    assert (numa["nova_object.name"], numa["nova_object.version"]) == ("NUMATopologyLimits", "1.1")
    network = numa["nova_object.data"]["network_metadata"]
    assert (network["nova_object.name"], network["nova_object.version"]) == ("NetworkMetadata", "1.0")
    assert network["nova_object.data"] == {"physnets": ["net-a", "net-b"], "tunneled": True}
    assert read(wrapped).limits == limits


def test_networks_may_be_unset_and_are_dropped_for_10() -> None:
    without = NUMATopologyLimits(cpu_allocation_ratio=16.0, ram_allocation_ratio=1.5)
    assert "network_metadata" not in without.wrap()["nova_object.data"]
    older = NUMA.at_version("1.0")
    assert older.wrap() == without.wrap() | {"nova_object.version": "1.0"}
    assert NUMATopologyLimits.unwrap(older.wrap()).network_metadata is None


def test_networks_are_never_null_which_nova_refuses() -> None:
    with pytest.raises(PayloadError, match=r"network_metadata.*absent, but not null"):
        NUMATopologyLimits(cpu_allocation_ratio=16.0, ram_allocation_ratio=1.5, network_metadata=None)
    wrapped = NUMA.wrap()
    wrapped["nova_object.data"]["network_metadata"] = None
    with pytest.raises(PayloadError, match=r"network_metadata.*absent, but not null"):
        NUMATopologyLimits.unwrap(wrapped)
    assert not validator_for(json_schema(NUMATopologyLimits)).is_valid(wrapped)


def test_very_old_conductors_get_a_dict() -> None:
    assert read(EXAMPLE).as_legacy() == {"host": "cmp7", "nodename": "cmp7.example.org", "limits": {}}
    assert read(changed(limits=None)).as_legacy()["limits"] == {}
    limits = SchedulerLimits.of({"numa_topology": NUMA, "memory_mb": 512})
    legacy = read(changed(limits=limits.wrap())).as_legacy()
    assert legacy["limits"] == {"memory_mb": 512, "numa_topology": NUMA.wrap()}
