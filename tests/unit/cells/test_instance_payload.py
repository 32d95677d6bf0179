import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fleetlight.cells.payloads.instance_payload import POWER_STATES, from_payload, to_payload
from fleetlight.manager.operations.actions.new_instance import new_record
from fleetlight.notifications.envelope import read_sample
from fleetlight.notifications.errors import PayloadError
from fleetlight.notifications.payloads import instance as nova
from fleetlight.notifications.payloads.fleetlight import CellHeartbeatPayload, FullInstancePayload
from fleetlight.notifications.registry import parse_payload
from fleetlight.resources.derived_fields import derived_values
from fleetlight.resources.fields import from_microseconds
from fleetlight.resources.instance import DERIVED_FIELDS, INSTANCE_FIELDS
from fleetlight.resources.server_status import DEFAULT_STATUS

NOW = 1_800_000_000_000_000
UUID = "00000000-0000-4000-8000-000000000001"

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
times = st.integers(0, 4_000_000_000_000_000)
uuids = st.uuids().map(str)
numbers = st.integers(-(2**53), 2**53)
flavors = st.fixed_dictionaries(
    {
        "flavorid": texts,
        **dict.fromkeys(("memory_mb", "vcpus", "root_gb", "ephemeral_gb", "swap"), st.integers(0, 10**6)),
        "name": texts,
        "rxtx_factor": st.none() | st.floats(0, 10),
        "vcpu_weight": st.none() | numbers,
        "disabled": st.booleans(),
        "is_public": st.booleans(),
        "extra_specs": st.none() | st.dictionaries(texts, texts, max_size=2),
        "projects": st.none() | st.lists(texts, max_size=2),
        "description": st.none() | texts,
    }
)
addresses = st.fixed_dictionaries(
    {
        "label": texts,
        "address": texts,
        "version": st.sampled_from([4, 6]),
        "type": st.sampled_from(["fixed", "floating"]),
        "mac": texts,
        "meta": st.dictionaries(texts, texts, max_size=1),
        "port_uuid": st.none() | uuids,
        "device_name": st.none() | texts,
    }
)
devices = st.fixed_dictionaries(
    {
        "volume_id": uuids,
        "delete_on_termination": st.booleans(),
        "device_name": st.none() | texts,
        "boot_index": st.none() | numbers,
        "tag": st.none() | texts,
    }
)
faults = st.fixed_dictionaries(
    {"code": st.integers(400, 599), "created_at": times, "message": texts, "details": st.none() | texts}
)
NULLABLE = {
    "flavor": flavors,
    "fault": faults,
    "vm_state": st.sampled_from(sorted(DEFAULT_STATUS)),
    "power_state": st.sampled_from(sorted(POWER_STATES)),
    "auto_disk_config": st.booleans(),
    "user_data": texts,
    "image_properties": st.dictionaries(texts, texts, max_size=2),
    "scheduler_hints": st.dictionaries(texts, st.lists(texts, max_size=2), max_size=2),
    **dict.fromkeys(("security_groups", "server_groups", "trusted_image_certificates"), st.lists(texts, max_size=2)),
    **dict.fromkeys((name for name, field in INSTANCE_FIELDS.items() if field.kind == "timestamp"), times),
    **dict.fromkeys(("progress", "launch_index", "instance_type_id"), numbers),
}
ALWAYS_SET = {
    "uuid": uuids,
    **dict.fromkeys(("deleted", "forthcoming", "hidden", "locked"), st.booleans()),
    "ip_addresses": st.lists(addresses, max_size=2),
    "block_devices": st.lists(devices, max_size=2),
    "metadata": st.dictionaries(texts, texts, max_size=2),
    "tags": st.lists(texts, max_size=2),
}
NOT_DRAWN = {*DERIVED_FIELDS, "keypairs", "shares"}


@st.composite
def records(draw: st.DrawFn) -> dict[str, Any]:
    record = dict.fromkeys(INSTANCE_FIELDS)
    for name, field in INSTANCE_FIELDS.items():
        if name in ALWAYS_SET:
            record[name] = draw(ALWAYS_SET[name])
        elif name not in NOT_DRAWN:
            record[name] = draw(st.none() | NULLABLE.get(name, texts if field.kind == "text" else st.none()))
    return {**record, **derived_values(record)}


@given(records())
def test_record_survives_its_way_over_the_wire(record: dict[str, Any]) -> None:
    wire = json.dumps(to_payload(record).wrap())
    assert from_payload(FullInstancePayload.unwrap(json.loads(wire))) == record


def test_value_that_the_contract_does_not_allow_is_refused_by_name() -> None:
    with pytest.raises(PayloadError, match="state"):
        to_payload(new_record({"vm_state": "dancing"}, NOW))
    with pytest.raises(PayloadError, match="power_state"):
        to_payload(new_record({"power_state": 2}, NOW))


def nova_payload(**fields: Any) -> nova.InstanceActionPayload:
    complete = from_payload(to_payload(new_record({"uuid": UUID, "project_id": "demo"}, NOW)))
    shared = {name: complete[name] for name in nova.InstanceActionPayload.model_fields if name in complete}
    shared |= {
        "created_at": from_microseconds(NOW),
        "launched_at": None,
        "power_state": "shutdown",
        "auto_disk_config": "AUTO",
        "flavor": {
            "nova_object.name": "FlavorPayload",
            "nova_object.namespace": "nova",
            "nova_object.version": "1.0",
            "nova_object.data": {"flavorid": "m1", "memory_mb": 1, "vcpus": 1, "root_gb": 1, "ephemeral_gb": 0},
        },
        "request_id": None,
        "action_initiator_user": None,
        "action_initiator_project": None,
    }
    return nova.InstanceActionPayload(**(shared | fields))


def test_nova_payload_says_only_what_it_carries() -> None:
    record = from_payload(nova_payload(block_devices=None, shares=None))
    assert record["project_id"] == "demo"
    assert record["created_at"] == NOW
    assert record["power_state"] == 4
    assert record["auto_disk_config"] is True
    assert (record["flavor_id"], record["flavor"]["name"]) == ("m1", "")
    not_carried = {"block_devices", "shares", "fault", "tags", "deleted", "access_ip_v4", "user_data"}
    assert not not_carried & record.keys()
    assert record.keys() <= INSTANCE_FIELDS.keys()


def test_collected_but_empty_list_of_volumes_is_carried() -> None:
    assert from_payload(nova_payload(block_devices=[]))["block_devices"] == []


def test_payload_that_is_not_about_an_instance_is_refused() -> None:
    heartbeat = CellHeartbeatPayload(cell_uuid=UUID, sequence=1, at=datetime.now(UTC))
    with pytest.raises(TypeError, match="CellHeartbeatPayload"):
        from_payload(heartbeat)


def test_every_instance_sample_of_nova_becomes_part_of_a_record(samples_dir: Path) -> None:
    seen = 0
    for path in sorted((samples_dir / "nova" / "notifications").glob("instance-*.json")):
        payload = parse_payload(read_sample(path.read_bytes(), datetime.now(UTC)).payload)
        record = from_payload(payload)
        assert record["uuid"], path.name
        assert record.keys() <= INSTANCE_FIELDS.keys()
        assert all(address["type"] == "fixed" for address in record["ip_addresses"])
        seen += 1
    assert seen
