"""The members of an instance's full item, and their forms (contracts/nova-servers, section 7).

Members that show a stored field unchanged are only declared, in fleetlight.resources.instance.
Links are not among the members, since their base depends on the request. `fleetlight.views.compute.view` decides which
members a request gets, and their order.
Members are fields of structures: their encoder knows the names in advance, and takes half the time of a dict.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from operator import itemgetter
from typing import Any

from msgspec import UNSET, Struct, UnsetType, defstruct, field

from fleetlight.resources.fields import Record, from_microseconds
from fleetlight.resources.instance import DEFAULT_ZONE, INSTANCE_FIELDS
from fleetlight.resources.server_status import UNKNOWN, WITH_FAULT, WITH_PROGRESS, status_of
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

_NAMES = {name: member.name for name, member in INSTANCE_FIELDS.members.items()}
_DAY = 24 * 60 * 60
Segment = Callable[[Record], Struct]
"""A function that makes some members of an item."""


class Members(Struct, gc=False):
    """Some members of an item, in the order of their fields; garbage collection ignores them (`gc=False`)."""


class IdentityMembers(Members, rename=_NAMES, gc=False):
    """The members of an item of `GET /servers`, without links."""

    id: str
    display_name: str | None


class CommonMembers(Members, rename=_NAMES, gc=False):
    """The members common to every microversion and caller, besides `IdentityMembers` (section 7.3)."""

    status: str
    project_id: str
    user_id: str
    created_at: datetime | None
    updated_at: datetime | None
    host_id: str = field(name="hostId")
    metadata: Mapping[str, str]
    access_ip_v4: str
    access_ip_v6: str
    ip_addresses: Mapping[str, Sequence["Address"]]
    key_name: str | None
    config_drive: str | None
    auto_disk_config: str
    availability_zone: str
    task_state: str | None
    vm_state: str | None
    power_state: int | None
    launched_at: str | None
    terminated_at: str | None
    progress: int | UnsetType | None
    security_groups: Sequence["SecurityGroupName"] | UnsetType


class Address(Struct, gc=False):
    """One address of a network (section 7.4)."""

    addr: str
    version: int
    type: str = field(name="OS-EXT-IPS:type")
    mac: str = field(name="OS-EXT-IPS-MAC:mac_addr")


class SecurityGroupName(Struct, gc=False):
    name: str


class Volumes(Members, rename=_NAMES, gc=False):
    """The volumes from 2.3 on; before, a volume has only its id."""

    block_devices: Sequence["Volume"]


class Volume(Struct, gc=False):
    id: str
    delete_on_termination: bool


class EmbeddedFlavor(Members, gc=False):
    flavor: "FlavorSnapshot | Mapping[str, Any]"


class FlavorSnapshot(Struct, gc=False):
    """The flavor as it was when the instance was created or resized (section 7.5)."""

    vcpus: int
    ram: int
    disk: int
    ephemeral: int
    swap: int
    original_name: str | None
    extra_specs: Mapping[str, Any]


class Placement(Members, rename=_NAMES, gc=False):
    host: str | None
    node: str | None
    instance_name: str


class ImageMember(Struct, gc=False):
    """The image without links, from 2.98 on."""

    id: str
    properties: Mapping[str, Any]


class Fault(Struct, gc=False):
    """The fault as shown to administrators (section 7.7)."""

    code: int
    created: datetime | None
    message: str
    details: str | UnsetType


class DamagedIdentity(Members, gc=False):
    """The members of an unreadable server in `GET /servers`, without links (section 12)."""

    id: str
    status: str


class Damaged(DamagedIdentity, gc=False):
    """The members of an unreadable server in `GET /servers/detail`, without links."""

    tenant_id: str
    created: datetime | None


def segments(*, for_admins: bool) -> list[tuple[Segment, int]]:
    """Make the segments of fields that are shown as stored, each with the microversion, 2.N, that added it.

    Members of the first microversion are in `IdentityMembers`, `CommonMembers` and `Placement`.
    """
    alike: dict[tuple[int, str], list[str]] = {}
    for name, member in INSTANCE_FIELDS.members.items():
        if member.since > 1 and member.is_for_admins is for_admins:
            # In a segment of its own, so that other segments take values unchanged.
            alike.setdefault((member.since, "" if member.otherwise is None else name), []).append(name)
    return [(_segment(names), since) for (since, _), names in sorted(alike.items())]


def _segment(names: Sequence[str]) -> Segment:
    """Make a segment of these fields; a field that is shown `otherwise` must be alone."""
    members, first = INSTANCE_FIELDS.members, names[0]
    otherwise = members[first].otherwise
    make = defstruct("Shown", [(name, Any) for name in names], rename=_NAMES, gc=False)
    if otherwise is not None:
        return lambda record: make(record[first] or otherwise)
    if len(names) == 1:
        return lambda record: make(record[first])
    values = itemgetter(*names)
    return lambda record: make(*values(record))


def damaged_identity(record: Record) -> DamagedIdentity:
    return DamagedIdentity(record["uuid"], UNKNOWN)


def damaged(record: Record) -> Damaged:
    return Damaged(record["uuid"], UNKNOWN, record["project_id"] or "", _seconds(record["created_at"]))


def identity(record: Record) -> IdentityMembers:
    return IdentityMembers(record["uuid"], record["display_name"])


def common(record: Record) -> CommonMembers:
    """Make the common members. Without an update, Nova shows the current time as `updated`, which changes with each
    read; we show the creation.
    """
    status = _status(record)
    project_id, host, created_at = record["project_id"] or "", record["host"], record["created_at"]
    groups = record["security_groups"]
    return CommonMembers(
        status,
        project_id,
        record["user_id"] or "",
        _seconds(created_at),
        _seconds(record["updated_at"] or created_at),
        _host_id(project_id, host) if host else "",
        record["metadata"] or {},
        record["access_ip_v4"] or "",
        record["access_ip_v6"] or "",
        {} if record["vm_state"] == "building" else _addresses(record["ip_addresses"] or ()),
        record["key_name"],
        record["config_drive"],
        "AUTO" if record["auto_disk_config"] else "MANUAL",
        record["availability_zone"] or (DEFAULT_ZONE if host else ""),
        record["task_state"],
        record["vm_state"],
        record["power_state"],
        _microseconds(record["launched_at"]),
        _microseconds(record["terminated_at"]),
        record["progress"] if status in WITH_PROGRESS else UNSET,
        [SecurityGroupName(name) for name in groups] if groups else UNSET,
    )


def volumes(record: Record) -> Volumes:
    return Volumes(
        [
            Volume(device["volume_id"], bool(device.get("delete_on_termination")))
            for device in record["block_devices"] or ()
            if device.get("volume_id")
        ]
    )


def flavor(record: Record) -> EmbeddedFlavor:
    embedded = record["flavor"]
    if not embedded:
        return EmbeddedFlavor({})
    return EmbeddedFlavor(
        FlavorSnapshot(
            embedded["vcpus"],
            embedded["memory_mb"],
            embedded["root_gb"],
            embedded["ephemeral_gb"],
            embedded.get("swap") or 0,
            embedded.get("name"),
            embedded.get("extra_specs") or {},
        )
    )


def placement(record: Record) -> Placement:
    return Placement(record["host"], record["node"], record["instance_name"] or "")


def image(record: Record) -> ImageMember | str:
    """Show the image; an empty text if the instance booted from a volume."""
    if not record["image_ref"]:
        return ""
    properties = record["image_properties"] or {}
    return ImageMember(record["image_ref"], {name: value for name, value in properties.items() if value is not None})


def fault(record: Record) -> Fault | None:
    """Show the fault; None if its status shows none."""
    newest = record["fault"]
    if not newest or _status(record) not in WITH_FAULT:
        return None
    return Fault(newest["code"], _seconds(newest["created_at"]), newest["message"], newest.get("details") or UNSET)


def _status(record: Record) -> str:
    """Show the status; Nova has none for a reservation, which is not a server being built."""
    if record["forthcoming"] and not record["deleted"]:
        return UNKNOWN
    return status_of(record["vm_state"], record["task_state"], deleted=record["deleted"])


def _addresses(addresses: Sequence[dict[str, Any]]) -> dict[str, list[Address]]:
    """Group addresses by network label, fixed ones first (section 7.4)."""
    fixed: dict[str, list[Address]] = {}
    others: list[tuple[str, Address]] = []
    for address in addresses:
        kind = address.get("type", "fixed")
        shown = Address(address["address"], address["version"], kind, address["mac"])
        if kind == "fixed":
            fixed.setdefault(address["label"], []).append(shown)
        else:
            others.append((address["label"], shown))
    for label, shown in others:
        fixed.setdefault(label, []).append(shown)
    return fixed


@lru_cache(maxsize=65_536)
def _host_id(project_id: str, host: str) -> str:
    return hashlib.sha224(f"{project_id}{host}".encode()).hexdigest()


def _seconds(value: int | None) -> datetime | None:
    """Convert a time for most members: to the second, with a zone. The encoder formats it."""
    return None if value is None else datetime.fromtimestamp(value // MICROSECONDS_PER_SECOND, UTC)


def _microseconds(value: int | None) -> str | None:
    """Format a time for the two members of a usage: to the microsecond, without a zone (section 7.3)."""
    if value is None:
        return None
    # `isoformat` would take four times as long.
    seconds, fraction = divmod(value, MICROSECONDS_PER_SECOND)
    days, second = divmod(seconds, _DAY)
    return f"{_date(days)}T{_time_of_day(second)}.{fraction:06}"


@lru_cache(maxsize=4096)
def _date(days: int) -> str:
    """Format the date this many days after the epoch."""
    return from_microseconds(days * _DAY * MICROSECONDS_PER_SECOND).date().isoformat()


@lru_cache(maxsize=_DAY)
def _time_of_day(second: int) -> str:
    return f"{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
