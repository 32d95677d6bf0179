"""Running times of instances: `/os-simple-tenant-usage` (contracts/nova-rest, 4.5)."""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from heapq import merge
from itertools import islice
from typing import Any

from starlette.responses import Response

from fleetlight.api.compute.protocol.paging import next_link, paging_of
from fleetlight.api.compute.protocol.route_table import ApiRoute
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.errors import BadRequestError
from fleetlight.api.http.query_string import list_parameters
from fleetlight.api.http.shapes import INTEGER, LINKS, NUMBER, TEXT, ListOf, OneOf, Shape, optional, or_null, page
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.api.shared.headers import COMPLETE
from fleetlight.api.shared.times import without_zone
from fleetlight.cells.errors import CellUnreachableError, UnreadableRowError
from fleetlight.cells.kinds.native.adapter import NativeAdapter
from fleetlight.cells.model import Cell
from fleetlight.listing.errors import MarkerNotFoundError
from fleetlight.query.filters import Eq, Gt, IsNotNull, IsNull, Lt, all_of, any_of
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import SortKey, SortOrder
from fleetlight.resources.clock import Clock
from fleetlight.resources.fields import from_microseconds, to_microseconds
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

_PAGES_SINCE = 40
_PARAMETERS = {"start": 1, "end": 1, "limit": _PAGES_SINCE, "marker": _PAGES_SINCE}
_FORMATS = ("%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S.%f", "%Y-%m-%d %H:%M:%S.%f")
_HOUR_US = 3_600_000_000
_BY_PROJECT = SortOrder.of(INSTANCE_FIELDS, [SortKey("project_id")])
_FIELDS = ("uuid", "project_id", "display_name", "vm_state", "launched_at", "terminated_at", "flavor")


_SERVER_USAGE = Shape(
    {
        **dict.fromkeys(("instance_id", "name", "tenant_id", "flavor"), TEXT),
        **dict.fromkeys(("memory_mb", "local_gb", "vcpus", "uptime"), INTEGER),
        "hours": NUMBER,
        "started_at": TEXT,
        "ended_at": or_null(TEXT),
        "state": or_null(TEXT),
    }
)
_USAGE = Shape(
    {
        **dict.fromkeys(("tenant_id", "start", "stop"), TEXT),
        **dict.fromkeys(("total_hours", "total_memory_mb_usage", "total_local_gb_usage", "total_vcpus_usage"), NUMBER),
        "server_usages": optional(ListOf(_SERVER_USAGE)),
    }
)
_ONE = Shape({"tenant_usage": OneOf((_USAGE, Shape({}))), "tenant_usage_links": optional(LINKS)})


@dataclass(frozen=True, slots=True)
class RanInstance:
    """An instance that ran. Times in microseconds since the epoch; flavor: as embedded in the instance, or None."""

    uuid: str
    project_id: str
    display_name: str | None
    vm_state: str | None
    launched_at: int
    terminated_at: int | None
    flavor: Mapping[str, Any] | None

    @property
    def position(self) -> tuple[str, str]:
        """The position in the order of a list over all cells."""
        return self.project_id, self.uuid


@dataclass(frozen=True, slots=True)
class UsageQuery:
    """The instances that ran between `start` and `stop`, of one project or of all, after a position."""

    start: int
    stop: int
    limit: int
    project_id: str | None = None
    after: tuple[str, str] | None = None

    @property
    def page(self) -> PageRequest:
        started, ended = from_microseconds(self.stop), from_microseconds(self.start)
        ran = all_of(Lt("launched_at", started), any_of(IsNull("terminated_at"), Gt("terminated_at", ended)))
        of = IsNotNull("project_id") if self.project_id is None else Eq("project_id", self.project_id)
        return PageRequest(all_of(of, ran), _BY_PROJECT, self.limit, self.after, _FIELDS)


def instances_that_ran(adapter: NativeAdapter, query: UsageQuery) -> Sequence[RanInstance]:
    """Read at most `query.limit` instances by position. Raises CellUnreachableError, also for a damaged row."""
    rows = adapter.read_page(query.page)
    try:
        return [RanInstance(**{name: row.record[name] for name in _FIELDS}) for row in rows]
    except UnreadableRowError as error:
        raise CellUnreachableError(adapter.cell.name, f"one of its rows is damaged: {error.reason}") from error


@dataclass(slots=True)
class _Missing:
    """Records whether a cell, or announced instances of a cell, were missing from a list."""

    is_complete: bool = True

    @property
    def headers(self) -> Mapping[str, str]:
        return {"Fleetlight-Complete": "true" if self.is_complete else "false"}


class TenantUsageHandlers:
    def __init__(self, access: FleetAccess, clock: Clock) -> None:
        self._access = access
        self._clock = clock

    def routes(self) -> list[ApiRoute]:
        path = "/os-simple-tenant-usage"
        many, one = list_parameters(_PARAMETERS | {"detailed": 1}), list_parameters(_PARAMETERS)
        return [
            ApiRoute(
                "GET",
                path,
                self.index,
                query=many,
                errors=(400, 403),
                answer=page("tenant_usages", _USAGE, "tenant_usages_links"),
                gives=(COMPLETE,),
            ),
            ApiRoute(
                "GET", path + "/{tenant_id}", self.show, query=one, errors=(400, 403), answer=_ONE, gives=(COMPLETE,)
            ),
        ]

    async def index(self, request: ApiRequest) -> Response:
        request.authorize("os_compute_api:os-simple-tenant-usage:list")
        is_detailed = request.query.last("detailed") == "1"
        return await self._answer(request, None, "tenant_usages", is_detailed=is_detailed)

    async def show(self, request: ApiRequest) -> Response:
        request.authorize("os_compute_api:os-simple-tenant-usage:show")
        tenant_id = request.http.path_params["tenant_id"]
        if tenant_id != request.caller.project_id:
            request.authorize("os_compute_api:os-simple-tenant-usage:list")
        return await self._answer(request, tenant_id, "tenant_usage", is_detailed=True)

    async def _answer(self, request: ApiRequest, tenant_id: str | None, key: str, *, is_detailed: bool) -> Response:
        now = self._clock()
        start, stop = _window(request, now)
        paging = paging_of(request, self._access.max_limit, since=_PAGES_SINCE)
        after = await self._position(paging.marker, tenant_id)
        query = UsageQuery(start, stop, paging.limit, tenant_id, after)
        usages: dict[str, dict[str, Any]] = {}
        missing = _Missing()
        markers: list[str] = []
        async for ran in self._ran(query, missing, is_whole=not paging.has_next):
            markers.append(ran.uuid)
            _add(usages, ran, query, now, is_detailed=is_detailed)
        items = list(usages.values())
        found = items if tenant_id is None else next(iter(items), {})
        path = "os-simple-tenant-usage" + ("" if tenant_id is None else f"/{tenant_id}")
        link = next_link(request, f"{key}_links", path, paging, markers)
        return json_answer({key: found, **link}, headers=missing.headers)

    async def _position(self, marker: str | None, tenant_id: str | None) -> tuple[str, str] | None:
        if marker is None:
            return None
        mapping = await self._access.mapping_of(marker)
        if mapping is None or mapping.project_id is None or tenant_id not in {None, mapping.project_id}:
            raise MarkerNotFoundError(marker)
        return mapping.project_id, mapping.instance_uuid

    async def _ran(self, query: UsageQuery, missing: _Missing, *, is_whole: bool) -> AsyncIterator[RanInstance]:
        """Read one page; if `is_whole`, all pages."""
        while query.limit:
            page = await self._page(query, missing)
            for ran in page:
                yield ran
            if not is_whole or len(page) < query.limit:
                return
            query = replace(query, after=page[-1].position)

    async def _page(self, query: UsageQuery, missing: _Missing) -> Sequence[RanInstance]:
        def read(cell: Cell) -> Sequence[RanInstance]:
            return instances_that_ran(self._access.native.adapter(cell), query)

        of_cells = await self._access.ask_cells(read)
        announced = self._access.fleet.journals.announced
        uuids = [cell.uuid for cell, _ in of_cells.answers]
        has_announced = await self._access.ask(lambda: announced.cells_with_some(uuids))
        missing.is_complete = missing.is_complete and of_cells.is_complete and not has_announced
        streams: Iterable[Sequence[RanInstance]] = (rows for _, rows in of_cells.answers)
        return list(islice(merge(*streams, key=lambda ran: ran.position), query.limit))


def _window(request: ApiRequest, now: int) -> tuple[int, int]:
    """Return begin and end of the period, in microseconds since the epoch; almost empty without a begin."""
    stop = min(_time(request, "end", now), now)
    start = _time(request, "start", stop - 1)
    if start >= stop:
        raise BadRequestError("Invalid start time. The start time cannot occur after the end time.")
    return start, stop


def _time(request: ApiRequest, name: str, default: int) -> int:
    text = request.query.last(name)
    if not text:
        return default
    for form in _FORMATS:
        try:
            return to_microseconds(datetime.strptime(text, form).replace(tzinfo=UTC))
        except ValueError:
            continue
    raise BadRequestError(f"Datetime is in invalid format: {text}")


def _add(
    usages: dict[str, dict[str, Any]], ran: RanInstance, query: UsageQuery, now: int, *, is_detailed: bool
) -> None:
    """Add an instance to the usage of its project."""
    usage = usages.get(ran.project_id)
    if usage is None:
        usage = usages[ran.project_id] = {
            "tenant_id": ran.project_id,
            "start": without_zone(query.start),
            "stop": without_zone(query.stop),
            "total_hours": 0.0,
            "total_memory_mb_usage": 0.0,
            "total_local_gb_usage": 0.0,
            "total_vcpus_usage": 0.0,
        }
        if is_detailed:
            usage["server_usages"] = []
    item = _item(ran, query, now)
    usage["total_hours"] += item["hours"]
    for size in ("memory_mb", "local_gb", "vcpus"):
        usage[f"total_{size}_usage"] += item["hours"] * item[size]
    if is_detailed:
        usage["server_usages"].append(item)


def _item(ran: RanInstance, query: UsageQuery, now: int) -> dict[str, Any]:
    ended_at = query.stop if ran.terminated_at is None else min(ran.terminated_at, query.stop)
    flavor = ran.flavor or {}
    return {
        "instance_id": ran.uuid,
        "name": ran.display_name or "",
        "tenant_id": ran.project_id,
        "flavor": flavor.get("name", ""),
        "memory_mb": flavor.get("memory_mb", 0),
        "local_gb": flavor.get("root_gb", 0) + flavor.get("ephemeral_gb", 0),
        "vcpus": flavor.get("vcpus", 0),
        "hours": (ended_at - max(ran.launched_at, query.start)) / _HOUR_US,
        "started_at": without_zone(ran.launched_at),
        "ended_at": None if ran.terminated_at is None else without_zone(ran.terminated_at),
        "state": ran.vm_state if ran.terminated_at is None else "terminated",
        "uptime": ((now if ran.terminated_at is None else ran.terminated_at) - ran.launched_at)
        // MICROSECONDS_PER_SECOND,
    }
