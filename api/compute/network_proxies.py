"""Resources that Nova proxied to other services until 2.35 (contracts/nova-rest, 4.8).

There are no networks, volumes and bare metal here, so their lists are empty, and programs that walk all lists, such as
Prometheus' discovery, go on. A request for a single item gets the reason. Images are looked up at `/image`.
"""

from collections.abc import Iterator

from starlette.responses import Response

from fleetlight.api.compute.protocol.paging import whole_number
from fleetlight.api.compute.protocol.route_table import ApiRoute
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.errors import NotFoundError
from fleetlight.api.http.query_string import QueryParameters
from fleetlight.api.http.shapes import ListOf, Shape
from fleetlight.api.shared.endpoint import ApiRequest

_UNTIL = 35
# By address: the key of the list, the service that has the items, and the items' name.
_LISTS = {
    "os-networks": ("networks", "network", "networks"),
    "os-tenant-networks": ("networks", "network", "networks"),
    "os-security-groups": ("security_groups", "network", "security groups"),
    "os-floating-ips": ("floating_ips", "network", "floating addresses"),
    "os-floating-ip-pools": ("floating_ip_pools", "network", "floating addresses"),
    "os-volumes": ("volumes", "volume", "volumes"),
    "os-snapshots": ("snapshots", "volume", "snapshots"),
    "os-baremetal-nodes": ("nodes", "bare metal", "nodes"),
}
_WITH_DETAILS = ("os-volumes", "os-snapshots")
_IN_PAGES = (*_WITH_DETAILS, "os-security-groups")
_ANY_PARAMETERS = QueryParameters({}, refuses_unknown_since=None)


def network_proxy_routes() -> Iterator[ApiRoute]:
    for collection, (key, service, things) in _LISTS.items():
        text = f"This fleet has no {service} service, and so no {things} to look up."
        is_paged = collection in _IN_PAGES
        yield _empty(f"/{collection}", key, is_paged=is_paged)
        if collection in _WITH_DETAILS:
            yield _empty(f"/{collection}/detail", key, is_paged=is_paged)
        if collection != "os-floating-ip-pools":
            yield _not_found(f"/{collection}/{{thing_id}}", text)
    for path in ("/images", "/images/detail", "/images/{image_id}"):
        yield _not_found(path, "This fleet has its images at the image service: /image/v2/images.")


def _empty(path: str, key: str, *, is_paged: bool) -> ApiRoute:
    async def handler(request: ApiRequest) -> Response:
        if is_paged:
            whole_number(request, "limit", 0)
            whole_number(request, "offset", 0)
        return json_answer({key: []})

    return ApiRoute("GET", path, handler, until=_UNTIL, query=_ANY_PARAMETERS, answer=Shape({key: ListOf(Shape({}))}))


def _not_found(path: str, text: str) -> ApiRoute:
    async def handler(_request: ApiRequest) -> Response:
        raise NotFoundError(text)

    return ApiRoute("GET", path, handler, until=_UNTIL, success=(), errors=(404,))
