"""Aggregates of hosts: `/os-aggregates` (contracts/nova-rest, 4.7)."""

import re
from functools import partial
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator
from pydantic_core import PydanticCustomError
from starlette.responses import Response

from fleetlight.api.bodies.body_types import Fqdn, MetadataKey, Name, NameWithBlanks, UuidText
from fleetlight.api.bodies.request_body import ActionModel, Body, IfGiven, RequestModel
from fleetlight.api.compute.protocol.route_table import ApiRoute
from fleetlight.api.http.answers import empty_answer, json_answer
from fleetlight.api.http.errors import BadRequestError, ConflictError, NotFoundError, NotSupportedError
from fleetlight.api.http.shapes import BOOL, INTEGER, NOTHING, TEXT, Key, ListOf, MapOf, Shape, or_null, page
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.api.shared.times import without_zone
from fleetlight.cells.errors import AggregateInUseError, HostInUseError, HostNotFoundError, ZoneTakenError
from fleetlight.cells.fleet.compute.aggregates import ZONE_KEY, Aggregate
from fleetlight.manager.operations.host_zones import HostZones

_UUIDS_SINCE = 41
_IMAGES_SINCE = 81
_NUMBER = re.compile(r"[0-9]{1,18}")
_RULE = "os_compute_api:os-aggregates:"

_NEW = Shape(
    {
        "id": INTEGER,
        "uuid": Key(TEXT, since=_UUIDS_SINCE),
        "name": TEXT,
        "availability_zone": or_null(TEXT),
        "created_at": TEXT,
        "updated_at": or_null(TEXT),
        "deleted": BOOL,
        "deleted_at": NOTHING,
    }
)
_AGGREGATE = _NEW.with_keys({"hosts": ListOf(TEXT), "metadata": MapOf(TEXT)})
_ONE = Shape({"aggregate": _AGGREGATE})

_Zone = Annotated[Name, Field(pattern="^[^:]*$")]


class _NewAggregate(RequestModel):
    name: Name
    availability_zone: _Zone | None = None


class _Changes(RequestModel):
    name: NameWithBlanks = ""
    availability_zone: _Zone | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not self.model_fields_set:
            raise PydanticCustomError("no_change", "must have a name or an availability_zone")
        return self


class _Host(RequestModel):
    host: Fqdn


class _Metadata(RequestModel):
    metadata: dict[MetadataKey, Annotated[str, Field(max_length=255)] | None]


class _Action(ActionModel):
    add_host: IfGiven[_Host] = None
    remove_host: IfGiven[_Host] = None
    set_metadata: IfGiven[_Metadata] = None


class _Image(RequestModel):
    id: UuidText


def _are_different(images: list[_Image]) -> list[_Image]:
    if len({image.id for image in images}) != len(images):
        raise PydanticCustomError("repeated", "has an image twice")
    return images


_Images = Annotated[list[_Image], Field(min_length=1), AfterValidator(_are_different)]
_CREATE = Body(_NewAggregate, "aggregate")
_UPDATE = Body(_Changes, "aggregate")
_ACTION = Body(_Action)
_IMAGES = Body[list[_Image]](_Images, "cache")


class AggregateHandlers:
    def __init__(self, access: FleetAccess) -> None:
        self._access = access
        self._aggregates = access.fleet.aggregates
        self._zones = HostZones(access.fleet, access.native)

    def routes(self) -> list[ApiRoute]:
        many, one = "/os-aggregates", "/os-aggregates/{aggregate_id}"
        missing = (400, 403, 404)
        return [
            ApiRoute("GET", many, self.index, errors=(403,), answer=page("aggregates", _AGGREGATE)),
            ApiRoute("POST", many, self.create, body=_CREATE, errors=(403, 409), answer=Shape({"aggregate": _NEW})),
            ApiRoute("GET", one, self.show, errors=missing, answer=_ONE),
            ApiRoute("PUT", one, self.update, body=_UPDATE, errors=(*missing, 409), answer=_ONE),
            ApiRoute("DELETE", one, self.delete, errors=missing),
            ApiRoute("POST", one + "/action", self.act, body=_ACTION, errors=(*missing, 409), answer=_ONE),
            ApiRoute(
                "POST",
                one + "/images",
                self.cache_images,
                since=_IMAGES_SINCE,
                body=_IMAGES,
                success=(),
                errors=(*missing, 501),
            ),
        ]

    async def index(self, request: ApiRequest) -> Response:
        request.authorize(_RULE + "index")
        found = await self._access.ask(self._aggregates.all)
        return json_answer({"aggregates": [_item(request, aggregate) for aggregate in found]})

    async def show(self, request: ApiRequest) -> Response:
        request.authorize(_RULE + "show")
        return _answer(request, await self._access.ask(partial(self._aggregates.find, _number_of(request))))

    async def create(self, request: ApiRequest) -> Response:
        wanted = await _CREATE.read(request)
        request.authorize(_RULE + "create")
        metadata = {} if wanted.availability_zone is None else {ZONE_KEY: wanted.availability_zone}
        created = await self._access.ask(partial(self._aggregates.create, wanted.name, metadata))
        return json_answer({"aggregate": _NEW.of(request.minor, _values(created))})

    async def update(self, request: ApiRequest) -> Response:
        wanted = await _UPDATE.read(request)
        request.authorize(_RULE + "update")
        metadata = {ZONE_KEY: wanted.availability_zone} if ZONE_KEY in wanted.model_fields_set else None
        return await self._change(request, name=wanted.name or None, metadata=metadata)

    async def delete(self, request: ApiRequest) -> Response:
        request.authorize(_RULE + "delete")
        try:
            await self._access.ask(partial(self._aggregates.remove, _number_of(request)))
        except AggregateInUseError as error:
            raise BadRequestError(str(error)) from error
        return empty_answer(200)

    async def act(self, request: ApiRequest) -> Response:
        """Carry out an action. Raises BadRequestError, NotFoundError, ConflictError."""
        match await _ACTION.read(request):
            case _Action(add_host=_Host(host=host)):
                request.authorize(_RULE + "add_host")
                change = partial(self._zones.add_host, _number_of(request), host)
            case _Action(remove_host=_Host(host=host)):
                request.authorize(_RULE + "remove_host")
                change = partial(self._zones.remove_host, _number_of(request), host)
            case _Action(set_metadata=_Metadata(metadata=metadata)):
                request.authorize(_RULE + "set_metadata")
                if metadata.get(ZONE_KEY) == "":
                    raise BadRequestError("The name of an availability zone cannot be empty")
                return await self._change(request, metadata=metadata)
            case action:
                raise AssertionError(action)
        try:
            return _answer(request, await self._access.act_anywhere(change))
        except HostNotFoundError as error:
            raise NotFoundError(str(error)) from error
        except (HostInUseError, ZoneTakenError) as error:
            raise ConflictError(f"Cannot add or remove host {host}: {error}") from error

    async def cache_images(self, request: ApiRequest) -> Response:
        await _IMAGES.read(request)
        request.authorize("compute:aggregates:images")
        await self._access.ask(partial(self._aggregates.find, _number_of(request)))
        raise NotSupportedError("The hosts of this fleet keep no images.")

    async def _change(self, request: ApiRequest, **changes: Any) -> Response:
        change = partial(self._zones.change, _number_of(request), **changes)
        try:
            return _answer(request, await self._access.act_anywhere(change))
        except (HostInUseError, ZoneTakenError) as error:
            raise BadRequestError(f"Cannot change the zone of the aggregate: {error}") from error


def _number_of(request: ApiRequest) -> int:
    aggregate_id = request.http.path_params["aggregate_id"]
    if not _NUMBER.fullmatch(aggregate_id):
        raise BadRequestError(f"Invalid aggregate id {aggregate_id}: it must be a number")
    return int(aggregate_id)


def _answer(request: ApiRequest, aggregate: Aggregate) -> Response:
    return json_answer({"aggregate": _item(request, aggregate)})


def _item(request: ApiRequest, aggregate: Aggregate) -> dict[str, Any]:
    return _AGGREGATE.of(request.minor, _values(aggregate))


def _values(aggregate: Aggregate) -> dict[str, Any]:
    return {
        "id": aggregate.number,
        "uuid": aggregate.uuid,
        "name": aggregate.name,
        "availability_zone": aggregate.zone,
        "hosts": list(aggregate.hosts),
        "metadata": dict(aggregate.metadata),
        "created_at": without_zone(aggregate.created_at),
        "updated_at": None if aggregate.updated_at is None else without_zone(aggregate.updated_at),
        "deleted": False,
        "deleted_at": None,
    }
