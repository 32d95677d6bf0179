"""`/servers/{id}/tags`, from 2.26 on (contracts/nova-rest, 3.2)."""

from collections.abc import Callable, Mapping
from urllib.parse import quote

from starlette.responses import Response

from fleetlight.api.bodies.body_types import Tags
from fleetlight.api.bodies.request_body import Body, read_bytes
from fleetlight.api.compute.protocol.route_table import ApiRoute
from fleetlight.api.http.answers import empty_answer, json_answer
from fleetlight.api.http.errors import BadRequestError, NotFoundError
from fleetlight.api.http.shapes import TEXT, page
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.api.shared.headers import TOKEN
from fleetlight.manager.faces.servers.details import change_record, read_record
from fleetlight.resources.fields import Record

_SINCE = 26
_MAX_TAGS = 50
_MAX_LENGTH = 60


_TAGS = Body[list[str]](Tags, "tags")


class ServerTagHandlers:
    """The handlers. They change tags of locked servers, too."""

    def __init__(self, access: FleetAccess) -> None:
        self._access = access

    def routes(self) -> list[ApiRoute]:
        many = "/servers/{server_id}/tags"
        one = many + "/{tag}"
        reading, changing = (403, 404, 501), (403, 404, 409, 501)
        return [
            ApiRoute("GET", many, self.index, since=_SINCE, errors=reading, answer=page("tags", TEXT)),
            ApiRoute(
                "PUT",
                many,
                self.replace,
                since=_SINCE,
                body=_TAGS,
                errors=changing,
                answer=page("tags", TEXT),
                gives=(TOKEN,),
            ),
            ApiRoute("DELETE", many, self.delete_all, since=_SINCE, success=(204,), errors=changing, gives=(TOKEN,)),
            ApiRoute("GET", one, self.show, since=_SINCE, success=(204,), errors=reading),
            ApiRoute("PUT", one, self.add, since=_SINCE, success=(201, 204), errors=changing, gives=(TOKEN,)),
            ApiRoute("DELETE", one, self.delete, since=_SINCE, success=(204,), errors=changing, gives=(TOKEN,)),
        ]

    async def index(self, request: ApiRequest) -> Response:
        return json_answer({"tags": await read_record(self._access, request, "os-server-tags:index", _tags)})

    async def show(self, request: ApiRequest) -> Response:
        if request.http.path_params["tag"] not in await read_record(
            self._access, request, "os-server-tags:show", _tags
        ):
            raise _no_tag(request)
        return empty_answer(204)

    async def replace(self, request: ApiRequest) -> Response:
        wanted = await _TAGS.read(request)
        record = await self._change(request, "update_all", "update tags", lambda _tags: wanted, announces_always=True)
        return json_answer({"tags": record["tags"]})

    async def add(self, request: ApiRequest) -> Response:
        await _refuse_body(request)
        tag: str = request.http.path_params["tag"]
        if len(tag) > _MAX_LENGTH or "," in tag:
            raise BadRequestError(f"Tag '{tag}' is invalid: it must have 1 to {_MAX_LENGTH} characters, and no comma.")
        was_there = False

        def with_tag(tags: list[str]) -> list[str]:
            nonlocal was_there
            was_there = tag in tags
            if not was_there and len(tags) >= _MAX_TAGS:
                raise BadRequestError(f"The number of tags exceeded the per-server limit {_MAX_TAGS}")
            return tags if was_there else [*tags, tag]

        await self._change(request, "update", "update tag", with_tag)
        if was_there:
            return empty_answer(204)
        server_id = request.http.path_params["server_id"]
        location = f"{request.links.versioned}/servers/{server_id}/tags/{quote(tag, safe='')}"
        return empty_answer(201, {"Location": location})

    async def delete(self, request: ApiRequest) -> Response:
        tag = request.http.path_params["tag"]

        def without_tag(tags: list[str]) -> list[str]:
            if tag not in tags:
                raise _no_tag(request)
            return [known for known in tags if known != tag]

        await self._change(request, "delete", "delete tag", without_tag)
        return empty_answer(204)

    async def delete_all(self, request: ApiRequest) -> Response:
        await self._change(request, "delete_all", "delete tags", lambda _tags: [], announces_always=True)
        return empty_answer(204)

    async def _change(
        self,
        request: ApiRequest,
        action: str,
        word: str,
        change: Callable[[list[str]], list[str]],
        *,
        announces_always: bool = False,
    ) -> Record:
        def decide(record: Record) -> Mapping[str, list[str]]:
            return {"tags": sorted(change(_tags(record)))}

        rule = f"os-server-tags:{action}"
        return await change_record(
            self._access, request, rule, decide, action=word, respects_lock=False, announces_always=announces_always
        )


def _tags(record: Record) -> list[str]:
    return list(record["tags"])


async def _refuse_body(request: ApiRequest) -> None:
    """Raise BadRequestError for a body that is neither empty nor null."""
    if (await read_bytes(request.http)).strip() not in {b"", b"null"}:
        raise BadRequestError("Malformed request body: it must be empty")


def _no_tag(request: ApiRequest) -> NotFoundError:
    server_id, tag = request.http.path_params["server_id"], request.http.path_params["tag"]
    return NotFoundError(f"Server {server_id} has no tag '{tag}'")
