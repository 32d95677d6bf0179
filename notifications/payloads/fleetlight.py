"""Payloads of our own, namespace `fleetlight`: what native cells publish.

Fields that Nova has too have Nova's names on the wire, so that whoever reads Nova's notifications can read these.
Times have microseconds.
"""

from typing import Any, ClassVar, Literal

from pydantic import Field

from notifications.payloads.parts import BlockDevicePayload, FlavorPayload, KeypairPayload, SharePayload
from notifications.versioned import VersionedPayload
from notifications.wire_types import DiskConfig, Int64, PowerState, PreciseTime, Uuid, VmState


class AddressPayload(VersionedPayload):
    """One address of an instance, fixed or floating.

    1.0  first version
    """

    NAMESPACE: ClassVar[str] = "fleetlight"
    VERSION: ClassVar[str] = "1.0"
    label: str
    address: str
    version: Int64
    type: Literal["fixed", "floating"]
    mac: str
    meta: dict[str, Any]
    port_uuid: Uuid | None
    device_name: str | None


class ServerFaultPayload(VersionedPayload):
    """The newest fault of an instance; `code` is that of HTTP.

    1.0  first version
    """

    NAMESPACE: ClassVar[str] = "fleetlight"
    VERSION: ClassVar[str] = "1.0"
    code: Int64
    message: str
    details: str | None
    created_at: PreciseTime


class InstancePayload(VersionedPayload):
    """All there is to know of one instance, read in the transaction that changed it.

    A reader needs no second source: the payload holds every field of resources.instance.

    1.0  first version
    """

    NAMESPACE: ClassVar[str] = "fleetlight"
    VERSION: ClassVar[str] = "1.0"
    uuid: Uuid
    user_id: str | None
    project_id: str | None = Field(alias="tenant_id")
    reservation_id: str | None
    launch_index: Int64 | None
    display_name: str | None
    display_description: str | None
    hostname: str | None = Field(alias="host_name")
    instance_name: str | None
    host: str | None
    node: str | None
    launched_on: str | None
    availability_zone: str | None
    pinned_availability_zone: str | None
    os_type: str | None
    architecture: str | None
    instance_type_id: Int64 | None
    flavor: FlavorPayload | None
    image_ref: str | None = Field(alias="image_uuid")
    image_properties: dict[str, Any] | None
    trusted_image_certificates: list[str] | None
    kernel_id: str | None
    ramdisk_id: str | None
    root_device_name: str | None
    config_drive: str | None
    user_data: str | None
    key_name: str | None
    keypairs: list[KeypairPayload] | None
    created_at: PreciseTime | None
    updated_at: PreciseTime | None
    launched_at: PreciseTime | None
    terminated_at: PreciseTime | None
    deleted_at: PreciseTime | None
    deleted: bool
    hidden: bool
    vm_state: VmState | None = Field(alias="state")
    power_state: PowerState | None
    task_state: str | None
    progress: Int64 | None
    fault: ServerFaultPayload | None = Field(alias="server_fault")
    locked: bool
    locked_by: str | None
    locked_reason: str | None
    auto_disk_config: DiskConfig | None
    access_ip_v4: str | None
    access_ip_v6: str | None
    ip_addresses: list[AddressPayload]
    block_devices: list[BlockDevicePayload]
    shares: list[SharePayload] | None
    metadata: dict[str, str]
    tags: list[str]
    security_groups: list[str] | None
    server_groups: list[str] | None
    scheduler_hints: dict[str, Any] | None
    request_id: str | None
    action_initiator_user: str | None
    action_initiator_project: str | None


class CellHeartbeatPayload(VersionedPayload):
    """A cell lives: at the time `at` of its clock, `sequence` was the highest that it had given out.

    1.0  first version
    """

    NAMESPACE: ClassVar[str] = "fleetlight"
    VERSION: ClassVar[str] = "1.0"
    cell_uuid: Uuid
    sequence: Int64
    at: PreciseTime
