"""`GET /fleetlight/sd/{name}`: the instances of a saved view, as targets for the HTTP discovery of Prometheus.

Prometheus drops targets that an answer lacks. So while an answer may lack instances, the process returns the last
complete answer, marked as such and with its age, or 503, after which Prometheus keeps its targets. Each process keeps
its last complete answers in memory; without one it answers 503.
(docs/decisions/0036-answer-discoveries-with-what-was-complete.md)
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import msgspec
from starlette.responses import Response

from fleetlight.api.caller import Caller
from fleetlight.api.documented import ApiOperation
from fleetlight.api.http.errors import BadRequestError, ConflictError, IncompleteDiscoveryError
from fleetlight.api.http.headers import Header
from fleetlight.api.http.shapes import TEXT, ListOf, MapOf, Shape
from fleetlight.api.limits.large_bodies import made_aside
from fleetlight.api.monitoring.targets import TargetGroup, WantedAddress, group_of, marked
from fleetlight.api.query.engine import QueryEngine
from fleetlight.api.query.handlers import query_of_body
from fleetlight.api.query.item_query import ItemQuery, QueryBody, default_order, flag, refuse_unknown, size_of
from fleetlight.api.services import Services
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.headers import CELL_TIMEOUT, COMPLETE, CONSISTENCY
from fleetlight.api.shared.proof import read_options
from fleetlight.cells.errors import ResourceNotFoundError
from fleetlight.cells.fleet.saved_views import SavedView
from fleetlight.listing.answer import ReadOptions
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.resources.units import MICROSECONDS_PER_SECOND
from fleetlight.views.query2.projection import cells_of

MAX_TARGETS = 50_000
MAX_KEPT_BYTES = 64 * 2**20
"""The size limit of a process's last complete answers."""
_AGE = Header("Age", "Seconds since the answer was complete, where it is the last complete one", {"type": "integer"})
_ALWAYS = ("uuid", "name", "ip_addresses")
DISCOVERY = ApiOperation(
    "GET",
    "/fleetlight/sd/{name}",
    ListOf(Shape({"targets": ListOf(TEXT), "labels": MapOf(TEXT)})),
    query=("port", "address", "version", "network", "all_projects"),
    takes=(CONSISTENCY, CELL_TIMEOUT),
    gives=(COMPLETE, _AGE),
    faults=(400, 403, 404, 409, 503),
    summary="The instances of a saved view, by its name or id, as targets for the HTTP discovery of Prometheus",
)


@dataclass(frozen=True, slots=True)
class _Asked:
    """The key of a discovery's answer. content: JSON of the view's fields and filter.

    A changed role of the caller, or a changed view, makes another key.
    """

    caller: Caller
    view_id: str
    content: bytes
    address: WantedAddress
    all_projects: bool


class LastComplete:
    """The last complete answers, up to MAX_KEPT_BYTES; the oldest give way."""

    def __init__(self, max_bytes: int = MAX_KEPT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._kept: dict[Hashable, tuple[int, bytes]] = {}

    def keep(self, asked: Hashable, at: int, groups: Sequence[TargetGroup]) -> None:
        """Keep a complete answer. at: microseconds since the epoch."""
        self._kept.pop(asked, None)
        self._kept[asked] = at, msgspec.json.encode(groups)
        size = sum(len(text) for _, text in self._kept.values())
        while size > self._max_bytes:
            _, oldest = self._kept.pop(next(iter(self._kept)))
            size -= len(oldest)

    def get(self, asked: Hashable) -> tuple[int, Sequence[TargetGroup]] | None:
        """Return the time and the groups of the last complete answer; None without one."""
        if asked not in self._kept:
            return None
        at, text = self._kept[asked]
        return at, msgspec.json.decode(text)


class DiscoveryHandler:
    """`GET /fleetlight/sd/{name}`"""

    def __init__(self, services: Services, query_engine: QueryEngine) -> None:
        self._services = services
        self._query_engine = query_engine
        self._clock = services.parts.clock
        self._last = LastComplete()

    async def show(self, request: ApiRequest) -> Response:
        """Answer a discovery. Raises IncompleteDiscoveryError if there is no complete answer to return."""
        caller, services = request.caller, self._services
        refuse_unknown(request.query, DISCOVERY.query)
        address, all_projects = WantedAddress.of(request.query), flag(request.query, "all_projects")
        view = await self._view(caller, request.http.path_params["name"])
        cost = size_of(view.content.filter)
        question = await made_aside(cost, partial(_question, view, caller, all_projects=all_projects))
        fresh = await read_options(request.http.headers, caller, request.writes, request.admission)
        content = msgspec.json.encode((view.content.fields, view.content.filter))
        asked = _Asked(caller, view.id, content, address, all_projects)
        groups = await self._complete(question, caller, fresh, address)
        if groups is None:
            return self._as_configured(asked, view.content.name)
        self._last.keep(asked, self._clock(), groups)
        services.metrics.count_discovery("complete")
        return _answer(groups, None)

    def _as_configured(self, asked: _Asked, name: str) -> Response:
        """Answer by `api.incomplete_discovery` while targets may be missing. Raises IncompleteDiscoveryError."""
        last = self._last.get(asked) if self._services.parts.api.incomplete_discovery == "last" else None
        self._services.metrics.count_discovery("refused" if last is None else "last")
        if last is None:
            raise IncompleteDiscoveryError(name)
        at, groups = last
        return _answer(groups, max(0, self._clock() - at) // MICROSECONDS_PER_SECOND)

    async def _view(self, caller: Caller, name: str) -> SavedView:
        """Find the caller's own view of this name, or the only shared one, or the view with this id.

        Raises ResourceNotFoundError, and ConflictError when several shared views have the name.
        """
        access = self._services.access
        seen_by = partial(access.fleet.saved_views.seen_by, caller.user_id, caller.project_id)
        seen = await access.ask(lambda: seen_by(all_projects=caller.is_admin))
        found = [view for view in seen if name in {view.id, view.content.name}]
        if not found:
            raise ResourceNotFoundError("Saved view", name)
        if len(found) > 1 and found[0].user_id != caller.user_id:
            raise ConflictError(f"{len(found)} views called '{name}' are shared with you: ask for one by its id.")
        return found[0]

    async def _complete(
        self, question: ItemQuery, caller: Caller, fresh: ReadOptions, address: WantedAddress
    ) -> list[TargetGroup] | None:
        """Read the targets of all instances; None if some may be missing. Raises BadRequestError."""
        groups: list[TargetGroup] = []
        async for batch in self._query_engine.batches(question, caller, fresh):
            if not batch.proof.is_complete:
                return None
            for _, cells in batch.rows:
                values = dict(zip(question.names, (value for _, value in cells_of(cells)), strict=True))
                target = address.target_of(values.pop("ip_addresses") or ())
                if target is not None:
                    groups.append(group_of(target, values))
            if len(groups) > MAX_TARGETS:
                raise BadRequestError(f"The view has more than {MAX_TARGETS} targets; let its filter pass fewer")
        return groups


def _question(view: SavedView, caller: Caller, *, all_projects: bool) -> ItemQuery:
    """Make the query for a view's fields and those that targets need. Raises BadRequestError."""
    content = view.content
    if content.what != INSTANCE_FIELDS.name:
        raise BadRequestError(f"The view '{content.name}' is of items of type '{content.what}'; targets are instances")
    names = [*dict.fromkeys((*content.fields, *_ALWAYS))]
    body = QueryBody(what=content.what, fields=names, filter=content.filter or None, all_projects=all_projects)
    question = query_of_body(body, caller)
    # Order by immutable fields, so that batches neither repeat nor miss an instance.
    return replace(question, order=default_order(question.known))


def _answer(groups: Sequence[TargetGroup], age_s: int | None) -> Response:
    headers = {"Fleetlight-Complete": "true" if age_s is None else "false"}
    if age_s is not None:
        headers["Age"] = str(age_s)
    return Response(marked(groups, age_s=age_s), headers=headers, media_type="application/json")
