"""Hypervisors: `/os-hypervisors` (contracts/nova-rest, 4.6)."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from starlette.responses import Response

from fleetlight.api.bodies.request_body import BOOLEANS
from fleetlight.api.compute.protocol.paging import Paging, next_link, paging_of
from fleetlight.api.compute.protocol.route_table import ApiRoute
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.errors import BadRequestError, NotFoundError, ParameterError
from fleetlight.api.http.query_string import QueryParameters
from fleetlight.api.http.shapes import Shape, page
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess, OfCells
from fleetlight.api.shared.headers import COMPLETE
from fleetlight.cells.kinds.native.nodes import ComputeNode
from fleetlight.listing.errors import CellDownError, MarkerNotFoundError
from fleetlight.manager.faces.hosts.fleet_hosts import FleetHosts, FoundNode
from fleetlight.manager.faces.hosts.hypervisor_items import (
    FULL,
    SHORT,
    STATISTICS,
    WITH_UPTIME,
    full_item,
    item_with_uptime,
    short_item,
    statistics,
)
from fleetlight.manager.operations.native_cells import nodes_in
from fleetlight.resources.clock import Clock
from fleetlight.resources.uuids import is_uuid, number_of

_PAGES_SINCE = 33
_UUIDS_SINCE = 53
_EMPTY_SERVERS_SINCE = 75
_STATISTICS_UNTIL = 87
_OF_ONE = {"with_servers": _UUIDS_SINCE}
_OF_MANY = {"limit": _PAGES_SINCE, "marker": _PAGES_SINCE, "hypervisor_hostname_pattern": _UUIDS_SINCE, **_OF_ONE}
_LIST = QueryParameters(_OF_MANY, refuses_unknown_since=_UUIDS_SINCE, once=dict.fromkeys(_OF_MANY, _UUIDS_SINCE))
_SHOW = QueryParameters(_OF_ONE, refuses_unknown_since=_UUIDS_SINCE, once=_OF_ONE)
_HOST_NAME = re.compile(r"[a-zA-Z0-9._-]{1,255}")

_ServersByHost = Mapping[str, Sequence[tuple[str, str]]]
_FoundNodes = tuple[OfCells[Sequence[ComputeNode]], list[FoundNode]]
_Item = Callable[[ApiRequest, ComputeNode], dict[str, Any]]


class HypervisorHandlers:
    """The handlers. A fleet has some thousand nodes at most, so they read the whole list, and cut its page here."""

    def __init__(self, access: FleetAccess, hosts: FleetHosts, clock: Clock) -> None:
        self._access = access
        self._clock = clock
        self._hosts = hosts

    def routes(self) -> list[ApiRoute]:
        many, one = "/os-hypervisors", "/os-hypervisors/{hypervisor_id}"
        until_52 = _UUIDS_SINCE - 1
        paged = partial(ApiRoute, "GET", query=_LIST, errors=(400, 403, 404), gives=(COMPLETE,))
        short = page("hypervisors", SHORT)
        matching = partial(ApiRoute, "GET", until=until_52, errors=(403, 404), answer=short, gives=(COMPLETE,))
        return [
            paged(many, self.index, answer=page("hypervisors", SHORT, "hypervisors_links")),
            paged(many + "/detail", self.detail, answer=page("hypervisors", FULL, "hypervisors_links")),
            ApiRoute(
                "GET",
                many + "/statistics",
                self.statistics,
                until=_STATISTICS_UNTIL,
                errors=(403,),
                answer=Shape({"hypervisor_statistics": STATISTICS}),
                gives=(COMPLETE,),
            ),
            ApiRoute("GET", one, self.show, query=_SHOW, errors=(400, 403, 404), answer=Shape({"hypervisor": FULL})),
            ApiRoute(
                "GET",
                one + "/uptime",
                self.uptime,
                until=_STATISTICS_UNTIL,
                errors=(400, 403, 404),
                answer=Shape({"hypervisor": WITH_UPTIME}),
            ),
            matching(one + "/search", self.search),
            matching(one + "/servers", self.servers),
        ]

    async def index(self, request: ApiRequest) -> Response:
        request.authorize("os_compute_api:os-hypervisors:list")
        return await self._list(request, "os-hypervisors", short_item)

    async def detail(self, request: ApiRequest) -> Response:
        request.authorize("os_compute_api:os-hypervisors:list-detail")
        return await self._list(request, "os-hypervisors/detail", partial(full_item, now=self._clock()))

    async def show(self, request: ApiRequest) -> Response:
        request.authorize("os_compute_api:os-hypervisors:show")
        wants_servers = _wants_servers(request)
        found = await self._required(request)
        item = partial(full_item, now=self._clock())
        if not wants_servers:
            return json_answer({"hypervisor": item(request, found.node)})
        items = _with_servers(request, item, [found], await self._servers([found]))
        if not items:
            raise CellDownError(found.cell.name)
        return json_answer({"hypervisor": items[0]})

    async def statistics(self, request: ApiRequest) -> Response:
        request.authorize("os_compute_api:os-hypervisors:statistics")
        of_cells, found = await self._all()
        numbers = statistics([candidate.node for candidate in found])
        return json_answer({"hypervisor_statistics": numbers}, headers=of_cells.headers)

    async def uptime(self, request: ApiRequest) -> Response:
        request.authorize("os_compute_api:os-hypervisors:uptime")
        node = (await self._required(request)).node
        if not node.service.is_up:
            raise BadRequestError(f"Compute service of {node.service.host} is unavailable at this time.")
        return json_answer({"hypervisor": item_with_uptime(request, node, self._clock())})

    async def search(self, request: ApiRequest) -> Response:
        request.authorize("os_compute_api:os-hypervisors:search")
        of_cells, found = await self._matching(request.http.path_params["hypervisor_id"])
        items = [short_item(request, candidate.node) for candidate in found]
        return json_answer({"hypervisors": items}, headers=of_cells.headers)

    async def servers(self, request: ApiRequest) -> Response:
        request.authorize("os_compute_api:os-hypervisors:servers")
        of_cells, found = await self._matching(request.http.path_params["hypervisor_id"])
        servers = await self._servers(found)
        items = _with_servers(request, short_item, found, servers)
        if not items:
            raise CellDownError(servers.down[0].name)
        return json_answer({"hypervisors": items}, headers=of_cells.without(servers.down).headers)

    async def _list(self, request: ApiRequest, path: str, item: _Item) -> Response:
        pattern, wants_servers = _pattern(request), _wants_servers(request)
        paging = Paging(self._access.max_limit)
        if pattern is not None:
            if "limit" in request.query or "marker" in request.query:
                raise BadRequestError("Paging over hypervisors with the hypervisor_hostname_pattern is not supported.")
            of_cells, found = await self._matching(pattern)
        else:
            of_cells, found = await self._all()
            paging = paging_of(request, self._access.max_limit, since=_PAGES_SINCE)
            if paging.has_next:
                found = _page(request, of_cells, found, paging)
        if wants_servers:
            servers = await self._servers(found)
            of_cells = of_cells.without(servers.down)
            items = _with_servers(request, item, found, servers)
        else:
            items = [item(request, each.node) for each in found]
        link = next_link(request, "hypervisors_links", path, paging, [_id(request, each.node) for each in found])
        return json_answer({"hypervisors": items, **link}, headers=of_cells.headers)

    async def _all(self) -> _FoundNodes:
        of_cells = await self._hosts.nodes()
        return of_cells, _found(of_cells)

    async def _matching(self, pattern: str) -> _FoundNodes:
        of_cells = await self._hosts.nodes_named_like(pattern)
        found = _found(of_cells)
        if not found and of_cells.down:
            raise CellDownError(of_cells.down[0].name)
        if not found:
            raise NotFoundError(f"No hypervisor matching '{pattern}' could be found.")
        return of_cells, found

    async def _required(self, request: ApiRequest) -> FoundNode:
        hypervisor_id: str = request.http.path_params["hypervisor_id"]
        if request.minor >= _UUIDS_SINCE and not is_uuid(hypervisor_id):
            raise BadRequestError(f"Invalid uuid {hypervisor_id}")
        is_meant = request.minor >= _UUIDS_SINCE or not is_uuid(hypervisor_id)
        found = await self._hosts.node(hypervisor_id) if is_meant else None
        if found is None:
            raise NotFoundError(f"Hypervisor with ID '{hypervisor_id}' could not be found.")
        return found

    async def _servers(self, found: Sequence[FoundNode]) -> OfCells[_ServersByHost]:
        """Read uuids and names of servers by host, with one query for each cell of the nodes."""
        cells = {each.cell.uuid: each.cell for each in found}
        hosts: dict[str, list[str]] = {}
        for each in found:
            hosts.setdefault(each.cell.uuid, []).append(each.node.service.host)
        native = self._access.native
        return await self._access.ask_some(
            list(cells.values()), lambda cell: nodes_in(native, cell).servers_on(hosts[cell.uuid])
        )


def _found(of_cells: OfCells[Sequence[ComputeNode]]) -> list[FoundNode]:
    return [FoundNode(cell, node) for cell, nodes in of_cells.answers for node in nodes]


def _id(request: ApiRequest, node: ComputeNode) -> str:
    return str(number_of(node.uuid)) if request.minor < _UUIDS_SINCE else node.uuid


def _page(
    request: ApiRequest, of_cells: OfCells[Sequence[ComputeNode]], found: list[FoundNode], paging: Paging
) -> list[FoundNode]:
    begin = 0
    if paging.marker is not None:
        ids = [_id(request, each.node) for each in found]
        if paging.marker not in ids and of_cells.down:
            raise CellDownError(of_cells.down[0].name)
        if paging.marker not in ids:
            raise MarkerNotFoundError(paging.marker)
        begin = ids.index(paging.marker) + 1
    return found[begin : begin + paging.limit]


def _pattern(request: ApiRequest) -> str | None:
    name = "hypervisor_hostname_pattern"
    pattern = request.query.last(name) if request.minor >= _UUIDS_SINCE else None
    if pattern is not None and not _HOST_NAME.fullmatch(pattern):
        raise ParameterError(name, pattern, "Must be 1 to 255 letters, digits, dots, dashes or underscores.")
    return pattern


def _wants_servers(request: ApiRequest) -> bool:
    text = request.query.last("with_servers") if request.minor >= _UUIDS_SINCE else None
    if text not in {None, *BOOLEANS}:
        raise ParameterError("with_servers", str(text), "Must be true or false.")
    return text is not None and BOOLEANS[text]


def _with_servers(
    request: ApiRequest, item: _Item, found: Sequence[FoundNode], servers: OfCells[_ServersByHost]
) -> list[dict[str, Any]]:
    """Show the nodes whose cells also answered for their servers. Others are left out like those of down cells, since
    showing them without servers would be wrong.
    """
    by_cell = {cell.uuid: by_host for cell, by_host in servers.answers}
    return [
        item(request, each.node) | _servers_of(request, by_cell[each.cell.uuid].get(each.node.service.host, ()))
        for each in found
        if each.cell.uuid in by_cell
    ]


def _servers_of(request: ApiRequest, servers: Sequence[tuple[str, str]]) -> dict[str, Any]:
    items = [{"uuid": uuid, "name": name} for uuid, name in servers]
    return {"servers": items} if items or request.minor >= _EMPTY_SERVERS_SINCE else {}
