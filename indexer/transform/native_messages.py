"""The fast decoder of messages of a native cell: one pass of msgspec from bytes to record, no objects in between.

Nearly every message is of this kind, and the general decoder (fleetlight.notifications.registry,
fleetlight.cells.payloads.instance_payload) costs several times as much as all other work on a message. The types here
are derived from the same payload class. A message of a newer version, or with an unexpected value, is left to the
general decoder, which keeps new fields and explains errors.
"""

from datetime import datetime
from types import UnionType
from typing import Annotated, Any, Literal, TypedDict, Union, get_args, get_origin, get_type_hints

import msgspec

from fleetlight.cells.payloads.instance_payload import POWER_NUMBERS
from fleetlight.notifications.envelope import ENVELOPE_VERSION
from fleetlight.notifications.payloads.fleetlight import FullInstancePayload
from fleetlight.notifications.versioned import (
    DATA_KEY,
    NAME_KEY,
    NAMESPACE_KEY,
    VERSION_KEY,
    VersionedPayload,
    wire_name,
)
from fleetlight.notifications.wire_types import FIRST_MOMENT, LAST_MOMENT, PreciseTime, Uuid, WireTime
from fleetlight.resources.derived_fields import derived_values
from fleetlight.resources.fields import Kind, Record, to_microseconds
from fleetlight.resources.instance import INSTANCE_FIELDS

_CanonicalUuid = Annotated[
    str, msgspec.Meta(pattern=r"^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\Z")
]
_Time = Annotated[datetime, msgspec.Meta(tz=True)]
# Each type is at least as strict as the one that it replaces. Not a dict, since these types cannot be hashed.
_READ_AS = ((Uuid, _CanonicalUuid), (PreciseTime, _Time), (WireTime, _Time))


def _type_of(annotation: Any) -> Any:
    """The type that msgspec reads for a field of a payload with this annotation."""
    for known, read_as in _READ_AS:
        if annotation == known:
            return read_as
    if isinstance(annotation, type) and issubclass(annotation, VersionedPayload):
        return _part_of(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, UnionType):
        return Union[tuple(map(_type_of, arguments))]  # noqa: UP007  # there is no other way at run time
    if origin in (list, dict):
        return origin[tuple(map(_type_of, arguments))]
    return annotation


def _part_of(payload: type[VersionedPayload]) -> Any:
    """The type of a nested payload: as `_wrapper_of`, with `data` as a dict whose keys are the names on the wire."""
    new_typed_dict: Any = TypedDict  # a function, which type checkers take for a form of declaration
    types = {wire_name(payload, name): type_ for name, type_ in _types_of(payload).items()}
    return _wrapper_of(payload, new_typed_dict(f"{payload.__name__}Data", types))


def _wrapper_of(payload: type[VersionedPayload], data_type: Any) -> Any:
    """The type of a wrapped payload of exactly its current version."""
    return msgspec.defstruct(
        payload.__name__,
        [
            ("name", Literal[payload.NAME], msgspec.field(name=NAME_KEY)),
            ("namespace", Literal[payload.NAMESPACE], msgspec.field(name=NAMESPACE_KEY)),
            ("version", Literal[payload.VERSION], msgspec.field(name=VERSION_KEY)),
            ("data", data_type, msgspec.field(name=DATA_KEY)),
        ],
        gc=False,
    )


def _types_of(payload: type[VersionedPayload]) -> dict[str, Any]:
    """The types that msgspec reads for the fields of a payload, by name."""
    hints = get_type_hints(payload, include_extras=True)
    return {name: _type_of(hints[name]) for name in payload.model_fields}


_NOT_IN_A_RECORD = [name for name in FullInstancePayload.model_fields if name not in INSTANCE_FIELDS]
_TIMES = [name for name, field in INSTANCE_FIELDS.items() if field.kind is Kind.TIMESTAMP]
_FIRST_TIME, _LAST_TIME = to_microseconds(FIRST_MOMENT), to_microseconds(LAST_MOMENT)
_PART_LISTS = ("ip_addresses", "block_devices", "keypairs", "shares")


class _Outer(msgspec.Struct, gc=False):
    version: Literal[ENVELOPE_VERSION] = msgspec.field(name="oslo.version")  # type: ignore[valid-type]
    message: str = msgspec.field(name="oslo.message")


# Decoding to a structure and converting it to a dict is faster than decoding to a dict, and gives our names.
_Data = msgspec.defstruct(
    "_Data",
    [
        (name, type_, msgspec.field(name=wire_name(FullInstancePayload, name)))
        for name, type_ in _types_of(FullInstancePayload).items()
    ],
    gc=False,
)
_to_dict = msgspec.structs.asdict
_decode_outer = msgspec.json.Decoder(_Outer).decode
_decode_inner = msgspec.json.Decoder(
    msgspec.defstruct(
        "_Inner",
        [
            *((name, str) for name in ("event_type", "publisher_id", "priority", "timestamp", "message_id")),
            ("payload", _wrapper_of(FullInstancePayload, _Data)),
        ],
        gc=False,
    )
).decode


def read_record(body: bytes) -> Record | None:
    """The complete record in a message of a native cell; None if the general decoder must read the message."""
    try:
        inner: Any = _decode_inner(_decode_outer(body).message)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    record = _to_dict(inner.payload.data)
    for name in _NOT_IN_A_RECORD:
        del record[name]
    for name in _TIMES:
        moment = record[name]
        if moment is not None:
            time = to_microseconds(moment)
            if not _FIRST_TIME <= time <= _LAST_TIME:
                return None
            record[name] = time
    if record["power_state"] is not None:
        record["power_state"] = POWER_NUMBERS[record["power_state"]]
    if record["auto_disk_config"] is not None:
        record["auto_disk_config"] = record["auto_disk_config"] == "AUTO"
    for name in _PART_LISTS:
        if record[name]:
            record[name] = [part.data for part in record[name]]
    if record["flavor"] is not None:
        record["flavor"] = record["flavor"].data
    fault = record["fault"]
    if fault is not None:
        record["fault"] = fault.data | {"created_at": to_microseconds(fault.data["created_at"])}
    return record | derived_values(record)
