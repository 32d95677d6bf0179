"""The reading resources of the remote API (contracts/ganeti-rapi, 4), each a path with its verbs.

Resources for changes are in fleetlight.manager.faces.rapi.
"""

from collections.abc import Collection, Iterator, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.responses import Response, StreamingResponse

from fleetlight.api.http.errors import NotFoundError
from fleetlight.api.limits.large_bodies import MAX_PARTS, made_aside
from fleetlight.api.query.cluster import FLEET, cluster_info
from fleetlight.api.query.item_query import MAX_COLUMNS
from fleetlight.api.query.named_items import ItemLookupError, names_in
from fleetlight.api.query.scope import visible_fields
from fleetlight.api.query.whole_results import pieces_of
from fleetlight.api.rapi.access import A_USER, ANYBODY, READERS, WRITERS
from fleetlight.api.rapi.bulk_fields import BULK_FIELDS
from fleetlight.api.rapi.endpoint import JOB, NAME, RapiRequest, Resource, Verb, resource
from fleetlight.api.rapi.faults import RapiError, UnsureError
from fleetlight.api.rapi.items import RapiItems, answer, as_object, not_found
from fleetlight.api.rapi.jobs import SeenJobs, wait_for_job
from fleetlight.api.shared.proof import proof_headers
from fleetlight.cells.job_words import ENDED
from fleetlight.cells.model import Cell, CellAdapter, ItemsAdapter
from fleetlight.listing.sources import CellReader
from fleetlight.query.fields_query import definitions
from fleetlight.resources.fields import Record
from fleetlight.resources.query_fields.catalog import ITEM_TYPES
from fleetlight.resources.query_fields.cluster_parameters import CLUSTER
from fleetlight.views.query2.projection import Cells

_VERSION = 2
_FEATURES = (
    "instance-create-reqv1",
    "instance-reinstall-reqv1",
    "node-migrate-reqv1",
    "node-evac-res1",
    "instance-reservations",
)
_ROLES = {"M": "master", "C": "master-candidate", "D": "drained", "O": "offline", "R": "regular"}
# The key of an item's name in entries of lists that are not bulk, beside the uri.
_COLLECTIONS = {
    "instance": "id",
    "node": "id",
    "job": "id",
    "group": "name",
    "network": "name",
    "filter": "uuid",
}
# An operating system with unknown properties stays in the list.
_INSTALLABLE = ["&", ["==", "valid", True], ["==", "hidden", False], ["==", "blacklisted", False]]
_WITH_TAGS = ("instance", "node", "group", "network")


class RapiResources:
    """The resources below `/2`, and `/version`."""

    def __init__(self, items: RapiItems, cells: CellReader, seen: SeenJobs) -> None:
        self._items = items
        self._cells = cells
        self._seen = seen

    def table(self) -> Sequence[Resource]:
        """Return every resource below `/2`."""
        return list(self._resources())

    def beside(self) -> Sequence[Resource]:
        """Return the resource `/version`."""
        return [_get("", self._version, ANYBODY)]

    def _resources(self) -> Iterator[Resource]:
        yield _get("", self._nothing, ANYBODY)
        yield _get("/features", self._features, ANYBODY)
        yield _get("/info", self._info, A_USER)
        yield _get("/os", self._operating_systems, A_USER)
        yield _get("/tags", self._tags_of_cluster, A_USER)
        yield resource(f"/query/(?P<what>{NAME})", dict.fromkeys(("GET", "PUT"), Verb(self._query, READERS, MAX_PARTS)))
        yield _get(f"/query/(?P<what>{NAME})/fields", self._query_fields, ANYBODY)
        for item_type in _COLLECTIONS:
            name = JOB if item_type == "job" else NAME
            one = f"/{item_type}s/(?P<{item_type}>{name})"
            yield _get(f"/{item_type}s", self._list(item_type), A_USER)
            yield _get(one, self._one(item_type), A_USER)
            if item_type in _WITH_TAGS:
                yield _get(f"{one}/tags", self._tags(item_type), A_USER)
        yield _get(f"/nodes/(?P<node>{NAME})/role", self._role, A_USER)
        yield _get(f"/instances/(?P<instance>{NAME})/console", self._console, READERS)
        yield _get(f"/jobs/(?P<job>{JOB})/wait", self._wait, WRITERS)

    async def _version(self, _request: RapiRequest) -> Response:
        return answer(_VERSION)

    async def _nothing(self, _request: RapiRequest) -> Response:
        return answer(None)

    async def _features(self, _request: RapiRequest) -> Response:
        """Answer with Ganeti's features, and one of our own: reservations."""
        return answer(_FEATURES)

    async def _info(self, request: RapiRequest) -> Response:
        if request.only is None:
            return answer(cluster_info(FLEET, None))
        cell, configured = await self._configured(request, request.only)
        return answer(cluster_info(cell.name, cell.uuid, configured), _known_or_not(configured))

    async def _tags_of_cluster(self, request: RapiRequest) -> Response:
        """Answer with the tags of a cell; the fleet as a whole has none."""
        if request.only is None:
            return answer([])
        _, configured = await self._configured(request, request.only)
        return answer([] if configured is None else configured["tags"], _known_or_not(configured))

    async def _configured(self, request: RapiRequest, only: Collection[str]) -> tuple[Cell, Record | None]:
        """Return the cell of a request, and its configuration; None if its kind does not report that.

        Raises CellUnreachableError.
        """
        [cell] = [cell for cell in await self._cells.cells() if cell.uuid in only]

        def read(adapter: CellAdapter) -> Record | None:
            found = adapter.read_items(CLUSTER, ()) if isinstance(adapter, ItemsAdapter) else ()
            return next(iter(found), None)

        return cell, await self._cells.ask(cell.uuid, read, request.fresh.cell_timeout_s)

    async def _operating_systems(self, request: RapiRequest) -> Response:
        names = BULK_FIELDS["os"]
        if request.flag("bulk"):
            return await self._items.streamed(request, "os", names, None, as_object(names))
        rows, headers = await self._items.collected(request, "os", ["name", "variants"], _INSTALLABLE)
        found = [value for cells in rows for value in _with_variants(*(value for _, value in cells))]
        if not found and headers["Fleetlight-Complete"] != "true":
            # Not an empty list, which would mean a cluster that can install nothing.
            raise not_found("There is no operating system", headers)
        return answer(sorted(set(found)), headers)

    async def _query(self, request: RapiRequest) -> Response:
        """Answer with items of any type, in the form of queries.

        If the expression is a lookup by names (fleetlight.api.query.named_items), items come in the order of the names
        and as often. Raises RapiError for a name of no item, or of several.
        """
        known = visible_fields(request.names["what"], request.caller)
        names, expression = _asked(request)
        around = b'{"fields":%b,"data":[' % msgspec.json.encode(definitions(known, names)), b"]}\n"
        wanted = await made_aside(request.parts, lambda: names_in(expression, known))
        if wanted is None:
            return await self._items.streamed(request, known.name, names, expression, lambda row: row[1], around=around)
        try:
            found = await self._items.answers.look_up(request, known.name, names, wanted)
        except ItemLookupError as error:
            refusal = RapiError(HTTPStatus.BAD_REQUEST, str(error)) if error.is_certain else UnsureError(str(error))
            raise refusal from error
        headers = proof_headers(found.proof, request.caller)
        body = pieces_of(found, lambda row: row, *around)
        return StreamingResponse(body, headers=headers, media_type="application/json")

    async def _query_fields(self, request: RapiRequest) -> Response:
        """Answer with definitions of fields, which need no login, unlike items."""
        known = ITEM_TYPES.get(request.names["what"])
        if known is None:
            raise NotFoundError(f"There is no item type '{request.names['what']}'")
        names = request.query.last("fields")
        return answer({"fields": definitions(known, None if names is None else _names(names))})

    def _list(self, item_type: str) -> Any:
        key, names = _COLLECTIONS[item_type], BULK_FIELDS[item_type]
        name_field = ITEM_TYPES[item_type].name_field

        async def handle(request: RapiRequest) -> Response:
            _refuse_locks(request)
            if request.flag("bulk"):
                return await self._items.streamed(request, item_type, names, None, as_object(names))
            # A reservation without a name is named by its uuid.
            fields = [name_field, "uuid"] if item_type == "instance" else [name_field]
            rows, headers = await self._items.collected(request, item_type, fields)
            found = sorted(name for cells in rows if (name := _first_value(cells)) is not None)
            return answer(
                [{key: name, "uri": f"/2/{item_type}s/{quote(str(name), safe='')}"} for name in found], headers
            )

        return handle

    def _one(self, item_type: str) -> Any:
        async def handle(request: RapiRequest) -> Response:
            _refuse_locks(request)
            item, headers = await self._items.one(request, item_type, request.names[item_type])
            if item_type == "job" and item["status"] in ENDED:
                await self._seen.note(request, item["id"])
            more = {"secondary_ip": item["sip"]} if item_type == "node" else {}
            return answer({**item, **more}, headers)

        return handle

    def _tags(self, item_type: str) -> Any:
        async def handle(request: RapiRequest) -> Response:
            item, headers = await self._items.one(request, item_type, request.names[item_type])
            return answer(item["tags"], headers)

        return handle

    async def _role(self, request: RapiRequest) -> Response:
        node, headers = await self._items.one(request, "node", request.names["node"])
        return answer(_ROLES.get(node["role"]), headers)

    async def _console(self, request: RapiRequest) -> Response:
        """Refuse: simulated hosts have no consoles, and other cells have them in their own clouds."""
        await self._items.one(request, "instance", request.names["instance"])
        raise RapiError(HTTPStatus.SERVICE_UNAVAILABLE, "Instance console unavailable")

    async def _wait(self, request: RapiRequest) -> Response:
        return await wait_for_job(self._items, self._seen, request)


def _known_or_not(configured: Record | None) -> dict[str, str]:
    """Make the header of completeness for a cell's configuration, which is unknown for cells of Nova."""
    return {"Fleetlight-Complete": "true" if configured is not None else "false"}


def _get(path: str, handler: Any, needed: frozenset[str]) -> Resource:
    return resource(path, {"GET": Verb(handler, needed)})


def _refuse_locks(request: RapiRequest) -> None:
    """Refuse requests with locks, since reads take none, as in Ganeti. Raises RapiError."""
    if request.flag("lock"):
        raise RapiError(HTTPStatus.BAD_REQUEST, "Sync queries are not allowed")


def _asked(request: RapiRequest) -> tuple[Sequence[str], Any]:
    """Return the fields and the filter of a query, from the body, or the fields from the address."""
    body = request.body if request.has_body else {}
    if not isinstance(body, dict):
        raise RapiError(HTTPStatus.BAD_REQUEST, "The body must be an object with 'fields' and 'qfilter'")
    fields = body.get("fields")
    if fields is None:
        text = request.query.last("fields")
        if text is None:
            raise RapiError(HTTPStatus.BAD_REQUEST, "Missing 'fields' query argument")
        fields = _names(text)
    if not isinstance(fields, list) or not all(isinstance(name, str) for name in fields):
        raise RapiError(HTTPStatus.BAD_REQUEST, "'fields' must be a list of names of fields")
    if len(fields) > MAX_COLUMNS:
        raise RapiError(HTTPStatus.BAD_REQUEST, f"There are {len(fields)} 'fields'; there may be {MAX_COLUMNS}")
    expression = body.get("qfilter")
    expression = body.get("filter") if expression is None else expression
    if expression is not None and not isinstance(expression, list):
        raise RapiError(HTTPStatus.BAD_REQUEST, "'qfilter' must be a list with an operator first")
    return fields, expression


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",")]


def _first_value(cells: Cells) -> Any:
    return next((value for _, value in cells if value is not None), None)


def _with_variants(name: str, variants: Sequence[str] | None) -> Sequence[str]:
    return [f"{name}+{variant}" for variant in variants] if variants else [name]
