"""The handlers of `GET /servers` and `GET /servers/detail`."""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec
import structlog
from starlette.responses import Response

from fleetlight.api.caller import Caller
from fleetlight.api.compute.hosts.host_status import HostStatusCache, full_template
from fleetlight.api.compute.protocol.parameters import PAGING_NAMES, REPEATABLE, accept, known
from fleetlight.api.compute.server_lists import down_cells
from fleetlight.api.compute.server_lists.filter_and_order import (
    build_filter,
    build_order,
    check_sort_keys,
    found_before_the_marker,
    is_for_all_tenants,
)
from fleetlight.api.compute.server_lists.watches import ServerWatches
from fleetlight.api.http.links import Links
from fleetlight.api.http.parts_response import HeadResponse, PartsResponse
from fleetlight.api.http.query_string import QueryString
from fleetlight.api.metrics import ApiMetrics
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.proof import proof_headers, read_options
from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.cells.fleet.fleet import InstanceMapping
from fleetlight.cells.instance_mappings import InstanceMappings
from fleetlight.cells.model import Cell
from fleetlight.listing.answer import Page
from fleetlight.listing.errors import CellDownError, MarkerNotFoundError
from fleetlight.listing.explanation import Observer
from fleetlight.listing.find_instance import InstanceFinder
from fleetlight.listing.list_instances import InstanceLister
from fleetlight.listing.sources import CellFailure, ask_fleet
from fleetlight.query.filters import NOTHING, Filter
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import SortOrder
from fleetlight.resources.uuids import is_uuid
from fleetlight.views.compute.view import MINIMAL_ITEMS_SINCE, BriefTemplate, ItemTemplate

_log = structlog.get_logger(__name__)
# More digits than any page size, and few enough for int().
_MAX_LIMIT_DIGITS = 18
_MOST_PAGE_ENDS = 4096


class PageEnds:
    """The ends of the newest pages, by caller: no caller learns a position from another caller's page.

    A client that pages uses the last row of its page as marker. In an order of immutable fields the row's position need
    not be queried again, which saves a page from the index one request, and a page from the cells two. A process that
    does not remember the page queries it.
    """

    def __init__(self) -> None:
        self._positions: OrderedDict[Hashable, tuple[Any, ...]] = OrderedDict()

    def remember(self, caller: Hashable, order: SortOrder, position: tuple[Any, ...]) -> None:
        """Remember the end of a page. position: stored values of the order's keys at the last row, uuid last."""
        # A value that is still unknown may change once.
        if not order.keeps_places or None in position:
            return
        self._positions[caller, order, position[-1]] = position
        self._positions.move_to_end((caller, order, position[-1]))
        if len(self._positions) > _MOST_PAGE_ENDS:
            self._positions.popitem(last=False)

    def position_of(self, caller: Hashable, order: SortOrder, uuid: str) -> tuple[Any, ...] | None:
        """Return the position of the instance `uuid`; None if no remembered page ended with it."""
        return self._positions.get((caller, order, uuid))


class _Identity(msgspec.Struct):
    id: str


_decode_identities = msgspec.json.Decoder(list[_Identity]).decode


@dataclass(frozen=True, slots=True)
class _Listing:
    """One of the two lists. action: its name in policies. path: its address below the base."""

    action: str
    path: str
    minimal_item: Callable[[InstanceMapping, Links], bytes]


@dataclass(frozen=True, slots=True)
class _Listed:
    """The page of a list. query: the parameters that count. limit: largest number of rows."""

    page: Page
    query: QueryString
    limit: int


class ServerListHandlers:
    """The handlers of both lists. max_limit: the largest page. timeout_s: time limit of the fleet database.

    skips_down_cells: whether a list may lack the servers of a cell for which neither the cell nor the index answers.
    """

    def __init__(
        self,
        lister: InstanceLister,
        finder: InstanceFinder,
        mappings: InstanceMappings,
        metrics: ApiMetrics,
        *,
        host_statuses: HostStatusCache,
        watches: ServerWatches,
        max_limit: int,
        timeout_s: float,
        skips_down_cells: bool,
    ) -> None:
        self._lister = lister
        self._finder = finder
        self._mappings = mappings
        self._metrics = metrics
        self._host_statuses = host_statuses
        self._watches = watches
        self._page_ends = PageEnds()
        self._max_limit = max_limit
        self._timeout_s = timeout_s
        self._skips_down_cells = skips_down_cells

    async def index(self, request: ApiRequest) -> Response:
        """`GET /servers`"""
        versioned, plain = request.links.as_json
        template = BriefTemplate(request.minor, versioned_base=versioned, plain_base=plain)
        return await self._list(request, template, _Listing("index", "servers", down_cells.brief_item))

    async def detail(self, request: ApiRequest) -> Response:
        """`GET /servers/detail`; a stream of later changes, if the request accepts only that."""
        if request.wants_events:
            stream = await self._watches.open(request)
            # Without this, a HEAD would occupy the connection, and a slot among the watches.
            return HeadResponse(stream) if _is_head(request) else stream
        template = full_template(request, await self._host_statuses.shown_to(request))
        return await self._list(request, template, _Listing("detail", "servers/detail", down_cells.full_item))

    async def _listed(
        self, request: ApiRequest, template: ItemTemplate, action: str, observer: Observer | None = None
    ) -> _Listed:
        """Make the requested page. action: the name of the list in policies."""
        caller, minor = request.caller, request.minor
        query = accept(request.query, minor, is_admin=caller.is_admin)
        request.authorize(f"os_compute_api:servers:{action}")
        limit = self._limit(query)
        check_sort_keys(query, minor)
        wanted = build_filter(query, minor, caller, action=action)
        if wanted == NOTHING:
            return _Listed(Page(b"", 0, None, ()), query, limit)
        order = build_order(query, minor, is_admin=caller.is_admin)
        if _is_head(request):
            limit = min(limit, 1)
        async with request.admission.page():
            try:
                page = await self._page(request, template, query, PageRequest(wanted, order, limit), observer)
            except MarkerNotFoundError:
                conditions = found_before_the_marker(query, caller, action=action)
                if not await self._finds_none_of_one(conditions, request, template, order):
                    raise
                page = Page(b"", 0, None, ())
        return _Listed(page, query, limit)

    async def _finds_none_of_one(
        self, conditions: Sequence[Filter], request: ApiRequest, template: ItemTemplate, order: SortOrder
    ) -> bool:
        """Whether some condition matches no server at all; False for one whose list is incomplete."""
        fresh = await read_options(request.http.headers, request.caller, request.writes, request.admission)
        for condition in conditions:
            found = await self._lister.list_page(PageRequest(condition, order, 1), template, fresh)
            if found.is_complete and not found.rows:
                return True
        return False

    async def _page(
        self,
        request: ApiRequest,
        template: ItemTemplate,
        query: QueryString,
        wanted: PageRequest,
        observer: Observer | None,
    ) -> Page:
        """Make the page after the marker of the request."""
        caller, order = request.caller, wanted.order
        started = time.perf_counter()
        fresh = await read_options(request.http.headers, caller, request.writes, request.admission)
        marker = query.last("marker") or None
        down: dict[str, CellFailure] = {}
        after = None
        if marker is not None:
            if not is_uuid(marker):
                raise MarkerNotFoundError(marker)
            after = self._page_ends.position_of(caller, order, marker) or await self._finder.position_of(
                marker,
                order,
                fresh.consistency,
                may_see=caller.may_see,
                down=down,
                cell_timeout_s=fresh.cell_timeout_s,
            )
        if not wanted.limit:
            return Page(b"", 0, None, ())
        page = await self._lister.list_page(replace(wanted, after=after), template, fresh, down=down, observer=observer)
        self._metrics.count_list(page, time.perf_counter() - started)
        if page.last is not None:
            self._page_ends.remember(caller, order, page.last)
        return page

    async def explained_page(self, request: ApiRequest, observer: Observer, *, is_detailed: bool) -> Page:
        """Make the page of a list, and record its sources in `observer`."""
        template = full_template(request, None)
        return (await self._listed(request, template, "detail" if is_detailed else "index", observer)).page

    async def _list(self, request: ApiRequest, template: ItemTemplate, listing: _Listing) -> Response:
        caller, minor = request.caller, request.minor
        listed = await self._listed(request, template, listing.action)
        page, query, limit = listed.page, listed.query, listed.limit
        items, rows = [page.items] if page.items else [], page.rows
        last_uuid: str | None = page.last[-1] if page.last else None
        if page.skipped_cells:
            if minor >= MINIMAL_ITEMS_SINCE and not _is_narrowed(request.query, query):
                mappings = await self._unlisted_mappings(page, caller, query, limit)
                items = [*(listing.minimal_item(mapping, request.links) for mapping in mappings), *items]
                rows += len(mappings)
                last_uuid = last_uuid or (mappings[-1].instance_uuid if mappings else None)
            elif not self._skips_down_cells:
                raise CellDownError(page.skipped_cells[0].uuid)
        if page.left_out and not self._skips_down_cells:
            raise CellDownError(page.left_out[0].uuid)
        end = b"]}"
        if rows == limit and last_uuid is not None:
            repeated = known(request.query, minor).with_marker(last_uuid, REPEATABLE)
            href = f"{request.links.versioned}/{listing.path}?{repeated}"
            end = b'],"servers_links":' + msgspec.json.encode([{"rel": "next", "href": href}]) + b"}"
        answer = PartsResponse(_parts(b'{"servers":[', items, end), headers=proof_headers(page, caller))
        return HeadResponse(answer) if _is_head(request) else answer

    def _limit(self, query: QueryString) -> int:
        text = query.last("limit")
        digits = None if text is None else text.lstrip("0") or "0"
        if digits is None or len(digits) > _MAX_LIMIT_DIGITS:
            return self._max_limit
        return min(int(digits), self._max_limit)

    async def _unlisted_mappings(
        self, page: Page, caller: Caller, query: QueryString, limit: int
    ) -> list[InstanceMapping]:
        """Return instances of down cells, by their mappings, that fill the rest of the page."""
        # A cell that failed halfway has delivered some of its servers.
        listed = {item.id for item in _decode_identities(b"[%b]" % page.items)}
        mappings = await self._mappings_of(page.skipped_cells, caller, query, limit)
        return [mapping for mapping in mappings if mapping.instance_uuid not in listed][: limit - len(listed)]

    async def _mappings_of(
        self, cells: Sequence[Cell], caller: Caller, query: QueryString, limit: int
    ) -> list[InstanceMapping]:
        """Return at most `limit` mappings in down cells, of instances that the caller may see."""
        project_id = None if is_for_all_tenants(query) else caller.project_id
        if project_id is None and not is_for_all_tenants(query):
            return []
        mappings: list[InstanceMapping] = []
        for cell in cells:
            try:
                wanted = partial(
                    self._mappings.mappings_of_cell, cell.uuid, project_id=project_id, limit=limit - len(mappings)
                )
                mappings += await ask_fleet(wanted, self._timeout_s)
            except FleetUnreachableError as error:
                # The answer is marked incomplete already.
                _log.warning("mappings_unreachable", reason=error.reason)
                break
        return mappings


def _parts(begin: bytes, items: Sequence[bytes], end: bytes) -> list[bytes]:
    """Join the parts of a list's body."""
    parts = [begin]
    for item in items:
        parts += (item, b",")
    parts[-1 if items else 1 :] = [end]
    return parts


def _is_head(request: ApiRequest) -> bool:
    """Whether the request is a HEAD, for which a page of one server suffices."""
    return request.http.method == "HEAD"


def _is_narrowed(asked: QueryString, accepted: QueryString) -> bool:
    """Whether the list is filtered, sorted or paged, which partial items cannot be."""
    return any(name in PAGING_NAMES for name in asked) or any(name != "all_tenants" for name in accepted)
