"""`GET /fleetlight/changes`: changes of items, in batches, or as a stream of server-sent events."""

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, aclosing
from dataclasses import dataclass
from http import HTTPStatus

import msgspec
from starlette.responses import Response
from starlette.routing import Route

from fleetlight.api.changes.comparisons import ComparedWatch, Comparisons
from fleetlight.api.changes.parameters import (
    PARAMETERS,
    ChangesQuery,
    changes_query,
    filter_text,
    what_is_asked,
    why_unnumbered,
)
from fleetlight.api.changes.recent import RECENT_CHANGES, RecentChangesHandler
from fleetlight.api.changes.watched_items import WatchedItems
from fleetlight.api.documented import ApiOperation
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.errors import OTHER_FAULT_KEY, BadRequestError, UnauthorizedError
from fleetlight.api.http.parts_response import HeadResponse
from fleetlight.api.http.shapes import (
    ANYTHING,
    BOOL,
    INTEGER,
    TEXT,
    JsonType,
    Key,
    ListOf,
    MapOf,
    OneOf,
    Shape,
    optional,
    or_null,
)
from fleetlight.api.identity.rights import CallerRights
from fleetlight.api.limits.large_bodies import made_aside
from fleetlight.api.query.item_query import size_of
from fleetlight.api.services import Services
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.event_stream import LAST_ID_HEADER, EventStream
from fleetlight.api.shared.headers import LAST_EVENT_ID
from fleetlight.listing.watches.changelogs import ResetReason
from fleetlight.listing.watches.watch import Watch, WatchEvent
from fleetlight.listing.watches.watched_list import ChangeKind, CoveredCell

MAX_CHANGES = 1000
MAX_BYTES = 2**20
_KINDS = frozenset(ChangeKind)


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch. changes: JSON of each. cursor: the position after them. has_more: whether more changes wait already.

    cells: the position in each cell of a caller that has the batch.
    """

    changes: Sequence[bytes]
    cursor: str
    has_more: bool
    cells: Sequence[CoveredCell]


async def next_batch(watch: Watch, deadline: float) -> Batch | ResetReason:
    """Return the changes of `watch`: at once if there are any, else at `deadline`, which is also the watch's.

    Returns a ResetReason if changes were missed. Raises UnauthorizedError and FleetUnreachableError.
    """
    changes: list[bytes] = []
    has_more = False
    async with aclosing(watch.events()) as events:
        async for event in events:
            if event.reset is not None:
                return event.reset
            _add(changes, event)
            has_more = event.name == "overrun" or _is_full(changes)
            is_end_of_burst = event.cursor is not None and bool(changes)
            if has_more or is_end_of_burst or (event.name is None and time.monotonic() >= deadline):
                break
        else:
            # The process ends, so the feed follows no cell any more.
            has_more = True
        # Before the watch leaves, while the feed still follows the cells.
        return Batch(changes, watch.cursor(), has_more or watch.has_more, watch.coverage())


def _add(changes: list[bytes], event: WatchEvent) -> None:
    """Add the change of an event, if it has one. Raises UnauthorizedError when the reader has lost its rights."""
    if event.name == "ended":
        raise UnauthorizedError(event.data.decode())
    if event.name in _KINDS:
        changes.append(event.data)


def _is_full(changes: Sequence[bytes]) -> bool:
    return len(changes) >= MAX_CHANGES or sum(map(len, changes)) >= MAX_BYTES


JSON_LINES = "application/jsonl"
_ADDRESS = "/fleetlight/changes"
_OF_ITEM: Mapping[str, JsonType | Key] = {
    "kind": TEXT,
    "id": TEXT,
    "cell": optional(TEXT),
    "revision": or_null(INTEGER),
    "at": or_null(TEXT),
}
_UPSERT = Shape({**_OF_ITEM, "cells": ListOf(ListOf(ANYTHING))})
_LEAVE = Shape(_OF_ITEM)
_CELL = Shape({"state": TEXT, "reason": or_null(TEXT), "by": TEXT, "sequence": or_null(INTEGER)})
_COVERED: Mapping[str, JsonType | Key] = {"complete": BOOL, "cells": optional(MapOf(_CELL))}
_WHY = Shape({"reason": TEXT})
_EVENTS = {
    "ready": Shape({"cursor": or_null(TEXT), **_COVERED}),
    "enter": _UPSERT,
    "change": _UPSERT,
    "leave": _LEAVE,
    "incomplete": Shape(_COVERED),
    "complete": Shape(_COVERED),
    "reset": _WHY,
    "overrun": _WHY,
    "ended": _WHY,
}
_END = Shape({"kind": TEXT, "cursor": TEXT, "more": BOOL, **_COVERED})
CHANGES = ApiOperation(
    "GET",
    _ADDRESS,
    OneOf((_UPSERT, _LEAVE, _END)),
    query=PARAMETERS,
    takes=(LAST_EVENT_ID,),
    media_type=JSON_LINES,
    faults=(400, 403, 404, 410),
    events=_EVENTS,
    summary="What changed in the items that a filter lets pass, one change on a line, and the cursor to go on from",
)

_encode = msgspec.json.Encoder().encode


def routes(services: Services, comparisons: Comparisons) -> Sequence[Route]:
    route = services.middleware.route
    return [
        route(CHANGES, ChangesHandler(services, comparisons).changes),
        route(RECENT_CHANGES, RecentChangesHandler(services).show),
    ]


class ChangesHandler:
    """The handler of CHANGES. comparisons: for questions about unnumbered changes."""

    def __init__(self, services: Services, comparisons: Comparisons) -> None:
        self._feed = services.feed
        self._codec = services.positions
        self._cells = services.parts.cells
        self._slots = services.limits.watches
        self._comparisons = comparisons

    async def changes(self, request: ApiRequest) -> Response:
        """`GET /fleetlight/changes`. Raises TooManyOwnWatchesError, TooManyWatchesError."""
        with ExitStack() as held:
            request.http.state.rate_limit = held.enter_context(self._slots.take(request.caller))
            asked = await made_aside(
                size_of(filter_text(request.query)), lambda: changes_query(request.query, request.caller)
            )
            cells = await self._cells.cells()
            if (why := why_unnumbered(asked.question, cells)) is not None:
                return await self._compared(request, asked, why, held)
            items = WatchedItems(asked.question, request.caller, cells)
            if request.http.method == "HEAD":
                return HeadResponse(Response(media_type=JSON_LINES))
            if not request.wants_events:
                return await self._batch(request, asked, items)
            return EventStream(self._watch(request, asked, items), held.pop_all())

    async def _compared(self, request: ApiRequest, asked: ChangesQuery, why: str, held: ExitStack) -> Response:
        """Answer with a stream by comparison. why: changes have no number. Raises BadRequestError for a batch."""
        _require_stream(request, asked, why)
        if request.http.method == "HEAD":
            return HeadResponse(Response(media_type=JSON_LINES))
        caller = request.caller
        comparison, leave = await self._comparisons.join(asked.question, caller, request.admission)
        held.callback(leave)
        rights, is_lost = CallerRights(caller, request.authenticate), LAST_ID_HEADER in request.http.headers
        watch = ComparedWatch(comparison, rights, shows_cells=caller.is_admin, is_lost=is_lost)
        return EventStream(watch, held.pop_all())

    async def _batch(self, request: ApiRequest, asked: ChangesQuery, items: WatchedItems) -> Response:
        deadline = time.monotonic() + (asked.wait_s if asked.after else 0)
        batch = await next_batch(self._watch(request, asked, items, deadline), deadline)
        if isinstance(batch, ResetReason):
            return _gone(batch)
        end = {"kind": "end", "cursor": batch.cursor, "more": batch.has_more, **items.covered(batch.cells)}
        end["complete"] = end["complete"] and not batch.has_more
        return Response(b"".join(b"%b\n" % line for line in (*batch.changes, _encode(end))), media_type=JSON_LINES)

    def _watch(
        self, request: ApiRequest, asked: ChangesQuery, items: WatchedItems, deadline: float = math.inf
    ) -> Watch:
        # A browser that reconnects sends its last position in a header, to the original address.
        after = request.http.headers.get(LAST_ID_HEADER) or asked.after
        codec = self._codec.bound_to(what_is_asked(request.query, asked, request.caller))
        since = None if after is None else codec.decode(after)
        lost = None
        if after is not None and since is None:
            is_another = codec.is_of_another_question(after)
            lost = ResetReason.OTHER_QUESTION if is_another else ResetReason.UNKNOWN_CURSOR
        rights = CallerRights(request.caller, request.authenticate)
        return Watch(self._feed, codec, items, rights, since, lost=lost, deadline=deadline)


def _require_stream(request: ApiRequest, asked: ChangesQuery, why: str) -> None:
    """Raise BadRequestError for requests that need numbered changes. why: a sentence, why they have no number."""
    if asked.after is not None:
        raise BadRequestError(f"after: there is no cursor to go on from. {why}")
    if not request.wants_events:
        raise BadRequestError(f"{why}; a stream (Accept: text/event-stream) compares the rows")


def _gone(reason: ResetReason) -> Response:
    """Refuse a cursor from which the missed changes cannot be read."""
    text = f"after: {reason.text}; take a new cursor from {_ADDRESS}, and then list again by /fleetlight/query"
    said = {"code": HTTPStatus.GONE, "message": text, "reason": reason, "start": _ADDRESS}
    return json_answer({OTHER_FAULT_KEY: said}, HTTPStatus.GONE)
