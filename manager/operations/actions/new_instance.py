"""The record of a new instance: given values, checked, and Nova's defaults for the rest."""

import re
from collections.abc import Mapping
from typing import Any
from uuid import uuid4

from fleetlight.cells.errors import InvalidValueError
from fleetlight.notifications.payloads.parts import FlavorPayload
from fleetlight.notifications.wire_types import FIRST_MOMENT, LAST_MOMENT
from fleetlight.resources.derived_fields import derived_values
from fleetlight.resources.fields import Kind, to_microseconds
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.resources.power_states import RUNNING

_STORED_TYPES: dict[Kind, tuple[type, str]] = {
    Kind.TEXT: (str, "text"),
    Kind.BOOL: (bool, "true or false"),
    Kind.NUMBER: (int, "a whole number"),
    Kind.UNIT: (int, "a whole number of MiB"),
    Kind.FLOAT: (float, "a number with a point"),
    Kind.TIMESTAMP: (int, "microseconds since the epoch"),
}
_INT64 = range(-(2**63), 2**63)
_RANGES: dict[Kind, range] = {
    Kind.NUMBER: _INT64,
    Kind.UNIT: _INT64,
    Kind.TIMESTAMP: range(to_microseconds(FIRST_MOMENT), to_microseconds(LAST_MOMENT) + 1),
}
_UUID = re.compile(r"[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}")
_UNSTORABLE = re.compile(r"[\x00\ud800-\udfff]")
_EMPTY = dict.fromkeys(INSTANCE_FIELDS)
_FLAVOR_REQUIRED = {name for name, field in FlavorPayload.model_fields.items() if field.is_required()}
_FLAVOR_DEFAULTS = {
    name: field.default for name, field in FlavorPayload.model_fields.items() if not field.is_required()
}
_PART_DEFAULTS: dict[str, dict[str, Any]] = {
    "ip_addresses": {"type": "fixed", "meta": {}, "port_uuid": None, "device_name": None},
    "block_devices": {"delete_on_termination": False, "device_name": None, "boot_index": None, "tag": None},
}
_NOT_IN_A_HOSTNAME = re.compile(r"[^a-z0-9-]+")


def new_record(given: Mapping[str, Any], now: int) -> dict[str, Any]:
    """Make a complete record. `given` values override defaults, even nulls. now: microseconds since the epoch.

    Raises UnknownFieldError (fleetlight.resources.errors) and InvalidValueError.
    """
    check_values(given)
    given = {**given, **_completed(given)}
    uuid = given.get("uuid") or str(uuid4())
    host = given.get("host")
    defaults: dict[str, Any] = {
        "uuid": uuid,
        "created_at": now,
        "launched_at": now,
        "vm_state": "active",
        "power_state": RUNNING,
        "progress": 0,
        "deleted": False,
        "forthcoming": False,
        "hidden": False,
        "locked": False,
        "auto_disk_config": False,
        "config_drive": "",
        "kernel_id": "",
        "ramdisk_id": "",
        "launch_index": 0,
        "reservation_id": f"r-{uuid[-8:]}",
        "instance_name": f"instance-{uuid[:8]}",
        "hostname": hostname_of(given.get("display_name"), uuid),
        "root_device_name": "/dev/vda",
        "node": host,
        "launched_on": host,
        "tags": [],
        "metadata": {},
        "ip_addresses": [],
        "block_devices": [],
        "security_groups": [],
        "server_groups": [],
    }
    record = _EMPTY | defaults | given
    derived = derived_values(record)
    for name in derived.keys() & given.keys():
        if given[name] != derived[name]:
            raise InvalidValueError(name, given[name], "what the flavor and the disks say, which are given with it")
    return record | derived


def completed_flavor(flavor: Mapping[str, Any]) -> dict[str, Any]:
    """Complete a flavor with Nova's defaults. Raises InvalidValueError for a flavor without sizes."""
    missing = _FLAVOR_REQUIRED - flavor.keys()
    if missing:
        raise InvalidValueError("flavor", dict(flavor), f"also {', '.join(sorted(missing))}")
    return {**_FLAVOR_DEFAULTS, **flavor}


def _completed(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the nested values of `given`, completed with defaults."""
    completed: dict[str, Any] = {}
    if given.get("flavor"):
        completed["flavor"] = completed_flavor(given["flavor"])
    for name, defaults in _PART_DEFAULTS.items():
        if given.get(name):
            completed[name] = [defaults | part for part in given[name]]
    return completed


def check_values(values: Mapping[str, Any]) -> None:
    """Raise UnknownFieldError or InvalidValueError unless a record can hold `values`.

    SQLite would accept any value in any column, and then compare and order it differently from other sources.
    """
    for name, value in values.items():
        field = INSTANCE_FIELDS.require(name, "set")
        if field.is_list:
            if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
                raise InvalidValueError(name, value, "a list of texts")
        elif value is not None and field.kind in _STORED_TYPES:
            stored_type, expected = _STORED_TYPES[field.kind]
            if type(value) is not stored_type:
                raise InvalidValueError(name, value, expected)
            if field.kind in _RANGES and value not in _RANGES[field.kind]:
                raise InvalidValueError(name, value, f"{expected}, in the range that can be stored")
            # Other spellings of a uuid would be equal in some stores, and different in others.
            if name == "uuid" and not _UUID.fullmatch(str(value)):
                raise InvalidValueError(name, value, "a uuid in lower case, with dashes")
        if not _is_storable(value):
            raise InvalidValueError(name, value, "text without NUL characters and lone surrogates")


def _is_storable(value: Any) -> bool:
    """Whether both databases and JSON can store every text in a value."""
    match value:
        case str():
            return not _UNSTORABLE.search(value)
        case dict():
            return all(_is_storable(name) and _is_storable(item) for name, item in value.items())
        case list():
            return all(map(_is_storable, value))
        case _:
            return True


def hostname_of(display_name: str | None, uuid: str) -> str:
    """Derive a host name like Nova: the name in lower case, with invalid characters replaced, or else from the uuid."""
    return _NOT_IN_A_HOSTNAME.sub("-", (display_name or "").lower()).strip("-")[:63] or f"Server-{uuid}"
