"""The project's own samples, made by its own producer kit: `python -m tests.contract.payload_samples` writes them.

One file per kind of event that native cells publish; docs and tests read the same files.
"""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import fleetlight.notifications
from fleetlight.notifications.envelope import Notification, encode
from fleetlight.notifications.event_types import (
    CELL_HEARTBEAT,
    HYPERVISOR_CREATE,
    HYPERVISOR_DELETE,
    HYPERVISOR_UPDATE,
    INSTANCE_CREATE_END,
    INSTANCE_DELETE_END,
    INSTANCE_LIVE_MIGRATION_POST_DEST_END,
    INSTANCE_POWER_OFF_END,
    INSTANCE_POWER_ON_END,
    INSTANCE_STATUS_UPDATE,
    INSTANCE_UPDATE,
    NODE_STATUS_UPDATE,
)
from fleetlight.notifications.payloads.fleetlight import (
    AddressPayload,
    CellHeartbeatPayload,
    FullInstancePayload,
    HypervisorPayload,
    InstanceStatusPayload,
    NodeStatusPayload,
    ServerFaultPayload,
)
from fleetlight.notifications.payloads.parts import BlockDevicePayload, FlavorPayload, KeypairPayload
from fleetlight.notifications.versioned import VersionedPayload

DIRECTORY = Path(fleetlight.notifications.__path__[0]) / "samples"
CELL_UUID = "7a1d5a0a-90b1-4f36-8f6e-1e2d3c4b5a69"
_CREATED = datetime(2026, 11, 21, 10, 0, 0, 250_000, tzinfo=UTC)


def hypervisor_payload(**changes: Any) -> HypervisorPayload:
    """A node that may run instances and has an agent, except for `changes`."""
    fields: dict[str, Any] = {
        "uuid": "c2a1e0f4-5b7d-4c1e-8a39-6d2f9b0e7711",
        "hypervisor_hostname": "cell1-compute-02.example.org",
        "host": "cell1-compute-02",
        "host_ip": "192.0.2.12",
        "secondary_ip": None,
        "agent_address": "cell1-compute-02.example.org:1811",
        "group": "default",
        "group_uuid": "6f0d1a1c-35f2-4a0e-9a5c-2b7e4c8d9f10",
        "offline": False,
        "drained": False,
        "master_candidate": False,
        "master_capable": True,
        "vm_capable": True,
        "ndparams": {"oob_program": "", "spindle_count": 1, "exclusive_storage": False},
        "custom_ndparams": {},
        "vcpus": 32,
        "memory_mib": 131_072,
        "disk_gib": 2000,
        "tags": [],
        "serial_no": 1,
        "created_at": _CREATED,
        "updated_at": _CREATED,
        "status": None,
        "status_since": None,
        "deleted": False,
        "deleted_at": None,
    }
    return HypervisorPayload(**{**fields, **changes})


def instance_payload(**changes: Any) -> FullInstancePayload:
    """A running instance with something in every field, except for `changes`."""
    fields: dict[str, Any] = {
        "uuid": "3f2b8a52-6a0e-4c38-9f57-0a6c4a1d2e10",
        "user_id": "demo-alice",
        "project_id": "demo",
        "reservation_id": "r-8x2kq0ab",
        "launch_index": 0,
        "display_name": "web-prod-001",
        "display_description": "web of demo, prod",
        "hostname": "web-prod-001",
        "instance_name": "instance-00000001",
        "host": "cell1-compute-01",
        "node": "cell1-compute-01.example.org",
        "launched_on": "cell1-compute-01",
        "availability_zone": "cell1-a",
        "pinned_availability_zone": None,
        "os_type": "linux",
        "architecture": "x86_64",
        "instance_type_id": 2,
        "flavor": FlavorPayload(
            flavorid="2",
            memory_mb=2048,
            vcpus=1,
            root_gb=20,
            ephemeral_gb=0,
            name="m1.small",
            swap=0,
            rxtx_factor=1.0,
            vcpu_weight=0,
            disabled=False,
            is_public=True,
            extra_specs={"hw:cpu_policy": "shared"},
            projects=None,
            description=None,
        ),
        "image_ref": "0b6d3f43-3b3f-4b07-9f3e-1f4e4f0c5a11",
        "image_properties": {"os_distro": "debian", "hw_disk_bus": "virtio"},
        "trusted_image_certificates": None,
        "kernel_id": "",
        "ramdisk_id": "",
        "root_device_name": "/dev/vda",
        "config_drive": "",
        "user_data": None,
        "key_name": "demo-ops",
        "keypairs": [
            KeypairPayload(
                user_id="demo-alice",
                name="demo-ops",
                fingerprint="1e:2c:9b:56:79:4b:45:77:f9:ca:7a:98:2c:b0:d5:3c",
                public_key="ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFleetlightSampleKeyWithoutAnyUseAtAll",
                type="ssh",
            )
        ],
        "created_at": _CREATED,
        "updated_at": _CREATED + timedelta(seconds=5),
        "launched_at": _CREATED + timedelta(seconds=5),
        "terminated_at": None,
        "deleted_at": None,
        "deleted": False,
        "forthcoming": False,
        "ganeti": None,
        "hidden": False,
        "vm_state": "active",
        "power_state": "running",
        "task_state": None,
        "progress": 0,
        "fault": None,
        "locked": False,
        "locked_by": None,
        "locked_reason": None,
        "auto_disk_config": "AUTO",
        "access_ip_v4": "198.51.100.7",
        "access_ip_v6": None,
        "ip_addresses": [
            _address("10.10.0.5", "fixed"),
            _address("198.51.100.7", "floating"),
        ],
        "block_devices": [
            BlockDevicePayload(
                device_name="/dev/vdb",
                boot_index=None,
                delete_on_termination=False,
                volume_id="5f1d9d3e-9a0b-4f6f-8a3e-2d9f6a1b7c22",
                tag=None,
            )
        ],
        "shares": [],
        "metadata": {"role": "web", "release": "4.2.0"},
        "tags": ["managed", "prod"],
        "security_groups": ["default", "web"],
        "server_groups": [],
        "scheduler_hints": {},
        "request_id": "req-5b6c791d-5709-4f36-8fbe-c3e02869e35d",
        "action_initiator_user": "demo-alice",
        "action_initiator_project": "demo",
    }
    return FullInstancePayload(**fields | changes)


def _address(address: str, kind: Literal["fixed", "floating"]) -> AddressPayload:
    return AddressPayload(
        label="demo-net",
        address=address,
        version=4,
        type=kind,
        mac="fa:16:3e:4c:2c:30",
        meta={},
        port_uuid="ce531f90-199f-48c0-816c-13e38010b442",
        device_name="tapce531f90-19",
    )


def samples() -> dict[str, Notification]:
    """Event type -> the notification that its sample file holds."""
    later = _CREATED + timedelta(hours=1)
    moved = {"host": "cell1-compute-02", "node": "cell1-compute-02.example.org"}
    fault = ServerFaultPayload(code=500, message="No valid host was found.", details=None, created_at=later)
    payloads: dict[str, VersionedPayload] = {
        INSTANCE_CREATE_END: instance_payload(),
        INSTANCE_UPDATE: instance_payload(vm_state="error", fault=fault, updated_at=later),
        INSTANCE_POWER_ON_END: instance_payload(updated_at=later),
        INSTANCE_POWER_OFF_END: instance_payload(vm_state="stopped", power_state="shutdown", updated_at=later),
        INSTANCE_LIVE_MIGRATION_POST_DEST_END: instance_payload(**moved, updated_at=later),
        INSTANCE_DELETE_END: instance_payload(
            vm_state="deleted", power_state="pending", deleted=True, deleted_at=later, terminated_at=later
        ),
        CELL_HEARTBEAT: CellHeartbeatPayload(cell_uuid=CELL_UUID, sequence=42, at=later),
        NODE_STATUS_UPDATE: NodeStatusPayload(
            cell_uuid=CELL_UUID,
            node="cell1-compute-02.example.org",
            status="down",
            previous_status="up",
            reason="no answer within 10 s",
            at=later,
        ),
        INSTANCE_STATUS_UPDATE: InstanceStatusPayload(
            cell_uuid=CELL_UUID,
            uuid="0aaf159a-7038-420d-9f16-6f8150d75ed5",
            tenant_id="demo",
            display_name="web1",
            node="cell1-compute-01.example.org",
            status="ERROR_wrongnode",
            previous_status=None,
            at=later,
        ),
        HYPERVISOR_CREATE: hypervisor_payload(),
        HYPERVISOR_UPDATE: hypervisor_payload(drained=True, tags=["rack:7"], serial_no=2, updated_at=later),
        HYPERVISOR_DELETE: hypervisor_payload(deleted=True, deleted_at=later),
    }
    return {
        event_type: Notification(
            event_type=event_type,
            payload=payload.wrap(),
            publisher_id="fleetlight-cell:cell1",
            priority="INFO",
            timestamp=later,
            message_id=f"00000000-0000-4000-8000-{number:012d}",
        )
        for number, (event_type, payload) in enumerate(payloads.items())
    }


def sample_path(event_type: str) -> Path:
    return DIRECTORY / f"{event_type}.json"


def render(notification: Notification) -> str:
    """The text of a sample file: the inner object of the envelope, readable."""
    inner = json.loads(json.loads(encode(notification))["oslo.message"])
    del inner["_unique_id"]  # random
    return json.dumps(inner, indent=2, sort_keys=True) + "\n"


if __name__ == "__main__":
    for name, sample in samples().items():
        sample_path(name).write_text(render(sample), encoding="utf-8")
