"""JSON Schemas of servers in answers. The keys of a microversion are those of the renderer."""

from collections.abc import Mapping
from functools import cache

import msgspec

from fleetlight.api.http.shapes import (
    BOOL,
    INTEGER,
    LINKS,
    TEXT,
    JsonSchema,
    JsonType,
    Key,
    ListOf,
    MapOf,
    OneOf,
    Shape,
    TypeSince,
    optional,
    or_null,
    page,
)
from fleetlight.resources.fields import Kind, Member, Record
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.views.compute.view import HOST_STATUS_SINCE, MINIMAL_ITEMS_SINCE, VOLUME_FLAGS_SINCE, FullTemplate

_IMAGE_PROPERTIES_SINCE = 98
_EMBEDDED_FLAVOR_SINCE = 47
_SERVER_GROUPS_SINCE = 71

_ADDRESS = Shape(
    {"addr": TEXT, "version": INTEGER, "OS-EXT-IPS:type": optional(TEXT), "OS-EXT-IPS-MAC:mac_addr": optional(TEXT)}
)
_LINKED = Shape({"id": TEXT, "links": LINKS})
_FLAVOR = Shape(
    {
        **dict.fromkeys(("vcpus", "ram", "disk", "ephemeral", "swap"), INTEGER),
        "original_name": or_null(TEXT),
        "extra_specs": MapOf(TEXT),
    }
)
_IMAGE = _LINKED.with_keys({"properties": Key(MapOf(TEXT), since=_IMAGE_PROPERTIES_SINCE)})
_VOLUME = Shape({"id": TEXT, "delete_on_termination": Key(BOOL, since=VOLUME_FLAGS_SINCE)})
_FAULT = Shape({"code": INTEGER, "created": or_null(TEXT), "message": or_null(TEXT), "details": optional(TEXT)})
_NOTHING_KNOWN = Shape({})
_TEXT_OR_NULL = or_null(TEXT)


def _kind_of(name: str, member: Member) -> JsonType:
    field = INSTANCE_FIELDS[name]
    if field.is_list:
        return ListOf(TEXT)
    kind = {Kind.NUMBER: INTEGER, Kind.BOOL: BOOL}.get(field.kind, TEXT)
    return kind if member.otherwise is not None else or_null(kind)


KINDS: Mapping[str, JsonType] = {
    **{member.name: _kind_of(name, member) for name, member in INSTANCE_FIELDS.members.items()},
    **dict.fromkeys(("id", "status", "hostId", "OS-DCF:diskConfig", "host_status"), TEXT),
    "links": LINKS,
    "image": OneOf((TEXT, _IMAGE)),
    "flavor": OneOf((TypeSince({1: _LINKED, _EMBEDDED_FLAVOR_SINCE: _FLAVOR}), _NOTHING_KNOWN)),
    "metadata": MapOf(TEXT),
    "addresses": MapOf(ListOf(_ADDRESS)),
    "os-extended-volumes:volumes_attached": ListOf(_VOLUME),
    "security_groups": ListOf(Shape({"name": TEXT})),
    "fault": _FAULT,
    "trusted_image_certificates": or_null(ListOf(TEXT)),
    "scheduler_hints": or_null(MapOf(_NOTHING_KNOWN)),
    "server_groups": ListOf(TEXT),
}
# Public keys that a server may lack.
SOMETIMES = frozenset({"progress", "security_groups", "fault"})
_EXAMPLE: Record = {name: [] if field.is_list else None for name, field in INSTANCE_FIELDS.items()} | {
    **{"uuid": "uuid", "vm_state": "active", "security_groups": ["default"], "deleted": False},
}


class _Server:
    """A full server, or a partial one whose cell does not answer. is_shown: alone instead of in a list."""

    def __init__(self, *, is_shown: bool) -> None:
        self._is_shown = is_shown

    def schema(self, minor: int) -> JsonSchema:
        for_all, for_admins = _keys(minor, is_admin=False), _keys(minor, is_admin=True)
        keys: dict[str, JsonType | Key] = {
            name: Key(KINDS[name], is_optional=name not in for_all or name in SOMETIMES)
            for name in for_admins | {"fault"}
        }
        keys["host_status"] = Key(KINDS["host_status"], since=HOST_STATUS_SINCE, is_optional=True)
        if self._is_shown:
            keys["server_groups"] = Key(KINDS["server_groups"], since=_SERVER_GROUPS_SINCE)
        whole = Shape(keys)
        if minor < MINIMAL_ITEMS_SINCE:
            return whole.schema(minor)
        names = ("id", "status", "tenant_id", "created", "links")
        partial = {name: KINDS[name] for name in names}
        if self._is_shown:
            names_of_one = ("user_id", "flavor", "image", "OS-EXT-AZ:availability_zone", "OS-EXT-STS:power_state")
            partial |= {name: KINDS[name] for name in names_of_one}
            return OneOf((whole, Shape({**partial, "server_groups": optional(KINDS["server_groups"])}))).schema(minor)
        return OneOf((whole, Shape(partial))).schema(minor)


@cache
def _keys(minor: int, *, is_admin: bool) -> frozenset[str]:
    template = FullTemplate(minor, is_admin=is_admin, versioned_base="", plain_base="")
    item: dict[str, object] = msgspec.json.decode(template.render_record(_EXAMPLE))
    return frozenset(item)


SHOWN_SERVER: JsonType = _Server(is_shown=True)
LISTED_SERVER: JsonType = _Server(is_shown=False)
SERVER_LIST = page(
    "servers",
    OneOf(
        (
            Shape({"id": TEXT, "name": _TEXT_OR_NULL, "links": LINKS}),
            Shape({"id": TEXT, "status": Key(TEXT, since=MINIMAL_ITEMS_SINCE), "links": LINKS}),
        )
    ),
    "servers_links",
)
SERVER_DETAILS = page("servers", LISTED_SERVER, "servers_links")
_WHY = Shape({"reason": TEXT})
# The data of events of a stream of servers (fleetlight.listing.watches.watch), by event name.
SERVER_EVENTS: Mapping[str, JsonType] = {
    "ready": Shape({"complete": BOOL}),
    "changed": Shape({"server": LISTED_SERVER}),
    "removed": Shape({"server": Shape({"id": TEXT})}),
    "incomplete": Shape({}),
    "complete": Shape({}),
    "reset": _WHY,
    "overrun": _WHY,
    "ended": _WHY,
}
_NEW_SERVER = _LINKED.with_keys(
    {"OS-DCF:diskConfig": TEXT, "security_groups": ListOf(Shape({"name": TEXT})), "adminPass": TEXT}
)
NEW_SERVER = OneOf((Shape({"server": _NEW_SERVER}), Shape({"reservation_id": TEXT})))
ADMIN_PASSWORD = Shape({"adminPass": TEXT})
