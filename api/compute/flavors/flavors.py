"""Flavors: `/flavors` (contracts/nova-rest, 4.1)."""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError
from starlette.responses import Response

from fleetlight.api.bodies.body_types import Count, Name, PositiveCount, is_printable
from fleetlight.api.bodies.request_body import Body, BodyBool, RequestModel
from fleetlight.api.bodies.versioned_models import Since, Until
from fleetlight.api.compute.protocol.paging import PAGING, next_link, paging_of, whole_number
from fleetlight.api.compute.protocol.parameters import strict_bool
from fleetlight.api.compute.protocol.route_table import ApiRoute
from fleetlight.api.http.answers import empty_answer, json_answer
from fleetlight.api.http.errors import ParameterError
from fleetlight.api.http.query_string import list_parameters
from fleetlight.api.http.shapes import (
    BOOL,
    INTEGER,
    LINKS,
    NUMBER,
    TEXT,
    Key,
    MapOf,
    OneOf,
    Shape,
    TypeSince,
    or_null,
    page,
)
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.api.shared.policy import RULES
from fleetlight.cells.errors import ResourceNotFoundError
from fleetlight.cells.fleet.compute.flavors import BY_AGE, SORT_KEYS, Flavor, FlavorQuery
from fleetlight.listing.errors import MarkerNotFoundError
from fleetlight.query.errors import RegularExpressionError
from fleetlight.query.regex import compile_pattern

_DESCRIPTION_SINCE = 55
_EXTRA_SPECS_SINCE = 61
_ZERO_SWAP_SINCE = 75
_NAME_FILTER_SINCE = 102
_WITHOUT_FACTOR_SINCE = 102
_LARGEST_FACTOR = 3.40282e38
_FLAVOR_ID = re.compile(r"^[a-zA-Z0-9._-]([a-zA-Z0-9. _-]*[a-zA-Z0-9._-])?$")
_FACTOR = re.compile(r"^[0-9]+(\.[0-9]+)?$")
_PARAMETERS = list_parameters(
    PAGING | {"sort_key": 1, "sort_dir": 1, "minRam": 1, "minDisk": 1, "is_public": 1, "name": _NAME_FILTER_SINCE}
)
# Nova's sort keys that have another name here, and those that are the same for all flavors here.
_SORT_KEYS = {name: name for name in SORT_KEYS} | dict.fromkeys(
    ("id", "created_at", "updated_at", "vcpu_weight"), BY_AGE
)


def _to_id(value: object) -> object:
    """Convert a number to text as written, for the pattern: 1.0 is another flavor than 1."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if isinstance(value, str) and not _FLAVOR_ID.fullmatch(value):
        raise PydanticCustomError("no_flavor_id", "has other characters than letters, digits, '. _-' or blanks inside")
    return value


def _to_factor(value: object) -> object:
    if isinstance(value, str) and not _FACTOR.fullmatch(value):
        raise PydanticCustomError("not_a_number", "is not a number")
    try:
        return float(value) if isinstance(value, (int, float, str)) and not isinstance(value, bool) else value
    except OverflowError:
        raise PydanticCustomError("not_a_number", "is too large a number") from None


_FlavorId = Annotated[
    str,
    BeforeValidator(
        _to_id, json_schema_input_type=Annotated[str, Field(max_length=255, pattern=_FLAVOR_ID.pattern)] | float
    ),
    Field(max_length=255),
]
_Factor = Annotated[
    float,
    BeforeValidator(_to_factor, json_schema_input_type=float | Annotated[str, Field(pattern=_FACTOR.pattern)]),
    Field(gt=0, le=_LARGEST_FACTOR),
]
_SHORT = Shape({"id": TEXT, "name": TEXT, "links": LINKS, "description": Key(or_null(TEXT), since=_DESCRIPTION_SINCE)})
_FULL = _SHORT.with_keys(
    {
        "ram": INTEGER,
        "disk": INTEGER,
        "vcpus": INTEGER,
        "swap": TypeSince({1: OneOf((INTEGER, TEXT)), _ZERO_SWAP_SINCE: INTEGER}),
        "OS-FLV-EXT-DATA:ephemeral": INTEGER,
        "os-flavor-access:is_public": BOOL,
        "rxtx_factor": Key(NUMBER, until=_WITHOUT_FACTOR_SINCE - 1),
        "OS-FLV-DISABLED:disabled": Key(BOOL, until=_WITHOUT_FACTOR_SINCE - 1),
        "extra_specs": Key(MapOf(TEXT), since=_EXTRA_SPECS_SINCE, is_optional=True),
    }
)
_ONE = Shape({"flavor": _FULL})
_LongText = Annotated[str, Field(max_length=65535), AfterValidator(is_printable)] | None


class _NewFlavor(RequestModel):
    name: Name
    ram: PositiveCount
    vcpus: PositiveCount
    disk: Count
    id: _FlavorId | None = None
    ephemeral: Count = Field(default=0, alias="OS-FLV-EXT-DATA:ephemeral")
    swap: Count = 0
    is_public: BodyBool = Field(default=True, alias="os-flavor-access:is_public")
    rxtx_factor: Annotated[_Factor, Until(_WITHOUT_FACTOR_SINCE - 1)] = 1.0
    description: Annotated[_LongText, Since(_DESCRIPTION_SINCE)] = None

    def flavor(self) -> Flavor:
        return Flavor(
            name=self.name,
            memory_mb=self.ram,
            vcpus=self.vcpus,
            root_gb=self.disk,
            flavorid=self.id or "",
            ephemeral_gb=self.ephemeral,
            swap=self.swap,
            is_public=self.is_public,
            rxtx_factor=self.rxtx_factor,
            description=self.description,
        )


class _FlavorChange(RequestModel):
    description: _LongText


_CREATE = Body(_NewFlavor, "flavor")
_UPDATE = Body(_FlavorChange, "flavor")


class FlavorHandlers:
    def __init__(self, access: FleetAccess) -> None:
        self._access = access
        self._flavors = access.fleet.flavors

    def routes(self) -> list[ApiRoute]:
        one = "/flavors/{flavor_id}"
        return [
            ApiRoute(
                "GET",
                "/flavors",
                self.index,
                query=_PARAMETERS,
                errors=(400,),
                answer=page("flavors", _SHORT, "flavors_links"),
            ),
            ApiRoute(
                "GET",
                "/flavors/detail",
                self.detail,
                query=_PARAMETERS,
                errors=(400,),
                answer=page("flavors", _FULL, "flavors_links"),
            ),
            ApiRoute("GET", one, self.show, errors=(404,), answer=_ONE),
            ApiRoute("POST", "/flavors", self.create, body=_CREATE, errors=(403, 409), answer=_ONE),
            ApiRoute("PUT", one, self.update, since=_DESCRIPTION_SINCE, body=_UPDATE, errors=(403, 404), answer=_ONE),
            ApiRoute("DELETE", one, self.delete, success=(202,), errors=(403, 404)),
        ]

    async def index(self, request: ApiRequest) -> Response:
        return await self._list(request, "flavors", _short_item)

    async def detail(self, request: ApiRequest) -> Response:
        return await self._list(request, "flavors/detail", flavor_item)

    async def show(self, request: ApiRequest) -> Response:
        caller = request.caller
        find = partial(
            self._flavors.find,
            request.http.path_params["flavor_id"],
            project_id=caller.project_id,
            is_admin=caller.is_admin,
        )
        return json_answer({"flavor": flavor_item(request, await self._access.ask(find))})

    async def create(self, request: ApiRequest) -> Response:
        wanted = await _CREATE.read(request)
        request.authorize("os_compute_api:os-flavor-manage:create")
        flavor = await self._access.ask(partial(self._flavors.create, wanted.flavor()))
        return json_answer({"flavor": flavor_item(request, flavor)})

    async def update(self, request: ApiRequest) -> Response:
        wanted = await _UPDATE.read(request)
        request.authorize("os_compute_api:os-flavor-manage:update")
        flavor_id = request.http.path_params["flavor_id"]
        await self._access.ask(partial(self._flavors.describe, flavor_id, wanted.description))
        flavor = await self._access.ask(partial(self._flavors.find, flavor_id, is_admin=True))
        return json_answer({"flavor": flavor_item(request, flavor)})

    async def delete(self, request: ApiRequest) -> Response:
        request.authorize("os_compute_api:os-flavor-manage:delete")
        await self._access.ask(partial(self._flavors.delete, request.http.path_params["flavor_id"]))
        return empty_answer(202)

    async def _list(
        self, request: ApiRequest, path: str, item: Callable[[ApiRequest, Flavor], dict[str, Any]]
    ) -> Response:
        paging = paging_of(request, self._access.max_limit)
        query = replace(_query(request), limit=paging.limit, marker=paging.marker)
        try:
            flavors = await self._access.ask(partial(self._flavors.page, query))
        except ResourceNotFoundError as error:
            raise MarkerNotFoundError(error.name) from error
        link = next_link(request, "flavors_links", path, paging, [flavor.flavorid for flavor in flavors])
        return json_answer({"flavors": [item(request, flavor) for flavor in flavors], **link})


def _query(request: ApiRequest) -> FlavorQuery:
    """Parse the query string, restricted to what this caller may see."""
    query, is_admin = request.query, request.caller.is_admin
    sort_key, sort_dir = query.last("sort_key"), query.last("sort_dir")
    sort_key, sort_dir = "flavorid" if sort_key is None else sort_key, "asc" if sort_dir is None else sort_dir
    if sort_key not in _SORT_KEYS:
        raise ParameterError("sort_key", sort_key, f"Must be one of: {', '.join(_SORT_KEYS)}.")
    if sort_dir not in {"asc", "desc"}:
        raise ParameterError("sort_dir", sort_dir, "Must be asc or desc.")
    return FlavorQuery(
        project_id=request.caller.project_id,
        is_public=_is_public(query.last("is_public")) if is_admin else True,
        includes_disabled=is_admin,
        min_memory_mb=whole_number(request, "minRam", 0),
        min_root_gb=whole_number(request, "minDisk", 0),
        sort_key=_SORT_KEYS[sort_key],
        is_descending=sort_dir == "desc",
        keep=_name_filter(query.last("name")) if request.minor >= _NAME_FILTER_SINCE else None,
    )


def _is_public(text: str | None) -> bool | None:
    """Parse `is_public`: true by default; None, for flavors of both kinds, for "none"."""
    if text is None:
        return True
    return None if text.strip().lower() == "none" else strict_bool("is_public", text)


def _name_filter(pattern: str | None) -> Callable[[Flavor], bool] | None:
    if pattern is None:
        return None
    try:
        compiled = compile_pattern(pattern)
    except RegularExpressionError as error:
        raise ParameterError("name", pattern, f"Must be a regular expression: {error.reason}.") from error
    return lambda flavor: compiled.search(flavor.name) is not None


def _short_item(request: ApiRequest, flavor: Flavor) -> dict[str, Any]:
    return _SHORT.of(request.minor, _short_values(request, flavor))


def _short_values(request: ApiRequest, flavor: Flavor) -> dict[str, Any]:
    return {
        "id": flavor.flavorid,
        "name": flavor.name,
        "links": request.links.to("flavors", flavor.flavorid),
        "description": flavor.description,
    }


def flavor_item(request: ApiRequest, flavor: Flavor) -> dict[str, Any]:
    """Show a flavor with all keys of the request's microversion."""
    values = _short_values(request, flavor) | {
        "ram": flavor.memory_mb,
        "disk": flavor.root_gb,
        "vcpus": flavor.vcpus,
        "swap": flavor.swap if flavor.swap or request.minor >= _ZERO_SWAP_SINCE else "",
        "OS-FLV-EXT-DATA:ephemeral": flavor.ephemeral_gb,
        "os-flavor-access:is_public": flavor.is_public,
        "rxtx_factor": flavor.rxtx_factor,
        "OS-FLV-DISABLED:disabled": flavor.disabled,
    }
    if request.caller.has_role(RULES["os_compute_api:os-flavor-extra-specs:index"]):
        values["extra_specs"] = flavor.extra_specs
    return _FULL.of(request.minor, values)
