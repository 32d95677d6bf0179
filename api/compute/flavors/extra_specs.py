"""Extra specs of flavors: `/flavors/{id}/os-extra_specs` (contracts/nova-rest, 4.1)."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated

from pydantic import BeforeValidator, Field
from starlette.responses import Response

from fleetlight.api.bodies.body_types import MetadataKey, one_item
from fleetlight.api.bodies.request_body import Body, RootRequestModel
from fleetlight.api.compute.flavors.known_extra_specs import check_extra_spec
from fleetlight.api.compute.protocol.route_table import ApiRoute
from fleetlight.api.http.answers import empty_answer, json_answer
from fleetlight.api.http.errors import BadRequestError, NotFoundError
from fleetlight.api.http.shapes import NUMBER, TEXT, MapOf, OneOf, Shape
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.cells.fleet.compute.flavors import Flavor

_CHECKED_SINCE = 86
# Numbers are stored as text, but returned as numbers to the caller that sets them.
_Value = Annotated[str, Field(max_length=255)] | int | float
_Given = dict[MetadataKey, _Value]


class _OneExtraSpec(RootRequestModel[Annotated[_Given, BeforeValidator(one_item)]]):
    """An object with one key, and its value."""


_CREATE = Body(_Given, "extra_specs")
_UPDATE = Body(_OneExtraSpec)
_ALL = Shape({"extra_specs": MapOf(TEXT)})
_ECHOED = MapOf(OneOf((TEXT, NUMBER)))


class ExtraSpecHandlers:
    def __init__(self, access: FleetAccess) -> None:
        self._access = access
        self._flavors = access.fleet.flavors

    def routes(self) -> list[ApiRoute]:
        all_of_them = "/flavors/{flavor_id}/os-extra_specs"
        one = all_of_them + "/{key}"
        return [
            ApiRoute("GET", all_of_them, self.index, errors=(403, 404), answer=_ALL),
            ApiRoute(
                "POST",
                all_of_them,
                self.create,
                body=_CREATE,
                errors=(403, 404),
                answer=Shape({"extra_specs": _ECHOED}),
            ),
            ApiRoute("GET", one, self.show, errors=(403, 404), answer=MapOf(TEXT)),
            ApiRoute("PUT", one, self.update, body=_UPDATE, errors=(403, 404), answer=_ECHOED),
            ApiRoute("DELETE", one, self.delete, errors=(403, 404)),
        ]

    async def index(self, request: ApiRequest) -> Response:
        request.authorize("os_compute_api:os-flavor-extra-specs:index")
        return json_answer({"extra_specs": (await self._flavor(request)).extra_specs})

    async def show(self, request: ApiRequest) -> Response:
        request.authorize("os_compute_api:os-flavor-extra-specs:show")
        extra_specs = (await self._flavor(request)).extra_specs
        key = request.http.path_params["key"]
        if key not in extra_specs:
            raise _unknown_key(request)
        return json_answer({key: extra_specs[key]})

    async def create(self, request: ApiRequest) -> Response:
        given = await _CREATE.read(request)
        request.authorize("os_compute_api:os-flavor-extra-specs:create")
        await self._merge(request, given)
        return json_answer({"extra_specs": given})

    async def update(self, request: ApiRequest) -> Response:
        given = (await _UPDATE.read(request)).root
        request.authorize("os_compute_api:os-flavor-extra-specs:update")
        if request.http.path_params["key"] not in given:
            raise BadRequestError("Request body and URI mismatch")
        await self._merge(request, given)
        return json_answer(given)

    async def delete(self, request: ApiRequest) -> Response:
        request.authorize("os_compute_api:os-flavor-extra-specs:delete")
        flavor_id, key = request.http.path_params["flavor_id"], request.http.path_params["key"]

        def without_key(known: dict[str, str]) -> dict[str, str]:
            if key not in known:
                raise _unknown_key(request)
            return {name: value for name, value in known.items() if name != key}

        await self._access.ask(partial(self._flavors.change_extra_specs, flavor_id, without_key))
        return empty_answer(200)

    async def _merge(self, request: ApiRequest, given: Mapping[str, str | float]) -> None:
        texts = {name: str(value) for name, value in given.items()}
        if request.minor >= _CHECKED_SINCE:
            for name, value in texts.items():
                check_extra_spec(name, value)
        flavor_id = request.http.path_params["flavor_id"]
        await self._access.ask(partial(self._flavors.change_extra_specs, flavor_id, lambda known: known | texts))

    async def _flavor(self, request: ApiRequest) -> Flavor:
        caller, flavor_id = request.caller, request.http.path_params["flavor_id"]
        return await self._access.ask(
            partial(self._flavors.find, flavor_id, project_id=caller.project_id, is_admin=caller.is_admin)
        )


def _unknown_key(request: ApiRequest) -> NotFoundError:
    flavor_id, key = request.http.path_params["flavor_id"], request.http.path_params["key"]
    return NotFoundError(f"Flavor {flavor_id} has no extra specs with key {key}.")
