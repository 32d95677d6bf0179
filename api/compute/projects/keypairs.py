"""Key pairs of users: `/os-keypairs` (contracts/nova-rest, 4.2)."""

from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.responses import Response

from fleetlight.api.bodies.request_body import Body, IfGiven, RequestModel
from fleetlight.api.bodies.versioned_models import Since
from fleetlight.api.compute.protocol.paging import PAGING, next_link, paging_of
from fleetlight.api.compute.protocol.route_table import ApiRoute
from fleetlight.api.http.answers import empty_answer, json_answer
from fleetlight.api.http.errors import ForbiddenError
from fleetlight.api.http.query_string import list_parameters
from fleetlight.api.http.shapes import BOOL, INTEGER, TEXT, Key, Shape, optional, or_null, page
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.api.shared.times import without_zone
from fleetlight.cells.errors import ResourceNotFoundError
from fleetlight.cells.fleet.compute.key_material import generate_key, read_key
from fleetlight.cells.fleet.compute.keypairs import Keypair, PublicKey
from fleetlight.cells.fleet.compute.quotas import check
from fleetlight.listing.errors import MarkerNotFoundError

_TYPES_SINCE = 2
_OTHER_USERS_SINCE = 10
_PAGES_SINCE = 35
_ONLY_IMPORT_SINCE = 92
_PARAMETERS = {"user_id": _OTHER_USERS_SINCE}
_OF_ONE = list_parameters(_PARAMETERS)
_OF_MANY = list_parameters(_PARAMETERS | dict.fromkeys(PAGING, _PAGES_SINCE))

_Name = Annotated[str, Field(pattern=r"^[a-zA-Z0-9\-_]([a-zA-Z0-9\-_ ]{0,253}[a-zA-Z0-9\-_])?$")]
_NewestName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9\-_@.]([a-zA-Z0-9\-_@. ]{0,253}[a-zA-Z0-9\-_@.])?$")]
_UserId = Annotated[str, Field(max_length=255)]
_BRIEF = Shape({"name": TEXT, "public_key": TEXT, "fingerprint": TEXT, "type": Key(TEXT, since=_TYPES_SINCE)})
_FULL = _BRIEF.with_keys(
    {
        "user_id": TEXT,
        "id": INTEGER,
        "created_at": TEXT,
        "updated_at": or_null(TEXT),
        "deleted": BOOL,
        "deleted_at": or_null(TEXT),
    }
)
_NEW = Shape({"keypair": _BRIEF.with_keys({"user_id": TEXT, "private_key": optional(TEXT)})})
_LIST = page("keypairs", Shape({"keypair": _BRIEF}), "keypairs_links")
_KeyType = Literal["ssh", "x509"]


class _NewKeypair(RequestModel):
    name: Annotated[str, Since(1, _Name), Since(_ONLY_IMPORT_SINCE, _NewestName)]
    public_key: Annotated[IfGiven[str], Since(1), Since(_ONLY_IMPORT_SINCE, str, is_required=True)] = None
    type: Annotated[_KeyType, Since(_TYPES_SINCE)] = "ssh"
    user_id: Annotated[IfGiven[_UserId], Since(_OTHER_USERS_SINCE)] = None


_CREATE = Body(_NewKeypair, "keypair")


class KeypairHandlers:
    def __init__(self, access: FleetAccess) -> None:
        self._access = access
        self._keypairs = access.fleet.keypairs

    def routes(self) -> list[ApiRoute]:
        many, one = "/os-keypairs", "/os-keypairs/{name}"
        return [
            ApiRoute("GET", many, self.index, query=_OF_MANY, errors=(400, 403), answer=_LIST),
            ApiRoute("GET", one, self.show, query=_OF_ONE, errors=(403, 404), answer=Shape({"keypair": _FULL})),
            ApiRoute("POST", many, self.create, until=1, body=_CREATE, errors=(403, 409), answer=_NEW),
            ApiRoute("POST", many, self.create, since=2, body=_CREATE, success=(201,), errors=(403, 409), answer=_NEW),
            ApiRoute("DELETE", one, self.delete, until=1, success=(202,), errors=(404,)),
            ApiRoute("DELETE", one, self.delete, since=2, query=_OF_ONE, success=(204,), errors=(403, 404)),
        ]

    async def index(self, request: ApiRequest) -> Response:
        user_id = _user(request, "index")
        paging = paging_of(request, self._access.max_limit, since=_PAGES_SINCE)
        page = partial(self._keypairs.page, user_id, marker=paging.marker, limit=paging.limit)
        try:
            keypairs = await self._access.ask(page)
        except ResourceNotFoundError as error:
            raise MarkerNotFoundError(str(paging.marker)) from error
        link = next_link(request, "keypairs_links", "os-keypairs", paging, [keypair.name for keypair in keypairs])
        return json_answer({"keypairs": [{"keypair": _brief(request, keypair)} for keypair in keypairs], **link})

    async def show(self, request: ApiRequest) -> Response:
        user_id = _user(request, "show")
        keypair = await self._access.ask(partial(self._keypairs.find, user_id, request.http.path_params["name"]))
        return json_answer(
            {
                "keypair": _brief(request, keypair)
                | {
                    "user_id": keypair.user_id,
                    "id": keypair.number,
                    "created_at": without_zone(keypair.created_at),
                    "updated_at": None,
                    "deleted": False,
                    "deleted_at": None,
                }
            }
        )

    async def create(self, request: ApiRequest) -> Response:
        wanted = await _CREATE.read(request)
        user_id = _own_or_permitted(request, wanted.user_id or None, "create")
        key, private_key = await self._access.ask(partial(_key, wanted))
        keypair = await self._access.ask(partial(self._add, request, user_id, wanted.name, key))
        item = _brief(request, keypair) | {"user_id": user_id}
        if private_key is not None:
            item["private_key"] = private_key
        return json_answer({"keypair": item}, 200 if request.minor < _TYPES_SINCE else 201)

    async def delete(self, request: ApiRequest) -> Response:
        user_id = _user(request, "delete")
        await self._access.ask(partial(self._keypairs.remove, user_id, request.http.path_params["name"]))
        return empty_answer(202 if request.minor < _TYPES_SINCE else 204)

    def _add(self, request: ApiRequest, user_id: str, name: str, key: PublicKey) -> Keypair:
        quotas, project_id = self._access.fleet.quotas, request.caller.project_id or ""
        with self._access.fleet.lock(f"key pairs of user {user_id}"):
            check(quotas.limits(project_id), quotas.counts(project_id, user_id), {"key_pairs": 1})
            return self._keypairs.add(user_id, name, key)


def _key(wanted: _NewKeypair) -> tuple[PublicKey, str | None]:
    """Return the public key and, for a generated pair, the private key."""
    if wanted.public_key is None:
        return generate_key(wanted.type, wanted.name)
    return read_key(wanted.type, wanted.public_key), None


def _user(request: ApiRequest, action: str) -> str:
    user_id = request.query.last("user_id") if request.minor >= _OTHER_USERS_SINCE else None
    return _own_or_permitted(request, user_id or None, action)


def _own_or_permitted(request: ApiRequest, user_id: str | None, action: str) -> str:
    """Return the user whose key pairs are requested. Raises ForbiddenError unless the caller may see them."""
    if user_id not in {None, request.caller.user_id} and not request.caller.is_admin:
        raise ForbiddenError(f"os_compute_api:os-keypairs:{action}")
    return user_id or request.caller.user_id


def _brief(request: ApiRequest, keypair: Keypair) -> dict[str, Any]:
    values = {
        "name": keypair.name,
        "public_key": keypair.public_key,
        "fingerprint": keypair.fingerprint,
        "type": keypair.type,
    }
    return _BRIEF.of(request.minor, values)
