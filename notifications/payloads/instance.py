"""Nova's instance payloads (contracts/nova-notifications, sections 5 and 6).

Attributes have the names of fleetlight.resources.instance (`project_id`); the wire has Nova's payload names
(`tenant_id`). Each derived class repeats the history of what it inherits, since each counts its versions for itself.
"""

from typing import ClassVar

from pydantic import Field

from fleetlight.notifications.payloads.parts import (
    AuditPeriodPayload,
    BlockDevicePayload,
    ExceptionPayload,
    FlavorPayload,
    InstanceStateUpdatePayload,
    IpPayload,
    KeypairPayload,
    SharePayload,
)
from fleetlight.notifications.versioned import VersionedPayload
from fleetlight.notifications.wire_types import DiskConfig, Int64, PowerState, Uuid, VmState, WireTime


class InstancePayload(VersionedPayload):
    """State of one instance as the process that announces it has it in memory; times in whole seconds.

    `block_devices` null: not collected, which says nothing about volumes.

    1.0  first version
    1.1  + locked, display_description
    1.2  + auto_disk_config
    1.3  + key_name
    1.4  + block_devices
    1.5  + updated_at
    1.6  + request_id
    1.7  + action_initiator_user, action_initiator_project
    1.8  + locked_reason
    1.9  + shares
    """

    VERSION: ClassVar[str] = "1.9"
    uuid: Uuid
    user_id: str | None
    project_id: str | None = Field(alias="tenant_id")
    reservation_id: str | None
    display_name: str | None
    display_description: str | None = None
    hostname: str | None = Field(alias="host_name")
    host: str | None
    node: str | None
    os_type: str | None
    architecture: str | None
    availability_zone: str | None
    flavor: FlavorPayload
    image_ref: str | None = Field(alias="image_uuid")
    key_name: str | None = None
    kernel_id: str | None
    ramdisk_id: str | None
    created_at: WireTime | None
    launched_at: WireTime | None
    terminated_at: WireTime | None
    deleted_at: WireTime | None
    updated_at: WireTime | None = None
    vm_state: VmState | None = Field(alias="state")
    power_state: PowerState | None
    task_state: str | None
    progress: Int64 | None
    ip_addresses: list[IpPayload]
    block_devices: list[BlockDevicePayload] | None = None
    metadata: dict[str, str]
    locked: bool = False
    locked_reason: str | None = None
    auto_disk_config: DiskConfig = "MANUAL"
    request_id: str | None = None
    action_initiator_user: str | None = None
    action_initiator_project: str | None = None
    shares: list[SharePayload] | None = None


class InstanceActionPayload(InstancePayload):
    """An instance during or after an action; `fault` says why an action failed.

    1.0  first version
    1.1  + locked, display_description
    1.2  + auto_disk_config
    1.3  + key_name
    1.4  + block_devices
    1.5  + updated_at
    1.6  + request_id
    1.7  + action_initiator_user, action_initiator_project
    1.8  + locked_reason
    1.9  + shares
    """

    VERSION: ClassVar[str] = "1.9"
    fault: ExceptionPayload | None


class InstanceCreatePayload(InstanceActionPayload):
    """An instance that is being created.

    1.2  first version, + locked, display_description, auto_disk_config
    1.3  + keypairs
    1.4  + key_name
    1.5  + block_devices
    1.6  + tags
    1.7  + updated_at
    1.8  + request_id
    1.9  + trusted_image_certificates
    1.10  + action_initiator_user, action_initiator_project
    1.11  + instance_name
    1.12  + locked_reason
    1.13  + shares
    """

    VERSION: ClassVar[str] = "1.13"
    keypairs: list[KeypairPayload] = Field(default=[])
    tags: list[str] = Field(default=[])
    trusted_image_certificates: list[str] | None = None
    instance_name: str | None = None


class InstanceUpdatePayload(InstancePayload):
    """An instance whose record changed; `old_display_name` only after a rename.

    2.0 only removed a field, so 1.x is read as well: its `bandwidth` stays with the unknown fields.

    1.0  first version
    1.1  + locked, display_description
    1.2  + tags
    1.3  + auto_disk_config
    1.4  + key_name
    1.5  + block_devices
    1.6  + updated_at
    1.7  + request_id
    1.8  + action_initiator_user, action_initiator_project
    1.9  + locked_reason
    2.0  - bandwidth
    2.1  + shares
    """

    VERSION: ClassVar[str] = "2.1"
    OLDEST_MAJOR: ClassVar[int] = 1
    state_update: InstanceStateUpdatePayload
    audit_period: AuditPeriodPayload
    old_display_name: str | None
    tags: list[str] = Field(default=[])


class InstanceExistsPayload(InstancePayload):
    """An instance as the periodic audit finds it.

    2.0 only removed a field, so 1.x is read as well: its `bandwidth` stays with the unknown fields.

    1.0  first version
    1.1  + action_initiator_user, action_initiator_project
    1.2  + locked_reason
    2.0  - bandwidth
    2.1  + shares
    """

    VERSION: ClassVar[str] = "2.1"
    OLDEST_MAJOR: ClassVar[int] = 1
    audit_period: AuditPeriodPayload


class InstanceActionVolumePayload(InstanceActionPayload):
    """An instance that a volume is attached to or detached from.

    1.0  first version
    1.1  + key_name
    1.2  + block_devices
    1.3  + updated_at
    1.4  + request_id
    1.5  + action_initiator_user, action_initiator_project
    1.6  + locked_reason
    1.7  + shares
    """

    VERSION: ClassVar[str] = "1.7"
    volume_id: Uuid


class InstanceActionVolumeSwapPayload(InstanceActionPayload):
    """An instance one volume of which is replaced by another.

    1.0  first version
    1.1  + locked, display_description
    1.2  + auto_disk_config
    1.3  + key_name
    1.4  + block_devices
    1.5  + updated_at
    1.6  + request_id
    1.7  + action_initiator_user, action_initiator_project
    1.8  + locked_reason
    1.9  + shares
    """

    VERSION: ClassVar[str] = "1.9"
    old_volume_id: Uuid
    new_volume_id: Uuid


class InstanceActionSharePayload(InstanceActionPayload):
    """An instance that a file share is attached to or detached from.

    1.0  first version
    """

    VERSION: ClassVar[str] = "1.0"
    share_id: Uuid


class InstanceActionResizePrepPayload(InstanceActionPayload):
    """An instance whose resize is being prepared at the destination.

    1.0  first version
    1.1  + request_id
    1.2  + action_initiator_user, action_initiator_project
    1.3  + locked_reason
    1.4  + shares
    """

    VERSION: ClassVar[str] = "1.4"
    new_flavor: FlavorPayload | None


class InstanceActionRescuePayload(InstanceActionPayload):
    """An instance that is booted from a rescue image.

    1.0  first version
    1.1  + request_id
    1.2  + action_initiator_user, action_initiator_project
    1.3  + locked_reason
    1.4  + shares
    """

    VERSION: ClassVar[str] = "1.4"
    rescue_image_ref: Uuid | None


class InstanceActionRebuildPayload(InstanceActionPayload):
    """An instance that is rebuilt from an image.

    1.7  first version
    1.8  + action_initiator_user, action_initiator_project
    1.9  + locked_reason
    1.10  + shares
    """

    VERSION: ClassVar[str] = "1.10"
    trusted_image_certificates: list[str] | None


class InstanceActionSnapshotPayload(InstanceActionPayload):
    """An instance an image is made of.

    1.6  first version
    1.7  + request_id
    1.8  + action_initiator_user, action_initiator_project
    1.9  + locked_reason
    1.10  + shares
    """

    VERSION: ClassVar[str] = "1.10"
    snapshot_image_id: Uuid
