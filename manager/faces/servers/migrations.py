"""`/os-migrations` and `/servers/{id}/migrations` (contracts/nova-rest, 3.5 and 4.7)."""

import heapq
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any

from starlette.responses import Response

from fleetlight.api.compute.protocol.paging import next_link, paging_of
from fleetlight.api.compute.protocol.route_table import ApiRoute
from fleetlight.api.compute.protocol.times import time_of
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.errors import BadRequestError, NotFoundError
from fleetlight.api.http.query_string import QueryParameters
from fleetlight.api.http.shapes import INTEGER, LINKS, TEXT, Key, Shape, or_null, page
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.api.shared.headers import COMPLETE
from fleetlight.api.shared.times import without_zone
from fleetlight.cells.model import Cell
from fleetlight.listing.errors import MarkerNotFoundError
from fleetlight.manager.faces.servers.attachment_bodies import FORCE_COMPLETE
from fleetlight.manager.faces.servers.lookup import FoundServer, find_server
from fleetlight.manager.operations.instances.instance_migrations import (
    IN_PROGRESS,
    LIVE,
    Migration,
    MigrationLog,
    MigrationQuery,
)

_TYPES_SINCE = 23
_UUIDS_SINCE = 59
_BEFORE_SINCE = 66
_OWNERS_SINCE = 80
_SERVER_MIGRATIONS_SINCE, _SHOW_SINCE, _ABORT_SINCE = 23, 23, 24
_FORCE_SINCE = 22
_FILTERS = ("host", "instance_uuid", "source_compute", "status", "migration_type")
_ONCE = {
    **dict.fromkeys(("limit", "marker", "changes-since"), _UUIDS_SINCE),
    "changes-before": _BEFORE_SINCE,
    **dict.fromkeys(("user_id", "project_id"), _OWNERS_SINCE),
}
_PARAMETERS = QueryParameters(
    dict.fromkeys((*_FILTERS, "hidden"), 1) | _ONCE, refuses_unknown_since=_UUIDS_SINCE, once=_ONCE
)
_PROGRESS = [f"{what}_{part}_bytes" for what in ("memory", "disk") for part in ("total", "processed", "remaining")]


_HOSTS = ("source_compute", "source_node", "dest_compute", "dest_node", "dest_host")
_COMMON = Shape(
    {
        "id": INTEGER,
        "status": TEXT,
        **dict.fromkeys(_HOSTS, or_null(TEXT)),
        "created_at": TEXT,
        "updated_at": TEXT,
        "uuid": Key(TEXT, since=_UUIDS_SINCE),
        **dict.fromkeys(("user_id", "project_id"), Key(or_null(TEXT), since=_OWNERS_SINCE)),
    }
)
_MIGRATION = _COMMON.with_keys(
    {
        "instance_uuid": TEXT,
        "old_instance_type_id": or_null(INTEGER),
        "new_instance_type_id": or_null(INTEGER),
        "migration_type": Key(TEXT, since=_TYPES_SINCE),
        "links": Key(LINKS, since=_TYPES_SINCE, is_optional=True),
    }
)
_LIVE_MIGRATION = _COMMON.with_keys({"server_uuid": TEXT, **dict.fromkeys(_PROGRESS, or_null(INTEGER))})


class MigrationHandlers:
    def __init__(self, access: FleetAccess) -> None:
        self._access = access

    def routes(self) -> list[ApiRoute]:
        of_server = "/servers/{server_id}/migrations"
        one = of_server + "/{migration_id}"
        return [
            ApiRoute(
                "GET",
                "/os-migrations",
                self.index,
                query=_PARAMETERS,
                errors=(400, 403),
                answer=page("migrations", _MIGRATION, "migrations_links"),
                gives=(COMPLETE,),
            ),
            ApiRoute(
                "GET",
                of_server,
                self.of_server,
                since=_SERVER_MIGRATIONS_SINCE,
                errors=(403, 404),
                answer=page("migrations", _LIVE_MIGRATION),
            ),
            ApiRoute(
                "GET",
                one,
                self.show,
                since=_SHOW_SINCE,
                errors=(403, 404),
                answer=Shape({"migration": _LIVE_MIGRATION}),
            ),
            ApiRoute(
                "POST",
                one + "/action",
                self.force_complete,
                since=_FORCE_SINCE,
                body=FORCE_COMPLETE,
                success=(),
                errors=(403, 404),
            ),
            ApiRoute("DELETE", one, self.abort, since=_ABORT_SINCE, success=(), errors=(403, 404)),
        ]

    async def index(self, request: ApiRequest) -> Response:
        query = _query(request)
        request.authorize("os_compute_api:os-migrations:index")
        if query.project_id not in {None, request.caller.project_id}:
            request.authorize("os_compute_api:os-migrations:index:all_projects")
        if not request.caller.is_admin:
            query = replace(query, project_id=request.caller.project_id or "")
        paging = paging_of(request, self._access.max_limit, since=_UUIDS_SINCE)
        after = await self._position_of(paging.marker) if paging.marker else None
        pages = await self._access.ask_cells(lambda cell: self._log(cell).page(query, paging.limit, after))
        merged = heapq.merge(*(page for _, page in pages.answers), key=_order, reverse=True)
        found = list(islice(merged, paging.limit))
        link = next_link(request, "migrations_links", "os-migrations", paging, [migration.uuid for migration in found])
        return json_answer(
            {"migrations": [_item(request, migration) for migration in found], **link}, headers=pages.headers
        )

    async def of_server(self, request: ApiRequest) -> Response:
        server = await find_server(self._access, request)
        request.authorize("os_compute_api:servers:migrations:index")
        found = await self._in_progress(server)
        return json_answer({"migrations": [_live_item(request, migration) for migration in found]})

    async def show(self, request: ApiRequest) -> Response:
        server = await find_server(self._access, request)
        request.authorize("os_compute_api:servers:migrations:show")
        return json_answer({"migration": _live_item(request, await self._one(request, server))})

    async def force_complete(self, request: ApiRequest) -> Response:
        """Refuse: a simulated host moves a guest in one step, which cannot be hurried. Raises NotFoundError."""
        await FORCE_COMPLETE.read(request)
        server = await find_server(self._access, request)
        request.authorize("os_compute_api:servers:migrations:force_complete")
        raise _not_found(request, server)

    async def abort(self, request: ApiRequest) -> Response:
        """Refuse as in `force_complete`: no migration waits long enough to be aborted. Raises NotFoundError."""
        server = await find_server(self._access, request)
        request.authorize("os_compute_api:servers:migrations:delete")
        raise _not_found(request, server)

    async def _one(self, request: ApiRequest, server: FoundServer) -> Migration:
        wanted = request.http.path_params["migration_id"]
        for migration in await self._in_progress(server):
            if str(migration.id) == wanted:
                return migration
        raise _not_found(request, server)

    async def _in_progress(self, server: FoundServer) -> Sequence[Migration]:
        query = MigrationQuery(instance_uuid=server.uuid, migration_type=LIVE, statuses=IN_PROGRESS)
        page = partial(self._log(server.cell).page, query, self._access.max_limit)
        return await self._access.ask_cell(server.cell, page)

    async def _position_of(self, marker: str) -> tuple[int, str]:
        """Find the marker's position. Raises MarkerNotFoundError, and CellDownError if it may be in a down cell."""
        found = await self._access.find_in_cells(lambda cell: self._log(cell).find(marker))
        if found is None:
            raise MarkerNotFoundError(marker)
        return _order(found[1])

    def _log(self, cell: Cell) -> MigrationLog:
        return MigrationLog(self._access.native.engine(cell), cell)


def _order(migration: Migration) -> tuple[int, str]:
    return migration.created_at, migration.uuid


def _query(request: ApiRequest) -> MigrationQuery:
    """Parse the query string. Raises ParameterError, BadRequestError."""
    values: dict[str, Any] = {name: request.query.last(name) for name in _FILTERS if name in request.query}
    if request.minor >= _UUIDS_SINCE:
        values["changes_since"] = time_of(request, "changes-since")
    if request.minor >= _BEFORE_SINCE:
        values["changes_before"] = time_of(request, "changes-before")
    since, before = values.get("changes_since"), values.get("changes_before")
    if since is not None and before is not None and before < since:
        raise BadRequestError("The value of changes-since must be less than or equal to changes-before.")
    if request.minor >= _OWNERS_SINCE:
        values |= {name: request.query.last(name) for name in ("user_id", "project_id") if name in request.query}
    return MigrationQuery(**values)


def _item(request: ApiRequest, migration: Migration) -> dict[str, Any]:
    values = {
        **_common(request, migration),
        "instance_uuid": migration.instance_uuid,
        "old_instance_type_id": migration.old_instance_type_id,
        "new_instance_type_id": migration.new_instance_type_id,
        "migration_type": migration.migration_type,
    }
    if migration.migration_type == LIVE and migration.status in IN_PROGRESS:
        path = f"servers/{migration.instance_uuid}/migrations/{migration.id}"
        values["links"] = [
            {"rel": "self", "href": f"{request.links.versioned}/{path}"},
            {"rel": "bookmark", "href": f"{request.links.plain}/{path}"},
        ]
    return _MIGRATION.of(request.minor, values)


def _live_item(request: ApiRequest, migration: Migration) -> dict[str, Any]:
    """Show a running migration, without progress, which simulated hosts do not measure."""
    values = {
        **_common(request, migration),
        "server_uuid": migration.instance_uuid,
        **dict.fromkeys(_PROGRESS),
    }
    return _LIVE_MIGRATION.of(request.minor, values)


def _common(request: ApiRequest, migration: Migration) -> dict[str, Any]:
    return {
        "id": migration.id,
        "uuid": migration.uuid,
        "status": migration.status,
        **{name: getattr(migration, name) if request.caller.is_admin else None for name in _HOSTS},
        "created_at": without_zone(migration.created_at),
        "updated_at": without_zone(migration.updated_at),
        "user_id": migration.user_id,
        "project_id": migration.project_id,
    }


def _not_found(request: ApiRequest, server: FoundServer) -> NotFoundError:
    wanted = request.http.path_params["migration_id"]
    return NotFoundError(f"Migration {wanted} for server {server.uuid} could not be found.")
