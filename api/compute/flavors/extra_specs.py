"""Extra specs of flavors: `/flavors/{id}/os-extra_specs` (contracts/nova-rest, 4.1)."""

import re
from functools import partial

from starlette.responses import Response

from api.compute.protocol.answers import empty_answer, json_answer
from api.compute.protocol.body_types import Metadata, OneItem
from api.compute.protocol.endpoint import ComputeRequest
from api.compute.protocol.fleet_access import FleetAccess
from api.compute.protocol.request_body import Body, RequestModel, RootRequestModel
from api.compute.protocol.routes import Route
from api.compute.protocol.shapes import TEXT, MapOf, Shape
from api.errors import BadRequestError, NotFoundError
from cells.fleet.flavors import Flavor

_CHECKED_SINCE = 86
# Values of well-known keys; whatever is not here is taken as it is.
_KNOWN = {
    "hw:cpu_policy": re.compile(r"dedicated|shared|mixed"),
    "hw:cpu_thread_policy": re.compile(r"prefer|isolate|require"),
    "hw:emulator_threads_policy": re.compile(r"isolate|share"),
    "hw:mem_page_size": re.compile(r"large|small|any|[0-9]+([kKMGT]i?(b|B)?)?"),
    "hw:numa_nodes": re.compile(r"[1-9][0-9]*"),
    "hw:cpu_sockets": re.compile(r"[1-9][0-9]*"),
    "hw:cpu_cores": re.compile(r"[1-9][0-9]*"),
    "hw:cpu_threads": re.compile(r"[1-9][0-9]*"),
    "hw:serial_port_count": re.compile(r"[0-9]+"),
    "hw:watchdog_action": re.compile(r"none|pause|poweroff|reset|disabled"),
    "hw_rng:allowed": re.compile(r"(?i:true|false|yes|no|on|off|1|0)"),
    "quota:cpu_shares": re.compile(r"[0-9]+"),
    "quota:cpu_quota": re.compile(r"[0-9]+"),
    "quota:cpu_period": re.compile(r"[0-9]+"),
}


class _ExtraSpecs(RequestModel):
    extra_specs: Metadata


class _OneExtraSpec(RootRequestModel[OneItem]):
    """The value of one key, by the key."""


_CREATE = Body({1: _ExtraSpecs})
_UPDATE = Body({1: _OneExtraSpec})
_ALL = Shape({"extra_specs": MapOf(TEXT)})


class ExtraSpecHandlers:
    def __init__(self, access: FleetAccess) -> None:
        self._access = access
        self._flavors = access.fleet.flavors

    def routes(self) -> list[Route]:
        all_of_them = "/flavors/{flavor_id}/os-extra_specs"
        one = all_of_them + "/{key}"
        return [
            Route("GET", all_of_them, self.index, errors=(403, 404), answer=_ALL),
            Route("POST", all_of_them, self.create, body=_CREATE, errors=(403, 404), answer=_ALL),
            Route("GET", one, self.show, errors=(403, 404), answer=MapOf(TEXT)),
            Route("PUT", one, self.update, body=_UPDATE, errors=(403, 404), answer=MapOf(TEXT)),
            Route("DELETE", one, self.delete, errors=(403, 404)),
        ]

    async def index(self, request: ComputeRequest) -> Response:
        request.authorize("os_compute_api:os-flavor-extra-specs:index")
        return json_answer({"extra_specs": (await self._flavor(request)).extra_specs})

    async def show(self, request: ComputeRequest) -> Response:
        request.authorize("os_compute_api:os-flavor-extra-specs:show")
        extra_specs = (await self._flavor(request)).extra_specs
        key = request.http.path_params["key"]
        if key not in extra_specs:
            raise _unknown_key(request)
        return json_answer({key: extra_specs[key]})

    async def create(self, request: ComputeRequest) -> Response:
        given = (await _CREATE.read(request)).extra_specs
        request.authorize("os_compute_api:os-flavor-extra-specs:create")
        await self._merge(request, given)
        return json_answer({"extra_specs": given})

    async def update(self, request: ComputeRequest) -> Response:
        given = (await _UPDATE.read(request)).root
        request.authorize("os_compute_api:os-flavor-extra-specs:update")
        if request.http.path_params["key"] not in given:
            raise BadRequestError("Request body and URI mismatch")
        await self._merge(request, given)
        return json_answer(given)

    async def delete(self, request: ComputeRequest) -> Response:
        request.authorize("os_compute_api:os-flavor-extra-specs:delete")
        flavor_id, key = request.http.path_params["flavor_id"], request.http.path_params["key"]

        def without_key(known: dict[str, str]) -> dict[str, str]:
            if key not in known:
                raise _unknown_key(request)
            return {name: value for name, value in known.items() if name != key}

        await self._access.ask(partial(self._flavors.change_extra_specs, flavor_id, without_key))
        return empty_answer(200)

    async def _merge(self, request: ComputeRequest, given: dict[str, str]) -> None:
        if request.minor >= _CHECKED_SINCE:
            _check(given)
        flavor_id = request.http.path_params["flavor_id"]
        await self._access.ask(partial(self._flavors.change_extra_specs, flavor_id, lambda known: known | given))

    async def _flavor(self, request: ComputeRequest) -> Flavor:
        caller, flavor_id = request.caller, request.http.path_params["flavor_id"]
        return await self._access.ask(
            partial(self._flavors.find, flavor_id, project_id=caller.project_id, is_admin=caller.is_admin)
        )


def _check(extra_specs: dict[str, str]) -> None:
    for key, value in extra_specs.items():
        if key in _KNOWN and not _KNOWN[key].fullmatch(value):
            raise BadRequestError(f"Validation failed; extra spec '{key}' cannot have the value '{value}'.")


def _unknown_key(request: ComputeRequest) -> NotFoundError:
    flavor_id, key = request.http.path_params["flavor_id"], request.http.path_params["key"]
    return NotFoundError(f"Flavor {flavor_id} has no extra specs with key {key}.")
