"""Payloads of our own, namespace `fleetlight`: what native cells publish.

Fields that Nova has too have Nova's names on the wire, so that what reads Nova's notifications can read these.
Times have microseconds.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field as PydanticField
from pydantic import create_model

from fleetlight.notifications.payloads.instance import InstancePayload
from fleetlight.notifications.payloads.parts import BlockDevicePayload, FlavorPayload, KeypairPayload, SharePayload
from fleetlight.notifications.versioned import VersionedPayload
from fleetlight.notifications.wire_types import DiskConfig, Int64, PowerState, PreciseTime, Uuid, VmState
from fleetlight.resources.fields import Field, ItemType, Kind
from fleetlight.resources.instance import INSTANCE_FIELDS


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


# What the kind of a field alone does not say of its value on the wire.
_TYPES: Mapping[str, Any] = {
    "uuid": Uuid,
    "vm_state": VmState | None,
    "power_state": PowerState | None,
    "auto_disk_config": DiskConfig | None,
    "deleted": bool,
    "forthcoming": bool,
    "hidden": bool,
    "locked": bool,
    "flavor": FlavorPayload | None,
    "fault": ServerFaultPayload | None,
    "ip_addresses": list[AddressPayload],
    "block_devices": list[BlockDevicePayload],
    "shares": list[SharePayload] | None,
    "keypairs": list[KeypairPayload] | None,
    "metadata": dict[str, str],
    "image_properties": dict[str, Any] | None,
    "scheduler_hints": dict[str, Any] | None,
    "security_groups": list[str] | None,
    "server_groups": list[str] | None,
    "trusted_image_certificates": list[str] | None,
    "user_data": str | None,
    "ganeti": dict[str, Any] | None,
}
# What a message of a version without the field says of it.
_BEFORE_IT_WAS_ADDED: Mapping[str, Any] = {"forthcoming": False, "ganeti": None}
_OF_KIND: Mapping[Kind, Any] = {
    Kind.TEXT: str | None,
    Kind.NUMBER: Int64 | None,
    Kind.UNIT: Int64 | None,
    Kind.FLOAT: float | None,
    Kind.BOOL: bool | None,
    Kind.TIMESTAMP: PreciseTime | None,
}
# Nova's own `fault` is the exception of an action.
_NAMES_OF_NOVA = {name: field.alias for name, field in InstancePayload.model_fields.items()} | {"fault": "server_fault"}


def payload_fields(fields: ItemType) -> dict[str, Any]:
    """Name -> type and definition, as pydantic.create_model takes them, of every field that a payload tells.

    What is derived from another field is left out. Raises KeyError for a field of kind `other` without a type here.
    """
    return {
        name: (
            _type_of(field),
            PydanticField(default=_BEFORE_IT_WAS_ADDED.get(name, ...), alias=_NAMES_OF_NOVA.get(name)),
        )
        for name, field in fields.items()
        if not field.is_derived
    }


def _type_of(field: Field) -> Any:
    if field.name in _TYPES:
        return _TYPES[field.name]
    return list[str] if field.is_list else _OF_KIND[field.kind]


if TYPE_CHECKING:

    class _InstanceFields(VersionedPayload):
        uuid: str

        def __getattr__(self, name: str) -> Any: ...
else:
    _InstanceFields = create_model(
        "_InstanceFields",
        __base__=VersionedPayload,
        __module__=__package__,  # and not this one, all of whose payloads are registered
        __doc__="0.0  never sent: InstancePayload is",
        VERSION=(ClassVar[str], "0.0"),
        **payload_fields(INSTANCE_FIELDS),
    )


class FullInstancePayload(_InstanceFields):
    """All there is to know of one instance, read in the transaction that changed it.

    A reader needs no second source: the payload has every field of fleetlight.resources.instance.

    1.0  first version
    1.1  + forthcoming, ganeti
    """

    NAMESPACE: ClassVar[str] = "fleetlight"
    NAME: ClassVar[str] = "InstancePayload"
    VERSION: ClassVar[str] = "1.1"
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


class HypervisorPayload(VersionedPayload):
    """All that a cell keeps of one node, read in the transaction that changed it; what runs there is not in it.

    `ndparams` has what the group and the cell fill in, `custom_ndparams` what is set on the node. `status` is what the
    node was found to be when it was asked last, and null while that is `up`.

    1.0  first version
    """

    NAMESPACE: ClassVar[str] = "fleetlight"
    VERSION: ClassVar[str] = "1.0"
    uuid: Uuid
    hypervisor_hostname: str
    host: str
    host_ip: str
    secondary_ip: str | None
    agent_address: str | None
    group: str | None
    group_uuid: Uuid | None
    offline: bool
    drained: bool
    master_candidate: bool
    master_capable: bool
    vm_capable: bool
    ndparams: dict[str, Any]
    custom_ndparams: dict[str, Any]
    vcpus: Int64
    memory_mib: Int64
    disk_gib: Int64
    tags: list[str]
    serial_no: Int64
    created_at: PreciseTime
    updated_at: PreciseTime | None
    status: Literal["up", "down", "offline"] | None
    status_since: PreciseTime | None
    deleted: bool
    deleted_at: PreciseTime | None


class NodeStatusPayload(VersionedPayload):
    """A node answers no more, or again, or was marked offline. `reason` is why it does not answer.

    1.0  first version
    """

    NAMESPACE: ClassVar[str] = "fleetlight"
    VERSION: ClassVar[str] = "1.0"
    cell_uuid: Uuid
    node: str
    status: Literal["up", "down", "offline"]
    previous_status: Literal["up", "down", "offline"]
    reason: str | None
    at: PreciseTime


class InstanceStatusPayload(VersionedPayload):
    """An instance is not where, or not what, its cell has it for, or is so again: a status in Ganeti's words.

    `previous_status` is null when nothing was wrong before.

    1.0  first version
    """

    NAMESPACE: ClassVar[str] = "fleetlight"
    VERSION: ClassVar[str] = "1.0"
    cell_uuid: Uuid
    uuid: Uuid
    tenant_id: str | None
    display_name: str | None
    node: str
    status: str
    previous_status: str | None
    at: PreciseTime
