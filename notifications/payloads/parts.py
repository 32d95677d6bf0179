"""Nova's payloads that appear inside others (contracts/nova-notifications, section 7)."""

from typing import Any, ClassVar

from fleetlight.notifications.versioned import VersionedPayload
from fleetlight.notifications.wire_types import Int64, Uuid, WireTime


class FlavorPayload(VersionedPayload):
    """A flavor; sizes in MiB (`memory_mb`, `swap`) and GiB (`root_gb`, `ephemeral_gb`).

    1.0  first version
    1.1  + name, swap, rxtx_factor, vcpu_weight, disabled, is_public
    1.2  + extra_specs
    1.3  extra_specs and projects may be null
    1.4  + description, projects (senders of 1.2 and 1.3 may have it, but Ocata's leave it out of an instance's flavor)
    """

    VERSION: ClassVar[str] = "1.4"
    flavorid: str | None
    memory_mb: Int64 | None
    vcpus: Int64 | None
    root_gb: Int64 | None
    ephemeral_gb: Int64 | None
    name: str = ""
    swap: Int64 = 0
    rxtx_factor: float | None = None
    vcpu_weight: Int64 | None = None
    disabled: bool = False
    is_public: bool = True
    extra_specs: dict[str, str] | None = None
    projects: list[str] | None = None
    description: str | None = None


class IpPayload(VersionedPayload):
    """One fixed address of an instance.

    1.0  first version
    """

    VERSION: ClassVar[str] = "1.0"
    label: str
    mac: str
    meta: dict[str, Any]
    port_uuid: Uuid | None
    version: Int64
    address: str
    device_name: str | None


class BlockDevicePayload(VersionedPayload):
    """A volume as an instance sees it.

    1.0  first version
    """

    VERSION: ClassVar[str] = "1.0"
    device_name: str | None
    boot_index: Int64 | None
    delete_on_termination: bool
    volume_id: Uuid
    tag: str | None


class KeypairPayload(VersionedPayload):
    """A key pair with its public half.

    1.0  first version
    """

    VERSION: ClassVar[str] = "1.0"
    user_id: str | None
    name: str
    fingerprint: str | None
    public_key: str | None
    type: str


class SharePayload(VersionedPayload):
    """A file share attached to an instance.

    1.0  first version
    """

    VERSION: ClassVar[str] = "1.0"
    share_mapping_uuid: Uuid
    share_id: Uuid
    status: str | None
    tag: str | None


class ExceptionPayload(VersionedPayload):
    """An exception and where it was raised.

    1.0  first version
    1.1  + traceback
    """

    VERSION: ClassVar[str] = "1.1"
    module_name: str
    function_name: str
    exception: str
    exception_message: str
    traceback: str = ""


class InstanceStateUpdatePayload(VersionedPayload):
    """The transition of an `instance.update`.

    1.0  first version
    """

    VERSION: ClassVar[str] = "1.0"
    old_state: str | None
    state: str | None
    old_task_state: str | None
    new_task_state: str | None


class AuditPeriodPayload(VersionedPayload):
    """The span of time that usage is reported for.

    1.0  first version
    """

    VERSION: ClassVar[str] = "1.0"
    audit_period_beginning: WireTime
    audit_period_ending: WireTime
