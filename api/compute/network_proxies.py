"""Where Nova passed questions on to the network service, until 2.35 (contracts/nova-rest, 4.8).

There is none here. Clients look up by name what they shall attach to a server, and show their users what they are told.
"""

from collections.abc import Iterator

from starlette.responses import Response

from fleetlight.api.compute.protocol.route_table import ApiRoute
from fleetlight.api.http.errors import NotFoundError
from fleetlight.api.shared.endpoint import ApiRequest, Handler

_UNTIL = 35
_COLLECTIONS = {
    "os-networks": "networks",
    "os-tenant-networks": "networks",
    "os-security-groups": "security groups",
    "os-floating-ips": "floating addresses",
}


def network_proxy_routes() -> Iterator[ApiRoute]:
    for collection, things in _COLLECTIONS.items():
        for path in (f"/{collection}", f"/{collection}/{{thing_id}}"):
            yield ApiRoute("GET", path, _explaining(things), until=_UNTIL, success=(), errors=(404,))


def _explaining(things: str) -> Handler:
    async def handler(_request: ApiRequest) -> Response:
        raise NotFoundError(f"This fleet has no network service, and so no {things} to look up.")

    return handler
