"""JSON forms of images, in Glance's manner: an image's own properties stand beside the others."""

from collections.abc import Mapping
from typing import Any

from cells.default_images import Image

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
