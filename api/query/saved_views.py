"""`/fleetlight/views`: views of lists that users save, for themselves and for others of their project.

Only the owner of a view changes it, in any project. A shared view is visible in the project in which its owner saved
it; administrators see and may remove shared views of every project. A view gives no rights: lists still check those of
the reader.
"""

from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

from pydantic import Field
from starlette.responses import Response

from fleetlight.api.bodies.body_types import Name
from fleetlight.api.bodies.request_body import Body, RequestModel
from fleetlight.api.caller import Caller
from fleetlight.api.documented import ApiOperation
from fleetlight.api.http.answers import empty_answer, json_answer
from fleetlight.api.http.errors import BadRequestError, ForbiddenError
from fleetlight.api.http.shapes import BOOL, TEXT, ListOf, Shape
from fleetlight.api.limits.large_bodies import made_aside
from fleetlight.api.query.handlers import query_of_body
from fleetlight.api.query.item_query import MAX_FIELDS, MAX_ORDER, QueryBody, refuse_unknown_fields, size_of
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.cells.errors import ResourceNotFoundError
from fleetlight.cells.fleet.saved_views import SavedView, ViewContent

MAX_FILTER = 10_000
"""Characters; programs that make longer filters store them themselves."""


class ViewBody(RequestModel):
    """A view. filter: a text, since people edit it; empty for none."""

    name: Name
    what: str = "instance"
    filter: Annotated[str, Field(max_length=MAX_FILTER)] = ""
    fields: Annotated[list[str], Field(max_length=MAX_FIELDS)]
    order: Annotated[list[str], Field(max_length=MAX_ORDER)] = Field(default_factory=list)
    shared: bool = False


_BODY: Body[ViewBody] = Body(ViewBody)
_VIEW = Shape(
    {
        **dict.fromkeys(("id", "name", "what", "filter"), TEXT),
        **dict.fromkeys(("fields", "order"), ListOf(TEXT)),
        "shared": BOOL,
        "owner": TEXT,
        "mine": BOOL,
    }
)
_ALL, _ONE = "/fleetlight/views", "/fleetlight/views/{id}"
VIEWS = ApiOperation(
    "GET", _ALL, Shape({"views": ListOf(_VIEW)}), faults=(), summary="Saved views of lists: one's own, and shared ones"
)
SAVE_VIEW = ApiOperation(
    "POST", _ALL, _VIEW, success=201, body=_BODY, faults=(400, 403, 404, 409), summary="Save a view of a list"
)
REPLACE_VIEW = ApiOperation(
    "PUT", _ONE, _VIEW, body=_BODY, faults=(400, 403, 404, 409), summary="Change a saved view, as its owner"
)
REMOVE_VIEW = ApiOperation(
    "DELETE",
    _ONE,
    success=204,
    faults=(403, 404),
    summary="Remove a saved view, as its owner; administrators remove shared ones",
)


class ViewHandlers:
    def __init__(self, access: FleetAccess) -> None:
        self._access = access
        self._views = access.fleet.saved_views

    async def index(self, request: ApiRequest) -> Response:
        """`GET /fleetlight/views`"""
        caller = request.caller
        seen_by = partial(self._views.seen_by, caller.user_id, caller.project_id, all_projects=caller.is_admin)
        return json_answer({"views": [_view(view, caller) for view in await self._access.ask(seen_by)]})

    async def create(self, request: ApiRequest) -> Response:
        """`POST /fleetlight/views`"""
        content = await _checked_content(request)
        view = await self._access.ask(partial(self._add, request.caller, content))
        return json_answer(_view(view, request.caller), 201)

    async def replace(self, request: ApiRequest) -> Response:
        """`PUT /fleetlight/views/{id}`. Raises ForbiddenError."""
        content = await _checked_content(request)
        view, caller = await self._find(request), request.caller
        if view.user_id != caller.user_id:
            raise ForbiddenError("fleetlight:views:update")
        await self._access.ask(partial(self._views.replace, view.id, caller.project_id, content))
        return json_answer(_view(SavedView(view.id, view.user_id, caller.project_id, content), caller))

    async def remove(self, request: ApiRequest) -> Response:
        """`DELETE /fleetlight/views/{id}`. Raises ForbiddenError."""
        view = await self._find(request)
        if view.user_id != request.caller.user_id and not request.caller.is_admin:
            raise ForbiddenError("fleetlight:views:delete")
        await self._access.ask(partial(self._views.remove, view.id))
        return empty_answer(204)

    async def _find(self, request: ApiRequest) -> SavedView:
        """Find the view in the address. Raises ResourceNotFoundError for one that the caller does not see."""
        view_id, caller = request.http.path_params["id"], request.caller
        view = await self._access.ask(partial(self._views.find, view_id))
        is_shared = view.content.shared and (caller.is_admin or view.project_id == caller.project_id)
        if view.user_id != caller.user_id and not is_shared:
            raise ResourceNotFoundError("Saved view", view_id)
        return view

    def _add(self, caller: Caller, content: ViewContent) -> SavedView:
        with self._access.fleet.lock(f"saved views of user {caller.user_id}"):
            return self._views.add(caller.user_id, caller.project_id, content)


async def _checked_content(request: ApiRequest) -> ViewContent:
    """Read a body, and check that the caller may ask for its list.

    Raises the errors of `query_of_body`, and BadRequestError for an unknown field (for which a query returns a column
    of its own), or a shared view of a caller without project.
    """
    body, caller = await _BODY.read(request), request.caller
    if body.shared and caller.project_id is None:
        raise BadRequestError("shared: a view is shared with a project, and this login is for none")
    asked = QueryBody(what=body.what, fields=body.fields, filter=body.filter or None, order=body.order)
    question = await made_aside(size_of(asked.filter), lambda: query_of_body(asked, caller))
    refuse_unknown_fields("fields", body.fields, question.known)
    return ViewContent(**body.model_dump())


def _view(view: SavedView, caller: Caller) -> dict[str, Any]:
    mine = view.user_id == caller.user_id
    return {"id": view.id, **asdict(view.content), "owner": view.user_id, "mine": mine}
