"""The stored view: an instance's answers of the compute API, rendered once, when it changes.

A full item depends on the microversion, and on whether the caller is an administrator. The public members are stored as
one text, in *segments* ordered by the microversion that added them: an older item is a prefix of a newer one, and the
view stores the end of each segment. So an answer joins a few slices, without parsing or rendering a row
(docs/decisions/0007). Rows read live from a cell are rendered by the same function, so a row looks the same on every
route.

Links depend on the address of the request, so `ItemTemplate` makes them, from the ids in the view.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import lru_cache
from operator import itemgetter
from typing import Any

import msgspec

from fleetlight.resources.fields import Record
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.views.compute import members
from fleetlight.views.compute.members import Segment
from fleetlight.views.projection import Projection

View = tuple[bytes, ...]
"""The pieces of one instance, in the order of PIECE_NAMES; each is a JSON text."""
HostStatuses = Mapping[str, Mapping[bytes, bytes]]
"""The values of `host_status`, by cell uuid and host; host and status are JSON texts."""
NEWEST_MICROVERSION = (2, 104)
MINIMAL_ITEMS_SINCE = 69
"""The microversion, 2.N, that added partial items of servers in down cells."""

VOLUME_FLAGS_SINCE = 3
_HOSTNAME_FOR_ADMINS_SINCE = 3
_EMBEDDED_FLAVOR_SINCE = 47
_HOSTNAME_SINCE = 90
HOST_STATUS_SINCE = 16
_IMAGE_PROPERTIES_SINCE = 98

_since = itemgetter(1)
# Segments for every caller, each with the microversion, 2.N, that added it.
_PUBLIC: tuple[tuple[Segment, int], ...] = (
    *((members.identity, 1), (members.common, 1), (members.volumes, 1)),
    *sorted([*members.segments(for_admins=False), (members.flavor, _EMBEDDED_FLAVOR_SINCE)], key=_since),
)
# Segments for administrators only, who see `hostname` from 2.3 on.
_ADMIN = ((members.placement, 1), *members.segments(for_admins=True))
_PUBLIC_SEGMENTS = [segment for segment, _ in _PUBLIC]
_ADMIN_SEGMENTS = [segment for segment, _ in _ADMIN]
_VOLUMES = _PUBLIC_SEGMENTS.index(members.volumes)
_HOSTNAME = [since for _, since in _PUBLIC].index(_HOSTNAME_SINCE)

# public, admin: objects of the segments above. ends: ends of the segments, first of `public`, then of `admin`.
# image: "" or an object of id and properties. flavor_id: text or null. fault: with its details, or null.
PIECE_NAMES = ("public", "admin", "ends", "image", "flavor_id", "fault")

# Indexes within the first four pieces of every full template: public, image, fault, admin.
_FAULT_PIECE, _ADMIN_PIECE = 2, 3
_BEFORE_ID = len(b'{"id":"')
# No JSON text can contain it, since quotes inside are escaped.
_AFTER_UUID = b'","name":'
_AFTER_IMAGE_ID = b'","properties":'
_BEFORE_HOST = len(b'{"OS-EXT-SRV-ATTR:host":')
_AFTER_HOST = b',"OS-EXT-SRV-ATTR:hypervisor_hostname":'
_EMPTY_TEXT = b'""'
_NULL = b"null"
_BRACE, _COMMA = b"{,"
_SERVER_ERROR = 500
_encoder = msgspec.json.Encoder()
_encode, _encode_into = _encoder.encode, _encoder.encode_into
_decode_ends = msgspec.json.Decoder(list[int]).decode
_decode_fault = msgspec.json.Decoder(dict[str, int | str | None]).decode


def render_view(record: Record) -> View:
    """Render all pieces of one instance, from the stored values of its fields."""
    return _render(record, _ADMIN_SEGMENTS)


def _render(record: Record, admin_segments: Sequence[Segment]) -> View:
    public, ends = _joined(_PUBLIC_SEGMENTS, record)
    admin, admin_ends = _joined(admin_segments, record) if admin_segments else (b"", [])
    return (
        public,
        admin,
        _encode(ends + admin_ends),
        _encode(members.image(record)),
        _encode(record["flavor_id"] or None),
        _encode(members.fault(record)),
    )


def _joined(segments: Sequence[Segment], record: Record) -> tuple[bytes, list[int]]:
    """Encode all segments as one object; returns it and the end of each: at a comma, or at the closing brace."""
    text = bytearray()
    ends = []
    end = 0
    for segment in segments:
        # Write over the closing brace of the segment before; its own opening brace becomes a comma.
        _encode_into(segment(record), text, end)
        text[end] = _COMMA
        end = len(text) - 1
        ends.append(end)
    text[0] = _BRACE
    return bytes(text), ends


class _FieldsRead(Mapping[str, Any]):
    """A record of an instance that records which of its fields are read."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self._values = dict.fromkeys(INSTANCE_FIELDS) | {"vm_state": "active", "image_ref": "any"}

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def is_of(view: Sequence[bytes], uuid: str) -> bool:
    """Whether a view belongs to the instance with this uuid."""
    return view[0].startswith(b'"%b"' % uuid.encode(), _BEFORE_ID - 1)


@lru_cache
def _fields_of(*, is_admin: bool) -> tuple[str, ...]:
    """Return the fields that the view of administrators, or of other callers, is made of.

    They are the same at every microversion, so that all lists agree which rows are damaged (decision 0009).
    """
    read = _FieldsRead()
    _render(read, _ADMIN_SEGMENTS if is_admin else ())
    return tuple(name for name in INSTANCE_FIELDS if name in read.names)


class ItemTemplate(Projection):
    """Assembles the items of one request from pieces of the view, their slices, and the base addresses of links.

    Templates of the same form and with the same host statuses (`rendered_with`) make the same items. Servers with
    damaged rows are shown like those of a down cell (section 12).
    versioned_base, plain_base: without a final slash, and escaped for JSON strings.
    """

    rendered_with: HostStatuses | None = None

    def __init__(
        self, minor: int, pieces: Sequence[str], versioned_base: str, plain_base: str, *form: Hashable
    ) -> None:
        self.shows_damaged = minor >= MINIMAL_ITEMS_SINCE
        self.pieces = tuple(pieces)
        self._shows_admin_piece = "admin" in pieces
        self.fields = _fields_of(is_admin=self._shows_admin_piece)
        self.form = (versioned_base, plain_base, *form)
        self._positions = [PIECE_NAMES.index(name) for name in self.pieces]
        versioned, plain = (base.encode().replace(b"%", b"%%") for base in (versioned_base, plain_base))
        bookmark = b'{"rel":"bookmark","href":"%b/' % plain
        # Formats: the first takes the uuid twice; the others take an id (encoded, without quotes) twice.
        self._links = b'{"links":[{"rel":"self","href":"%b/servers/%%b"},%bservers/%%b"}]' % (versioned, bookmark)
        self._image = b'{"id":"%%b","links":[%bimages/%%b"}]' % bookmark
        self._flavor = b'{"id":"%%b","links":[%bflavors/%%b"}]}' % bookmark

    def render_record(self, record: Record, cell_uuid: str = "", revision: int | None = None) -> bytes:
        view = _render(record, _ADMIN_SEGMENTS if self._shows_admin_piece else ())
        return self.render([view[position] for position in self._positions], cell_uuid)


class BriefTemplate(ItemTemplate):
    """The template of `GET /servers` at microversion 2.`minor`."""

    def __init__(self, minor: int, *, versioned_base: str, plain_base: str) -> None:
        super().__init__(minor, ("public", "ends"), versioned_base, plain_base)
        self._item = self._links + b",%b}"

    def render(self, pieces: Sequence[Any], /, cell_uuid: str = "") -> bytes:
        public: bytes = pieces[0]
        uuid = public[_BEFORE_ID : public.index(_AFTER_UUID)]
        return self._item % (uuid, uuid, public[1 : _decode_ends(pieces[1])[0]])

    def render_damaged(self, record: Record) -> bytes:
        return _minimal_item(self._links, members.damaged_identity(record))


class FullTemplate(ItemTemplate):
    """The template of `GET /servers/detail` and `GET /servers/{id}` at microversion 2.`minor`.

    host_statuses: None omits `host_status`, which only administrators see.
    """

    def __init__(
        self,
        minor: int,
        *,
        is_admin: bool,
        versioned_base: str,
        plain_base: str,
        host_statuses: HostStatuses | None = None,
    ) -> None:
        self.rendered_with = host_statuses if is_admin and minor >= HOST_STATUS_SINCE else None
        self._is_admin = is_admin
        self._last = max(number for number, (_, since) in enumerate(_PUBLIC) if since <= minor)
        self._last_for_admins = max(number for number, (_, since) in enumerate(_ADMIN) if since <= minor)
        self._is_newest = all(since <= minor for _, since in (*_PUBLIC, *_ADMIN))
        self._has_volume_flags = minor >= VOLUME_FLAGS_SINCE
        self._has_hostname_for_admins = is_admin and _HOSTNAME_FOR_ADMINS_SINCE <= minor < _HOSTNAME_SINCE
        self._has_flavor_link = minor < _EMBEDDED_FLAVOR_SINCE
        self._has_image_properties = minor >= _IMAGE_PROPERTIES_SINCE
        pieces = ["public", "image", "fault"]
        if is_admin:
            pieces.append("admin")
        self._ends_piece = len(pieces)
        if not self._is_newest:
            pieces += ["ends", "flavor_id"]
        super().__init__(minor, pieces, versioned_base, plain_base, minor, is_admin)
        # The last three: public members, optional members, and the end of the item.
        rest = b",%b%b,%b" if self._is_newest and is_admin else b",%b%b%b"
        self._without_image = self._links + b',"image":""' + rest
        self._with_image = self._links + b',"image":' + self._image + b"%b" + rest

    def render(self, pieces: Sequence[Any], /, cell_uuid: str = "") -> bytes:
        public: bytes = pieces[0]
        image: bytes = pieces[1]
        uuid = public[_BEFORE_ID : public.index(_AFTER_UUID)]
        if self._is_newest:
            members = public[1:-1]
            end = pieces[_ADMIN_PIECE][1:] if self._is_admin else b"}"
        else:
            members, end = self._older_members(pieces), b"}"
        others = b""
        if pieces[_FAULT_PIECE] != _NULL:
            others = b',"fault":' + (pieces[_FAULT_PIECE] if self._is_admin else _without_details(pieces[_FAULT_PIECE]))
        if self.rendered_with is not None:
            others += b',"host_status":' + _host_status(pieces[_ADMIN_PIECE], self.rendered_with.get(cell_uuid))
        # Format at once, since copying the members is what costs time.
        if image == _EMPTY_TEXT:
            return self._without_image % (uuid, uuid, members, others, end)
        after_id = image.index(_AFTER_IMAGE_ID)
        identifier = image[_BEFORE_ID:after_id]
        # After the id follow a comma, the properties, and the brace.
        rest = image[after_id + 1 :] if self._has_image_properties else b"}"
        return self._with_image % (uuid, uuid, identifier, identifier, rest, members, others, end)

    def render_damaged(self, record: Record) -> bytes:
        return _minimal_item(self._links, members.damaged(record))

    def _older_members(self, pieces: Sequence[Any]) -> bytes:
        """Return the members of a microversion without the newest segments."""
        public: bytes = pieces[0]
        ends = _decode_ends(pieces[self._ends_piece])
        if self._has_volume_flags:
            members = public[1 : ends[self._last]]
        else:
            begin = ends[_VOLUMES - 1]
            members = public[1:begin] + _without_flags(public[begin : ends[_VOLUMES]])
        if self._has_flavor_link:
            flavor_id: bytes = pieces[self._ends_piece + 1]
            linked = b"{}" if flavor_id == _NULL else self._flavor % (flavor_id[1:-1], flavor_id[1:-1])
            members += b',"flavor":' + linked
        if self._is_admin:
            members += b"," + pieces[_ADMIN_PIECE][1 : ends[len(_PUBLIC) + self._last_for_admins]]
        if self._has_hostname_for_admins:
            members += public[ends[_HOSTNAME - 1] : ends[_HOSTNAME]]
        return members


def _minimal_item(links: bytes, shown: members.DamagedIdentity) -> bytes:
    uuid = _encode(shown.id)[1:-1]
    return links % (uuid, uuid) + b"," + _encode(shown)[1:]


def _host_status(admin: bytes, statuses: Mapping[bytes, bytes] | None) -> bytes:
    """Return the host's status: empty without host or service on it; UNKNOWN if its cell reported no services."""
    host = admin[_BEFORE_HOST : admin.index(_AFTER_HOST)]
    if host == _NULL:
        return _EMPTY_TEXT
    return b'"UNKNOWN"' if statuses is None else statuses.get(host, _EMPTY_TEXT)


def _without_flags(volumes: bytes) -> bytes:
    return volumes.replace(b',"delete_on_termination":true', b"").replace(b',"delete_on_termination":false', b"")


def _without_details(fault: bytes) -> bytes:
    """Remove the details of a fault with code 500, which only administrators see (section 7.7)."""
    shown = _decode_fault(fault)
    if shown["code"] == _SERVER_ERROR:
        shown.pop("details", None)
    return _encode(shown)
