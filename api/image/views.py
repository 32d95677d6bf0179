"""JSON forms of images, in Glance's manner: an image's own properties stand beside the others."""

from collections.abc import Mapping
from typing import Any

from api.http.shapes import BOOL, INTEGER, LINKS, TEXT, ListOf, Shape, optional, or_null
from operations.simulation.default_images import Image

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
    }
)
IMAGES = Shape({"images": ListOf(IMAGE), "first": TEXT, "schema": TEXT, "next": optional(TEXT)})
VERSIONS = Shape({"versions": ListOf(Shape({"id": TEXT, "status": TEXT, "links": LINKS}))})
_CREATED_AT = "2026-01-01T00:00:00Z"


def image_view(image: Image) -> dict[str, Any]:
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


def versions_view(root: str) -> Mapping[str, Any]:
    """root: address of the application."""
    links = [{"rel": "self", "href": f"{root}/image/v2/"}]
    return {"versions": [{"id": "v2.9", "status": "CURRENT", "links": links}]}
