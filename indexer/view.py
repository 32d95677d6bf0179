"""The stored view: an instance's answers of the compute API, rendered once, when it changes.

A full item differs between callers only by microversion and by what admins see, so it is kept in *pieces*: runs of
JSON members (`"name":"web","status":"ACTIVE"`), each for a range of microversions and an audience. An answer is the
wanted pieces, joined: no row is parsed or rendered again (DESIGN, decision 10). Rows read live from a cell go through
the same function, which is why a row looks the same by every route. Shapes: contracts/nova-servers, section 7.

Links depend on the address that a request was sent to, which is not known here. In the few pieces that hold links
(`marks`) a URL begins with a JSON escape that our encoder never writes at the start of a string, `\\u002f` for the
versioned base and `\\u002e` for the base without version; `ItemTemplate` puts the address there. The stored text is
JSON either way. (Completing links in the joined page instead costs four times as much: measured on 1,000 items.)
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import msgspec

from query.fields import Record, from_microseconds
from query.server_status import WITH_FAULT, WITH_PROGRESS, status_of

View = tuple[bytes, ...]
NEWEST_MICROVERSION = (2, 104)

_VERSIONED_BASE = b'"\\u002f'
_PLAIN_BASE = b'"\\u002e'
_MICROSECONDS = 1_000_000
_DAY = 24 * 60 * 60
_VOLUMES = b'"os-extended-volumes:volumes_attached":'
_GUEST = {
    f"OS-EXT-SRV-ATTR:{name}": name
    for name in ("kernel_id", "launch_index", "ramdisk_id", "reservation_id", "root_device_name", "user_data")
}
# Members that have the name and the value of a field.
_AS_STORED = ("trusted_image_certificates", "locked_reason", "pinned_availability_zone", "scheduler_hints")
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Piece:
    """A run of members that appears from microversion 2.`since` to 2.`until`, for admins or for everybody.

    public_since: the microversion from which everybody sees it; None: only admins ever do.
    marks: which bases its links begin with.
    """

    name: str
    since: int = 1
    until: int = NEWEST_MICROVERSION[1]
    public_since: int | None = 1
    marks: tuple[bytes, ...] = ()

    def is_shown(self, minor: int, *, is_admin: bool) -> bool:
        if not self.since <= minor <= self.until:
            return False
        return is_admin or (self.public_since is not None and minor >= self.public_since)


_BEFORE_EMBEDDED_FLAVOR = 46
_BEFORE_IMAGE_PROPERTIES = 97
LINKS = Piece("links", marks=(_VERSIONED_BASE, _PLAIN_BASE))
BRIEF = Piece("brief")
FULL = (
    Piece("common"),
    Piece("image", until=_BEFORE_IMAGE_PROPERTIES, marks=(_PLAIN_BASE,)),
    Piece("image_with_properties", since=_BEFORE_IMAGE_PROPERTIES + 1, marks=(_PLAIN_BASE,)),
    Piece("flavor_link", until=_BEFORE_EMBEDDED_FLAVOR, marks=(_PLAIN_BASE,)),
    Piece("flavor", since=_BEFORE_EMBEDDED_FLAVOR + 1),
    Piece("volumes_without_flag", until=2),
    Piece("volumes", since=3),
    Piece("placement", public_since=None),
    Piece("guest", since=3, public_since=None),
    Piece("hostname", since=3, public_since=90),
    Piece("locked", since=9),
    Piece("description", since=19),
    Piece("tags", since=26),
    Piece("trusted_image_certificates", since=63),
    Piece("locked_reason", since=73),
    Piece("pinned_availability_zone", since=96),
    Piece("scheduler_hints", since=100),
)
# The only pieces that may be empty. Details of a fault are for admins, unless its code is not 500 (section 7.7).
FAULT = Piece("fault")
FAULT_WITH_DETAILS = Piece("fault_with_details", public_since=None)
PIECES = (LINKS, BRIEF, *FULL, FAULT, FAULT_WITH_DETAILS)
PIECE_NAMES = tuple(piece.name for piece in PIECES)


class ItemTemplate:
    """How one request's items are put together: which pieces, in which order, and with which addresses in the links.

    pieces: names of the pieces that a source has to deliver, in this order.
    """

    def __init__(self, pieces: Sequence[Piece], *, versioned_base: str, plain_base: str) -> None:
        self.pieces = tuple(piece.name for piece in pieces)
        self._positions = [PIECE_NAMES.index(name) for name in self.pieces]
        bases = {_VERSIONED_BASE: b'"' + versioned_base.encode() + b"/", _PLAIN_BASE: b'"' + plain_base.encode() + b"/"}
        self._completions = [
            (2 * number + 1, mark, bases[mark]) for number, piece in enumerate(pieces) for mark in piece.marks
        ]
        # Pieces go where the empty bytes are: a brace, the pieces with commas between them, a brace.
        self._frame = [b"{", *[b"", b","] * (len(pieces) - 1), b"", b"}"]

    @classmethod
    def brief(cls, *, versioned_base: str, plain_base: str) -> "ItemTemplate":
        """The item of `GET /servers`; bases without a slash at the end."""
        return cls((BRIEF, LINKS), versioned_base=versioned_base, plain_base=plain_base)

    @classmethod
    def full(cls, minor: int, *, is_admin: bool, versioned_base: str, plain_base: str) -> "ItemTemplate":
        """The item of `GET /servers/detail` and `GET /servers/{id}` at microversion 2.`minor`."""
        shown = [piece for piece in FULL if piece.is_shown(minor, is_admin=is_admin)]
        fault = FAULT_WITH_DETAILS if is_admin else FAULT
        return cls((*shown, LINKS, fault), versioned_base=versioned_base, plain_base=plain_base)

    def pick(self, view: View) -> tuple[bytes, ...]:
        """The pieces of `view` that this template needs, in its order."""
        return tuple([view[position] for position in self._positions])

    def render(self, pieces: Sequence[bytes]) -> bytes:
        """One JSON object out of `self.pieces` as a source delivered them."""
        return b"".join(self.fragments(pieces))

    def fragments(self, pieces: Sequence[bytes]) -> list[bytes]:
        """What gives `render(pieces)` when joined: a page joins those of all its items, and copies each byte once."""
        fragments = self._frame.copy()
        fragments[1::2] = pieces
        for position, mark, base in self._completions:
            fragments[position] = fragments[position].replace(mark, base)
        if not pieces[-1]:
            fragments[-3] = b""  # the comma before it
        return fragments


def render_view(record: Record) -> View:
    """Render all pieces of one instance.

    record: every field of INSTANCE_FIELDS (a stored value each).
    """
    status = status_of(record["vm_state"], record["task_state"], deleted=bool(record["deleted"]))
    volumes = [device for device in record["block_devices"] or () if device.get("volume_id")]
    pieces: dict[str, bytes] = {
        "links": _server_links(_text(record["uuid"])),
        "brief": b'"id":%b,"name":%b' % (_encode(record["uuid"]), _encode(record["display_name"])),
        "common": _common(record, status),
        "image": _image(record, with_properties=False),
        "image_with_properties": _image(record, with_properties=True),
        "flavor_link": _flavor_link(record),
        "flavor": _flavor(record["flavor"]),
        "volumes_without_flag": _VOLUMES + _encode([{"id": volume["volume_id"]} for volume in volumes]),
        "volumes": _VOLUMES
        + _encode(
            [
                {
                    "id": volume["volume_id"],
                    "delete_on_termination": bool(volume.get("delete_on_termination")),
                }
                for volume in volumes
            ]
        ),
        "placement": b'"OS-EXT-SRV-ATTR:host":%b,"OS-EXT-SRV-ATTR:hypervisor_hostname":%b,'
        b'"OS-EXT-SRV-ATTR:instance_name":%b'
        % (_encode(record["host"]), _encode(record["node"]), _encode(record["instance_name"] or "")),
        "guest": _members({member: record[name] for member, name in _GUEST.items()}),
        "hostname": b'"OS-EXT-SRV-ATTR:hostname":' + _encode(record["hostname"]),
        "locked": b'"locked":true' if record["locked"] else b'"locked":false',
        "description": b'"description":' + _encode(record["display_description"]),
        "tags": b'"tags":' + _encode(record["tags"] or ()),
        **{name: b'"%b":%b' % (name.encode(), _encode(record[name])) for name in _AS_STORED},
        "fault": _fault(record, status, with_details=False),
        "fault_with_details": _fault(record, status, with_details=True),
    }
    return tuple([pieces[name] for name in PIECE_NAMES])


def _members(values: dict[str, Any]) -> bytes:
    return _encode(values)[1:-1]


def _text(value: str) -> bytes:
    """Encoded text without its quotes."""
    return _encode(value)[1:-1]


def _common(record: Record, status: str) -> bytes:
    """Members that are the same at every microversion and for every caller (section 7.3)."""
    item = {
        "id": record["uuid"],
        "name": record["display_name"],
        "status": status,
        "tenant_id": record["project_id"] or "",
        "user_id": record["user_id"] or "",
        "created": _seconds(record["created_at"]),
        # Nova shows the current time when there was no update; that changes with each look, so we show the creation.
        "updated": _seconds(record["updated_at"] or record["created_at"]),
        "hostId": _host_id(record["project_id"] or "", record["host"]) if record["host"] else "",
        "metadata": record["metadata"] or {},
        "accessIPv4": record["access_ip_v4"] or "",
        "accessIPv6": record["access_ip_v6"] or "",
        "addresses": {} if record["vm_state"] == "building" else _addresses(record["ip_addresses"] or ()),
        "key_name": record["key_name"],
        "config_drive": record["config_drive"],
        "OS-DCF:diskConfig": "AUTO" if record["auto_disk_config"] else "MANUAL",
        "OS-EXT-AZ:availability_zone": record["availability_zone"] or "",
        "OS-EXT-STS:task_state": record["task_state"],
        "OS-EXT-STS:vm_state": record["vm_state"],
        "OS-EXT-STS:power_state": record["power_state"],
        "OS-SRV-USG:launched_at": _microseconds(record["launched_at"]),
        "OS-SRV-USG:terminated_at": _microseconds(record["terminated_at"]),
    }
    if status in WITH_PROGRESS:
        item["progress"] = record["progress"]
    if record["security_groups"]:
        item["security_groups"] = [{"name": name} for name in record["security_groups"]]
    return _members(item)


def _server_links(uuid: bytes) -> bytes:
    return (
        b'"links":[{"rel":"self","href":' + _VERSIONED_BASE + b"servers/" + uuid + b'"},'
        b'{"rel":"bookmark","href":' + _PLAIN_BASE + b"servers/" + uuid + b'"}]'
    )


def _bookmark(identifier: bytes, collection: bytes) -> bytes:
    """`{"id", "links"}` without its closing brace; `identifier` is the encoded text without its quotes."""
    link = b'{"rel":"bookmark","href":' + _PLAIN_BASE + collection + b"/" + identifier + b'"}'
    return b'{"id":"' + identifier + b'","links":[' + link + b"]"


def _image(record: Record, *, with_properties: bool) -> bytes:
    if not record["image_ref"]:
        return b'"image":""'
    image = b'"image":' + _bookmark(_text(record["image_ref"]), b"images")
    if with_properties:
        properties = record["image_properties"] or {}
        image += b',"properties":' + _encode({name: value for name, value in properties.items() if value is not None})
    return image + b"}"


def _flavor_link(record: Record) -> bytes:
    if not record["flavor_id"]:
        return b'"flavor":{}'
    return b'"flavor":' + _bookmark(_text(record["flavor_id"]), b"flavors") + b"}"


def _flavor(flavor: dict[str, Any] | None) -> bytes:
    """The flavor as it was when the instance was created or resized (section 7.5)."""
    if not flavor:
        return b'"flavor":{}'
    return b'"flavor":' + _encode(
        {
            "vcpus": flavor["vcpus"],
            "ram": flavor["memory_mb"],
            "disk": flavor["root_gb"],
            "ephemeral": flavor["ephemeral_gb"],
            "swap": flavor.get("swap") or 0,
            "original_name": flavor.get("name"),
            "extra_specs": flavor.get("extra_specs") or {},
        }
    )


def _addresses(addresses: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Addresses by network label, fixed ones first (section 7.4)."""
    networks: dict[str, list[dict[str, Any]]] = {}
    for address in sorted(addresses, key=lambda address: address.get("type", "fixed") != "fixed"):
        networks.setdefault(address["label"], []).append(
            {
                "addr": address["address"],
                "version": address["version"],
                "OS-EXT-IPS:type": address.get("type", "fixed"),
                "OS-EXT-IPS-MAC:mac_addr": address["mac"],
            }
        )
    return networks


def _fault(record: Record, status: str, *, with_details: bool) -> bytes:
    fault = record["fault"]
    if not fault or status not in WITH_FAULT:
        return b""
    shown = {"code": fault["code"], "created": _seconds(fault["created_at"]), "message": fault["message"]}
    if fault.get("details") and (with_details or fault["code"] != 500):
        shown["details"] = fault["details"]
    return _members({"fault": shown})


@lru_cache(maxsize=65_536)
def _host_id(project_id: str, host: str) -> str:
    return hashlib.sha224(f"{project_id}{host}".encode()).hexdigest()


def _seconds(value: int | None) -> str | None:
    """Text as most members have it: to the second, with a zone."""
    return None if value is None else _to_the_second(value // _MICROSECONDS) + "Z"


def _microseconds(value: int | None) -> str | None:
    """Text as the two members of a usage have it: to the microsecond, without a zone (section 7.3)."""
    return None if value is None else f"{_to_the_second(value // _MICROSECONDS)}.{value % _MICROSECONDS:06}"


def _to_the_second(seconds: int) -> str:
    # By hand, since strftime takes twice as long, and every item has four times.
    days, second = divmod(seconds, _DAY)
    return f"{_date(days)}T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"


@lru_cache(maxsize=4096)
def _date(days: int) -> str:
    """The date this many days after the epoch."""
    return from_microseconds(days * _DAY * _MICROSECONDS).date().isoformat()
