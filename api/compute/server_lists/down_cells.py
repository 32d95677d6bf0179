"""Partial items of servers whose cell cannot be reached and which the index lacks (section 12)."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fleetlight.api.http.links import Links
from fleetlight.cells.fleet.fleet import InstanceMapping
from fleetlight.resources.fields import from_microseconds
from fleetlight.resources.server_status import UNKNOWN


def brief_item(mapping: InstanceMapping, links: Links) -> bytes:
    """Render the item of `GET /servers`; it has no name."""
    uuid = mapping.instance_uuid
    return msgspec.json.encode({"id": uuid, "status": UNKNOWN, "links": links.of_server(uuid)})


def full_item(mapping: InstanceMapping, links: Links) -> bytes:
    """Render the item of `GET /servers/detail`."""
    return msgspec.json.encode(_common(mapping, links))


def shown_item(
    mapping: InstanceMapping, links: Links, indexed: bytes | None, server_groups: Sequence[str] | None
) -> bytes:
    """Render the server of `GET /servers/{id}`.

    indexed: the index's full item; without it flavor, image and zone are unknown.
    server_groups: None for a microversion that does not show them.
    """
    known: dict[str, Any] = {} if indexed is None else msgspec.json.decode(indexed)
    item = {
        **_common(mapping, links),
        "user_id": mapping.user_id or UNKNOWN,
        "flavor": known.get("flavor", {}),
        "image": known.get("image", ""),
        "OS-EXT-AZ:availability_zone": known.get("OS-EXT-AZ:availability_zone") or UNKNOWN,
        "OS-EXT-STS:power_state": 0,
    }
    if server_groups is not None:
        item["server_groups"] = server_groups
    return msgspec.json.encode(item)


def _common(mapping: InstanceMapping, links: Links) -> Mapping[str, Any]:
    return {
        "id": mapping.instance_uuid,
        "status": UNKNOWN,
        "tenant_id": mapping.project_id or "",
        "created": from_microseconds(mapping.created_at).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "links": links.of_server(mapping.instance_uuid),
    }
