"""Version documents, which clients read first, without logging in (contracts/nova-servers, section 9)."""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from api.compute.endpoint import Door
from api.compute.links import Links
from api.compute.microversion import NEWEST, OLDEST, Microversion


class VersionDocuments:
    """Endpoints of `/` and `/v2.1/`."""

    def __init__(self, door: Door, link_prefix: str | None) -> None:
        self._door = door
        self._link_prefix = link_prefix

    async def all(self, http: Request) -> Response:
        """`GET /`: takes no part in microversions."""
        return _json({"versions": [self._version(http)]})

    async def newest(self, http: Request) -> Response:
        """`GET /v2.1/`."""

        async def handle(_minor: int) -> Response:
            version = self._version(http)
            version["links"].append({"rel": "describedby", "type": "text/html", "href": "http://docs.openstack.org/"})
            version["media-types"] = [
                {"base": "application/json", "type": "application/vnd.openstack.compute+json;version=2.1"}
            ]
            return _json({"version": version})

        return await self._door.answer(http, handle)

    def _version(self, http: Request) -> dict[str, Any]:
        return {
            "id": "v2.1",
            "status": "CURRENT",
            "version": str(Microversion(*NEWEST)),
            "min_version": str(Microversion(*OLDEST)),
            "updated": "2013-07-23T11:33:21Z",
            "links": [{"rel": "self", "href": Links.of(http, self._link_prefix).versioned + "/"}],
        }


def _json(document: dict[str, Any]) -> Response:
    return Response(msgspec.json.encode(document), media_type="application/json")
