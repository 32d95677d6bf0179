"""The services and their addresses: the catalog of tokens, and the version documents of the identity service."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import NAMESPACE_URL, uuid5

_INTERFACES = ("public", "internal", "admin")


@dataclass(frozen=True, slots=True)
class Service:
    """A service. path: below the address of the application."""

    type: str
    name: str
    path: str

    @property
    def id(self) -> str:
        return stable_id("service", self.type)


SERVICES: Sequence[Service] = (
    Service("compute", "nova", "/v2.1"),
    Service("identity", "keystone", "/identity/v3"),
    Service("image", "glance", "/image"),
)


def stable_id(kind: str, name: str) -> str:
    """Return the id of a built-in object, the same in every process."""
    return uuid5(NAMESPACE_URL, f"fleetlight:{kind}:{name}").hex


def catalog(root: str, region: str) -> list[dict[str, Any]]:
    """Make the catalog. root: address of the application, as the caller sees it."""
    return [
        {
            "id": service.id,
            "type": service.type,
            "name": service.name,
            "endpoints": [
                {
                    "id": endpoint["id"],
                    "interface": endpoint["interface"],
                    "region": region,
                    "region_id": region,
                    "url": endpoint["url"],
                }
                for endpoint in endpoints(root, region)
                if endpoint["service_id"] == service.id
            ],
        }
        for service in SERVICES
    ]


def endpoints(root: str, region: str) -> list[dict[str, Any]]:
    """Return every endpoint as an entity of its own, without links."""
    return [
        {
            "id": stable_id("endpoint", f"{service.type}:{interface}"),
            "service_id": service.id,
            "interface": interface,
            "region": region,
            "region_id": region,
            "url": root + service.path,
            "enabled": True,
        }
        for service in SERVICES
        for interface in _INTERFACES
    ]


def version_document(root: str) -> Mapping[str, Any]:
    """Make the version document of `/identity` and `/identity/v3` (contracts/nova-rest, 5.1)."""
    return {
        "id": "v3.14",
        "status": "stable",
        "updated": "2020-04-07T00:00:00Z",
        "links": [{"rel": "self", "href": f"{root}/identity/v3/"}],
        "media-types": [{"base": "application/json", "type": "application/vnd.openstack.identity-v3+json"}],
    }
