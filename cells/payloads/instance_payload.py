"""Converts the record of an instance to the payload that announces it, and back.

Attributes of a payload have the names of the fields, so only some values need conversion: records have microseconds,
numbers of power states and plain dicts, payloads have datetimes, words and objects. Both directions are hot: one runs
for every change, the other for every indexed message.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from fleetlight.cells.model import NO_REQUEST, RequestContext
from fleetlight.notifications.payloads import fleetlight as ours
from fleetlight.notifications.payloads import instance as nova
from fleetlight.notifications.payloads.parts import BlockDevicePayload, FlavorPayload, KeypairPayload, SharePayload
from fleetlight.notifications.versioned import VersionedPayload
from fleetlight.resources.derived_fields import derived_values
from fleetlight.resources.fields import Kind, Record, from_microseconds, to_microseconds
from fleetlight.resources.instance import BLANK_INSTANCE, DERIVED_FIELDS, INSTANCE_FIELDS

# contracts/nova-db, section 9; numbers 2 and 5 were never used.
POWER_STATES = {0: "pending", 1: "running", 3: "paused", 4: "shutdown", 6: "crashed", 7: "suspended"}
POWER_NUMBERS = {word: number for number, word in POWER_STATES.items()}
_TIMES = tuple(name for name, field in INSTANCE_FIELDS.items() if field.kind is Kind.TIMESTAMP)


def to_payload(record: Record, request: RequestContext = NO_REQUEST) -> ours.FullInstancePayload:
    """The complete payload of a complete record; `request` is the origin of its change.

    Raises PayloadError (fleetlight.notifications.errors) with the field if the contract does not allow its value.
    """
    fields = {name: value for name, value in record.items() if name not in DERIVED_FIELDS}
    for name in _TIMES:
        if fields[name] is not None:
            fields[name] = from_microseconds(fields[name])
    power_state = record["power_state"]
    # The payload refuses a number without a word, and names the field.
    fields["power_state"] = POWER_STATES.get(power_state, power_state)
    fields["auto_disk_config"] = _DISK_CONFIG[record["auto_disk_config"]]
    fault = record["fault"]
    if fault is not None:
        fields["fault"] = ours.ServerFaultPayload(**{**fault, "created_at": from_microseconds(fault["created_at"])})
    if record["flavor"] is not None:
        fields["flavor"] = FlavorPayload(**record["flavor"])
    for name, part in _PARTS.items():
        if record[name] is not None:
            fields[name] = [part(**item) for item in record[name]]
    return ours.FullInstancePayload(
        **fields,
        request_id=request.request_id,
        action_initiator_user=request.user_id,
        action_initiator_project=request.project_id,
    )


def from_payload(payload: VersionedPayload) -> dict[str, Any]:
    """The fields of a record in a payload of its instance: every field from ours, some from Nova's.

    A null in `block_devices` or `shares` of Nova's payload means not collected, and is left out, as is its fault, which
    is not the one that the API shows; its `ip_addresses` are fixed ones. Raises TypeError for a payload that is not of
    an instance.
    """
    match payload:
        case ours.FullInstancePayload():
            return _from_ours(payload)
        case nova.InstancePayload():
            return _from_nova(payload)
        case _:
            raise TypeError(f"{payload.NAME} is not about the record of an instance")


_DISK_CONFIG = {True: "AUTO", False: "MANUAL", None: None}
_DISK_CONFIG_FLAG = {"AUTO": True, "MANUAL": False, None: None}
_PARTS: Mapping[str, type[VersionedPayload]] = {
    "ip_addresses": ours.AddressPayload,
    "block_devices": BlockDevicePayload,
    "keypairs": KeypairPayload,
    "shares": SharePayload,
}


def _from_ours(payload: ours.FullInstancePayload) -> dict[str, Any]:
    values = payload.__dict__
    record = {name: values.get(name) for name in INSTANCE_FIELDS}
    for name, convert in _CONVERSIONS.items():
        value = record[name]
        if value is not None:
            record[name] = convert(value)
    return record | derived_values(record)


def _from_nova(payload: nova.InstancePayload) -> dict[str, Any]:
    values = payload.__dict__
    sent = payload.model_fields_set
    record: dict[str, Any] = {}
    for name in _record_fields(type(payload)):
        if name not in sent:
            continue
        value = values[name]
        if value is None:
            if name in _NULL_MEANS_NOT_COLLECTED:
                continue
        elif name in _CONVERSIONS:
            value = _CONVERSIONS[name](value)
        record[name] = value
    for address in record["ip_addresses"]:
        address["type"] = "fixed"
    return record | derived_values({**BLANK_INSTANCE, **record})


_NULL_MEANS_NOT_COLLECTED = {"block_devices", "shares"}


@lru_cache(maxsize=32)
def _record_fields(payload: type[nova.InstancePayload]) -> tuple[str, ...]:
    # Nova's `fault` is the exception that an action ended with, not the fault record that the API shows.
    return tuple(name for name in payload.model_fields if name in INSTANCE_FIELDS and name != "fault")


def _plain(part: VersionedPayload) -> dict[str, Any]:
    values = part.__dict__
    return {name: values[name] for name in type(part).model_fields}


def _plain_list(parts: list[VersionedPayload]) -> list[dict[str, Any]]:
    return [_plain(part) for part in parts]


def _plain_fault(fault: ours.ServerFaultPayload) -> dict[str, Any]:
    return {**_plain(fault), "created_at": to_microseconds(fault.created_at)}


_CONVERSIONS: Mapping[str, Callable[[Any], Any]] = {
    **dict.fromkeys(_TIMES, to_microseconds),
    **dict.fromkeys(_PARTS, _plain_list),
    "power_state": POWER_NUMBERS.__getitem__,
    "auto_disk_config": _DISK_CONFIG_FLAG.__getitem__,
    "flavor": _plain,
    "fault": _plain_fault,
}
