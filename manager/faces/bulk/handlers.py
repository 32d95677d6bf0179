"""`/fleetlight/bulk`: handlers that preview, start, show and stop bulk changes (docs/decisions/0035).

A bulk change belongs to the user who previewed it, in the project of that login. Only this user, in this project, can
see, start and stop it.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.responses import Response

from fleetlight.api.bodies.request_body import Body, RequestModel
from fleetlight.api.caller import Caller, Identity
from fleetlight.api.documented import ApiOperation
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.errors import BadRequestError, ConflictError, ForbiddenError
from fleetlight.api.http.shapes import BOOL, INTEGER, NUMBER, OBJECT, TEXT, ListOf, Shape, or_null
from fleetlight.api.identity.rights import CallerRights
from fleetlight.api.limits.large_bodies import made_aside
from fleetlight.api.query.counting import QueryCounter
from fleetlight.api.query.engine import QueryEngine
from fleetlight.api.query.handlers import query_of_body
from fleetlight.api.query.item_query import CountQuery, ItemQuery, QueryBody, size_of
from fleetlight.api.query.saved_views import MAX_FILTER
from fleetlight.api.query.scope import ALL_PROJECTS
from fleetlight.api.services import Services
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.headers import CELL_TIMEOUT, CONSISTENCY
from fleetlight.api.shared.proof import read_options
from fleetlight.api.shared.times import with_zone
from fleetlight.cells.fleet.bulk_changes import (
    IN_DOUBT,
    MAX_ITEMS,
    BulkChange,
    BulkItem,
    BulkState,
    FrozenInstance,
    ItemState,
    NewBulk,
)
from fleetlight.listing.answer import CellAnswer
from fleetlight.manager.faces.bulk.following import ItemFollower
from fleetlight.manager.faces.bulk.item_actions import BulkAction
from fleetlight.manager.faces.bulk.running import BulkRunner
from fleetlight.query.sort import INSTANCES_BY_UUID
from fleetlight.resources.query_fields.catalog import ITEM_TYPES
from fleetlight.views.query2.projection import cells_of

_FROZEN = ("uuid", "serial_no", "name", "project_id", "cell")
_COUNTED = (ItemState.RUNNING, ItemState.DONE, ItemState.FAILED, ItemState.SKIPPED, ItemState.UNKNOWN)


class PreviewBody(RequestModel):
    """A preview. filter: a text; empty for all. all_projects: include other projects; for administrators."""

    action: Literal["start", "stop", "reboot", "hard-reboot", "reset-state", "delete"]
    filter: Annotated[str, Field(max_length=MAX_FILTER)] = ""
    all_projects: bool = False


class StartBody(RequestModel):
    """A start. accept_incomplete: whether instances may be missing, since cells did not answer the preview."""

    accept_incomplete: bool = False


_PREVIEW: Body[PreviewBody] = Body(PreviewBody)
_START: Body[StartBody] = Body(StartBody)
_SHOWN: dict[str, Any] = {
    **dict.fromkeys(("id", "action", "filter", "state"), TEXT),
    "reason": or_null(TEXT),
    "as_of": TEXT,
    "complete": BOOL,
    "total": INTEGER,
    **dict.fromkeys(("by_project", "by_cell"), OBJECT),
    "left_out": ListOf(Shape({"cell": TEXT, "instances": or_null(INTEGER), "age_s": or_null(NUMBER)})),
    **dict.fromkeys((state.value for state in _COUNTED), INTEGER),
    **dict.fromkeys(("by", "created_at", "expires_at"), TEXT),
}
_ITEMS = ListOf(Shape({"uuid": TEXT, "name": TEXT, "state": TEXT, "reason": or_null(TEXT)}))
_BULK = Shape(_SHOWN | {"items": _ITEMS})
_ALL, _ONE = "/fleetlight/bulk", "/fleetlight/bulk/{id}"
BULK_CHANGES = ApiOperation(
    "GET", _ALL, Shape({"bulk": ListOf(Shape(_SHOWN))}), faults=(), summary="One's own bulk changes, the newest first"
)
PREVIEW_BULK = ApiOperation(
    "POST",
    _ALL,
    _BULK,
    success=201,
    body=_PREVIEW,
    takes=(CONSISTENCY, CELL_TIMEOUT),
    faults=(400, 403),
    summary="Preview an action on all instances that a filter lets pass: they are frozen, and nothing is changed",
)
BULK_CHANGE = ApiOperation(
    "GET", _ONE, _BULK, faults=(403, 404), summary="How far one's own bulk change is, with the last 100 items"
)
START_BULK = ApiOperation(
    "POST",
    f"{_ONE}/start",
    _BULK,
    success=202,
    body=_START,
    faults=(400, 403, 404, 409),
    summary="Carry a previewed bulk change out, or go on with one that was stopped",
)
STOP_BULK = ApiOperation(
    "POST", f"{_ONE}/stop", _BULK, success=202, faults=(403, 404), summary="Stop a bulk change between two items"
)


class BulkHandlers:
    """The handlers. runner: carries bulk changes out in this process."""

    def __init__(self, services: Services, query_engine: QueryEngine, runner: BulkRunner) -> None:
        self._access = services.access
        self._store = services.parts.fleet.bulk_changes
        self._identity: Identity = services.parts.identity
        self._clock = services.parts.clock
        self._query_engine = query_engine
        self._counter = QueryCounter(services.counter, query_engine, services.parts.cells)
        self._runner = runner
        self._follower = ItemFollower(services.access, services.parts.clock)

    async def index(self, request: ApiRequest) -> Response:
        """`GET /fleetlight/bulk`"""
        caller = request.caller
        found = await self._access.ask(partial(self._all_of, caller))
        if any([await self._follower.follow(bulk) for bulk, _ in found]):
            found = await self._access.ask(partial(self._all_of, caller))
        return json_answer({"bulk": [_shown(bulk, caller, is_held=is_held) for bulk, is_held in found]})

    async def preview(self, request: ApiRequest) -> Response:
        """`POST /fleetlight/bulk`. Raises BadRequestError for more instances than MAX_ITEMS."""
        body, caller = await _PREVIEW.read(request), request.caller
        request.authorize(BulkAction(body.action).policy)
        question = await made_aside(size_of(body.filter), lambda: _question(body, caller))
        as_of = self._clock()
        frozen, is_complete, left_out = await self._frozen(request, question)
        content = NewBulk(caller.user_id, caller.project_id, body.action, body.filter, as_of, is_complete, left_out)
        add = partial(self._store.add, content, frozen, self._clock())
        return await self._answer(request, await self._access.act_anywhere(add), 201)

    async def show(self, request: ApiRequest) -> Response:
        """`GET /fleetlight/bulk/{id}`"""
        return await self._answer(request, request.http.path_params["id"], 200)

    async def start(self, request: ApiRequest) -> Response:
        """`POST /fleetlight/bulk/{id}/start`. Raises ConflictError for a bulk change that cannot be started."""
        body = await _START.read(request)
        bulk = await self._access.ask(partial(self._find, request))
        request.authorize(BulkAction(bulk.content.action).policy)
        if bulk.state is BulkState.DONE:
            raise ConflictError(f"Bulk change {bulk.id} was carried out already: preview another one.")
        if not bulk.content.is_complete and not body.accept_incomplete:
            raise ConflictError(
                "The preview is not complete, since some cells had not answered: preview again,"
                ' or add "accept_incomplete": true.'
            )
        # Without the connection of this request, which ends before the run.
        authenticate = partial(self._identity.authenticate, request.http.headers)
        await self._runner.start(bulk, request, CallerRights(request.caller, authenticate))
        return await self._answer(request, bulk.id, 202)

    async def stop(self, request: ApiRequest) -> Response:
        """`POST /fleetlight/bulk/{id}/stop`; no error if it does not run."""
        bulk = await self._access.ask(partial(self._find, request))
        await self._access.ask(partial(self._store.stop, bulk.id))
        return await self._answer(request, bulk.id, 202)

    async def _answer(self, request: ApiRequest, bulk_id: str, status: int) -> Response:
        def read() -> tuple[BulkChange, bool, Sequence[BulkItem]]:
            bulk = self._find(request, bulk_id)
            return bulk, self._is_held(bulk), self._store.last_items(bulk_id)

        bulk, is_held, items = await self._access.ask(read)
        if await self._follower.follow(bulk):
            bulk, is_held, items = await self._access.ask(read)
        shown = _shown(bulk, request.caller, is_held=is_held)
        return json_answer({**shown, "items": [_item(item, is_held=is_held) for item in items]}, status)

    async def _frozen(
        self, request: ApiRequest, question: ItemQuery
    ) -> tuple[list[FrozenInstance], bool, list[Mapping[str, Any]]]:
        """Freeze the instances of cells that answer; returns them, whether they are all, and omitted cells (NewBulk).

        Raises BadRequestError for too many instances.
        """
        fresh = await read_options(request.http.headers, request.caller, request.writes, request.admission)
        found: dict[str, tuple[Any, FrozenInstance]] = {}
        is_complete = True
        away: dict[str, CellAnswer] = {}
        remembered: dict[str, set[str]] = defaultdict(set)
        # By uuid, by which none is renamed from a page that is still to come to one that was read.
        async for batch in self._query_engine.batches(question, request.caller, fresh, read_by=INSTANCES_BY_UUID):
            is_complete = is_complete and batch.proof.is_complete
            # Instances that the index has of a down cell may not exist any more.
            away |= {answer.cell.name: answer for answer in batch.proof.cells if answer.is_down}
            for position, cells in batch.rows:
                uuid, revision, name, project_id, cell = (value for _, value in cells_of(cells))
                if cell in away:
                    remembered[cell].add(uuid)
                else:
                    frozen = FrozenInstance(uuid, revision, name or "", project_id or "", cell)
                    found[uuid] = (question.comparable(position), frozen)
            if len(found) > MAX_ITEMS:
                counting = CountQuery(question.known, (), question.filter, all_projects=question.all_projects)
                counted = await self._counter.count(counting, request.caller, fresh)
                total = sum(counted.groups.values())
                raise BadRequestError(f"filter: {total} instances; a bulk change has at most {MAX_ITEMS}")
        left_out: list[Mapping[str, Any]] = [
            {"cell": cell, "instances": None if age_s is None else len(remembered[cell] - found.keys()), "age_s": age_s}
            for cell, age_s in sorted((cell, answer.age_s) for cell, answer in away.items())
        ]
        return [each for _, each in sorted(found.values(), key=itemgetter(0))], is_complete, left_out

    def _all_of(self, caller: Caller) -> list[tuple[BulkChange, bool]]:
        own = self._store.seen_by(caller.user_id, caller.project_id, self._clock())
        return [(bulk, self._is_held(bulk)) for bulk in own if _may_see(bulk, caller)]

    def _find(self, request: ApiRequest, bulk_id: str | None = None) -> BulkChange:
        """Find a bulk change. Raises ResourceNotFoundError for one of another owner, and ForbiddenError."""
        caller, wanted = request.caller, bulk_id or request.http.path_params["id"]
        found = self._store.find(wanted, caller.user_id, caller.project_id, self._clock())
        if not _may_see(found, caller):
            raise ForbiddenError(ALL_PROJECTS)
        return found

    def _is_held(self, bulk: BulkChange) -> bool:
        """Whether a process runs it; queries the lease only if one may."""
        may_be = bulk.state is BulkState.RUNNING or bulk.count(ItemState.SUBMITTING) > 0
        return may_be and self._runner.is_held(bulk.id)


def _question(body: PreviewBody, caller: Caller) -> ItemQuery:
    """Make the query for the instances; its filter has only fields that the caller may use, unlike its columns."""
    wanted = QueryBody(what="instance", fields=["uuid"], filter=body.filter or None, all_projects=body.all_projects)
    return replace(query_of_body(wanted, caller), known=ITEM_TYPES["instance"], names=_FROZEN)


def _may_see(bulk: BulkChange, caller: Caller) -> bool:
    """Whether the owner still has the rights to see the frozen names, which may be of other projects."""
    return caller.is_admin or {project_id for project_id, _, _ in bulk.counts} <= {caller.project_id}


def _shown(bulk: BulkChange, caller: Caller, *, is_held: bool) -> Mapping[str, Any]:
    """Show a bulk change by the shape _SHOWN; only administrators see cells."""
    by_project, by_cell = Counter[str](), Counter[str]()
    for (project_id, cell, _), count in bulk.counts.items():
        by_project[project_id] += count
        by_cell[cell] += count
    is_left = bulk.state is BulkState.RUNNING and not is_held
    doubtful = () if is_held else (ItemState.SUBMITTING,)
    return {
        "id": bulk.id,
        "action": bulk.content.action,
        "filter": bulk.content.filter,
        "state": _state(bulk, is_left=is_left).value,
        "reason": "the process ended that carried it out" if is_left else bulk.reason,
        "as_of": with_zone(bulk.content.as_of),
        "complete": bulk.content.is_complete,
        "total": by_project.total(),
        "by_project": by_project,
        "by_cell": by_cell if caller.is_admin else {},
        "left_out": bulk.content.left_out if caller.is_admin else [],
        **{state.value: bulk.count(state) for state in _COUNTED},
        "unknown": bulk.count(ItemState.UNKNOWN, *doubtful),
        "by": bulk.content.user_id,
        "created_at": with_zone(bulk.created_at),
        "expires_at": with_zone(bulk.expires_at),
    }


def _state(bulk: BulkChange, *, is_left: bool) -> BulkState:
    """Return the state; not done while its jobs go on. is_left: whether its process has died."""
    if is_left:
        return BulkState.STOPPED
    goes_on = bulk.state is BulkState.DONE and bulk.count(ItemState.RUNNING) > 0
    return BulkState.RUNNING if goes_on else bulk.state


def _item(item: BulkItem, *, is_held: bool) -> Mapping[str, Any]:
    is_doubtful = item.outcome.state is ItemState.SUBMITTING and not is_held
    return {
        "uuid": item.instance.uuid,
        "name": item.instance.name,
        "state": (ItemState.UNKNOWN if is_doubtful else item.outcome.state).value,
        "reason": IN_DOUBT if is_doubtful else item.outcome.reason,
    }
