"""`/servers/{id}/metadata` (contracts/nova-rest, 3.1)."""

from collections.abc import Callable, Mapping
from functools import partial

from starlette.responses import Response

from fleetlight.api.bodies.body_types import Metadata, OneItem
from fleetlight.api.bodies.request_body import Body
from fleetlight.api.compute.protocol.route_table import ApiRoute
from fleetlight.api.http.answers import empty_answer, json_answer
from fleetlight.api.http.errors import BadRequestError, NotFoundError
from fleetlight.api.http.shapes import TEXT, MapOf, Shape
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.api.shared.headers import TOKEN
from fleetlight.cells.fleet.compute.quotas import check
from fleetlight.manager.faces.servers.details import change_record, read_record
from fleetlight.resources.fields import Record

_ALL = Body(Metadata, "metadata")
_ONE = Body[dict[str, str]](OneItem, "meta")
_SHOWN = Shape({"metadata": MapOf(TEXT)})
_SHOWN_ITEM = Shape({"meta": MapOf(TEXT)})

_Change = Callable[[dict[str, str]], dict[str, str]]


class ServerMetadataHandlers:
    def __init__(self, access: FleetAccess) -> None:
        self._access = access

    def routes(self) -> list[ApiRoute]:
        many = "/servers/{server_id}/metadata"
        one = many + "/{key}"
        refusals = (403, 404, 409, 501)
        return [
            ApiRoute("GET", many, self.index, errors=(403, 404, 501), answer=_SHOWN),
            ApiRoute("POST", many, self.merge, body=_ALL, errors=refusals, answer=_SHOWN, gives=(TOKEN,)),
            ApiRoute("PUT", many, self.replace, body=_ALL, errors=refusals, answer=_SHOWN, gives=(TOKEN,)),
            ApiRoute("GET", one, self.show, errors=(403, 404, 501), answer=_SHOWN_ITEM),
            ApiRoute("PUT", one, self.set_one, body=_ONE, errors=refusals, answer=_SHOWN_ITEM, gives=(TOKEN,)),
            ApiRoute("DELETE", one, self.delete, success=(204,), errors=refusals, gives=(TOKEN,)),
        ]

    async def index(self, request: ApiRequest) -> Response:
        return json_answer({"metadata": await read_record(self._access, request, "server-metadata:index", _metadata)})

    async def show(self, request: ApiRequest) -> Response:
        metadata = await read_record(self._access, request, "server-metadata:show", _metadata)
        key = request.http.path_params["key"]
        if key not in metadata:
            raise NotFoundError("Metadata item was not found")
        return json_answer({"meta": {key: metadata[key]}})

    async def merge(self, request: ApiRequest) -> Response:
        given = await _ALL.read(request)
        return await self._answer(request, "create", lambda known: known | given)

    async def replace(self, request: ApiRequest) -> Response:
        given = await _ALL.read(request)
        return await self._answer(request, "update_all", lambda _known: given)

    async def set_one(self, request: ApiRequest) -> Response:
        given = await _ONE.read(request)
        if request.http.path_params["key"] not in given:
            raise BadRequestError("Request body and URI mismatch")
        await self._change(request, "update", lambda known: known | given)
        return json_answer({"meta": given})

    async def delete(self, request: ApiRequest) -> Response:
        key = request.http.path_params["key"]

        def without_key(known: dict[str, str]) -> dict[str, str]:
            if key not in known:
                raise NotFoundError("Metadata item was not found")
            return {name: value for name, value in known.items() if name != key}

        await self._change(request, "delete", without_key, word="delete metadata")
        return empty_answer(204)

    async def _answer(self, request: ApiRequest, action: str, change: _Change) -> Response:
        return json_answer({"metadata": (await self._change(request, action, change))["metadata"]})

    async def _change(
        self, request: ApiRequest, action: str, change: _Change, *, word: str = "update metadata"
    ) -> Record:
        limits = await self._access.ask(partial(self._access.fleet.quotas.limits, request.caller.project_id or ""))

        def decide(record: Record) -> Mapping[str, dict[str, str]]:
            metadata = change(_metadata(record))
            check(limits, {}, {"metadata_items": len(metadata)})
            return {"metadata": metadata}

        rule = f"server-metadata:{action}"
        return await change_record(self._access, request, rule, decide, action=word, respects_lock=True)


def _metadata(record: Record) -> dict[str, str]:
    return dict(record["metadata"] or {})
