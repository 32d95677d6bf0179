"""JSON forms of images like Glance's, with custom properties beside the standard members."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fleetlight.api.http.shapes import BOOL, INTEGER, LINKS, TEXT, ListOf, Shape, optional, or_null
from fleetlight.cells.fleet.compute.default_images import DEFAULT_IMAGES, DefaultImage
from fleetlight.resources.fields import Record, from_microseconds

IMAGE = Shape(
    {
        **dict.fromkeys(("id", "name", "status", "visibility", "container_format", "disk_format"), TEXT),
        **dict.fromkeys(("created_at", "updated_at", "self", "file", "schema"), TEXT),
        **dict.fromkeys(("os_distro", "hw_disk_bus", "hw_machine_type"), TEXT),
        **dict.fromkeys(("owner", "checksum", "os_hash_algo", "os_hash_value"), or_null(TEXT)),
        **dict.fromkeys(("size", "min_disk", "min_ram"), INTEGER),
        "virtual_size": or_null(INTEGER),
        **dict.fromkeys(("protected", "os_hidden"), BOOL),
        "tags": ListOf(TEXT),
        **dict.fromkeys(("image_type", "instance_uuid", "base_image_ref"), optional(TEXT)),
    }
)
IMAGES = Shape({"images": ListOf(IMAGE), "first": TEXT, "schema": TEXT, "next": optional(TEXT)})
VERSIONS = Shape({"versions": ListOf(Shape({"id": TEXT, "status": TEXT, "links": LINKS}))})
_CREATED_AT = "2026-01-01T00:00:00Z"


def image_view(image: DefaultImage) -> dict[str, Any]:
    path = f"/v2/images/{image.id}"
    return {
        "id": image.id,
        "name": image.name,
        "status": "active",
        "visibility": "public",
        "protected": True,
        "os_hidden": False,
        "owner": None,
        "container_format": "bare",
        "disk_format": "qcow2",
        "size": image.size,
        "virtual_size": None,
        "min_disk": image.min_disk_gb,
        "min_ram": image.min_ram_mb,
        "checksum": None,
        "os_hash_algo": None,
        "os_hash_value": None,
        "tags": [],
        "created_at": _CREATED_AT,
        "updated_at": _CREATED_AT,
        **image.properties,
        "self": path,
        "file": f"{path}/file",
        "schema": "/v2/schemas/image",
    }


def shelved_image_view(record: Record, suffix: str) -> dict[str, Any]:
    """Show the image of a server that is shelved, or being shelved. suffix: of its name."""
    base = next((image for image in DEFAULT_IMAGES if image.id == record["image_ref"]), DEFAULT_IMAGES[0])
    is_shelved = record["vm_state"] in {"shelved", "shelved_offloaded"}
    changed_at = from_microseconds(record["updated_at"] or record["created_at"] or 0).strftime("%Y-%m-%dT%H:%M:%SZ")
    view = image_view(replace(base, id=record["uuid"], name=f"{record['display_name']}{suffix}"))
    return view | {
        "status": "active" if is_shelved else "queued",
        "visibility": "private",
        "protected": False,
        "owner": record["project_id"],
        "created_at": changed_at,
        "updated_at": changed_at,
        "image_type": "snapshot",
        "instance_uuid": record["uuid"],
        "base_image_ref": record["image_ref"],
    }


def versions_view(root: str) -> Mapping[str, Any]:
    """Show the versions. root: address of the application."""
    links = [{"rel": "self", "href": f"{root}/image/v2/"}]
    return {"versions": [{"id": "v2.9", "status": "CURRENT", "links": links}]}
