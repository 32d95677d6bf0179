"""`GET /servers/{id}`: one server, from its cell."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import msgspec
from starlette.responses import Response

from fleetlight.api.compute.hosts.host_status import HostStatusCache, full_template
from fleetlight.api.compute.server_lists import down_cells
from fleetlight.api.http.errors import BadRequestError, ServerNotFoundError
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.proof import proof_headers, wanted_cell_timeout
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.errors import CellUnreachableError, UnknownCellError, UnreadableRowError
from fleetlight.cells.fleet.fleet import InstanceMapping
from fleetlight.cells.kinds.nova_db.deployment import NovaRequestSpec
from fleetlight.cells.model import Cell, InstanceRow
from fleetlight.indexer.backends.base import is_time
from fleetlight.listing.answer import CellAnswer, Page, Route
from fleetlight.listing.errors import CellDownError
from fleetlight.listing.find_instance import InstanceFinder
from fleetlight.listing.sources import CellReader, ask_fleet, damaged_row, rendered
from fleetlight.resources.fields import Record
from fleetlight.resources.instance import BLANK_INSTANCE
from fleetlight.resources.uuids import is_uuid
from fleetlight.views.compute.view import MINIMAL_ITEMS_SINCE, FullTemplate, HostStatuses

_SERVER_GROUPS_SINCE = 71
_NO_PARAMETERS_SINCE = 102
_JSON = "application/json"


class ServerShowHandler:
    """The handler of one server. timeout_s: time limit of the cell, and of the fleet database.

    request_spec_of: reads a server's request spec from the deployment of a Nova cell. groups_of: reads the groups of a
        project that a server belongs to; None if unknown. Both block.
    """

    def __init__(
        self,
        finder: InstanceFinder,
        reader: CellReader,
        host_statuses: HostStatusCache,
        *,
        request_spec_of: Callable[[Cell, str], NovaRequestSpec | None],
        groups_of: Callable[[Cell, str, str | None], Sequence[str] | None],
        timeout_s: float,
    ) -> None:
        self._groups_of = groups_of
        self._request_spec_of = request_spec_of
        self._finder = finder
        self._reader = reader
        self._host_statuses = host_statuses
        self._timeout_s = timeout_s

    async def show(self, request: ApiRequest) -> Response:
        """`GET /servers/{id}`: from the cell that its mapping names; from the index while that cell is down.

        Raises BadRequestError or ServerNotFoundError.
        """
        server_id = request.http.path_params["server_id"]
        if request.minor >= _NO_PARAMETERS_SINCE and request.query.pairs:
            unexpected = request.query.pairs[0][0]
            raise BadRequestError(f"Additional query parameters are not allowed ('{unexpected}' was unexpected)")
        timeout_s = wanted_cell_timeout(request.http.headers, self._timeout_s)
        mapping = await self._finder.mapping_of(server_id, timeout_s) if is_uuid(server_id) else None
        if mapping is None or not request.caller.may_see(mapping.project_id, mapping.user_id):
            raise ServerNotFoundError(server_id)
        request.authorize("os_compute_api:servers:show")
        cells = {cell.uuid: cell for cell in await self._reader.cells()}
        cell = cells.get(mapping.cell_uuid) or _unlisted(mapping.cell_uuid)
        try:
            row = await self._finder.row_of(mapping.instance_uuid, mapping.cell_uuid, timeout_s)
        except (CellUnreachableError, UnknownCellError) as error:
            return await self._show_down(request, mapping, cell, error)
        if row is not None and cell.can.numbers_changes and not is_time(row.revision):
            await request.hand_out_token(row)  # even if deleted, so that the next list lacks the server
        statuses = await self._host_statuses.shown_to(request)
        try:
            if row is None or row.record["deleted"] or row.record["forthcoming"]:
                raise ServerNotFoundError(server_id)
            groups_of = partial(self._groups_of, cell, row.uuid)
            row = await with_visible_groups(request, row, groups_of, self._timeout_s)
            item = show_item(request, row, statuses)
        except UnreadableRowError as error:
            return await self._show_down(request, mapping, cell, error)
        return _server_response(request, item, CellAnswer(cell, Route.LIVE, is_complete=True))

    async def _show_down(self, request: ApiRequest, mapping: InstanceMapping, cell: Cell, error: Exception) -> Response:
        is_damaged = isinstance(error, UnreadableRowError)
        if not (is_damaged or mapping.queued_for_delete) and (
            answer := await self._show_indexed(request, cell, mapping)
        ):
            return answer
        if request.minor < MINIMAL_ITEMS_SINCE:
            raise CellDownError(mapping.cell_uuid) from error
        if mapping.queued_for_delete:
            raise ServerNotFoundError(mapping.instance_uuid)
        versioned, plain = request.links.as_json
        # Without later keys, and without those for administrators.
        template = FullTemplate(MINIMAL_ITEMS_SINCE, is_admin=False, versioned_base=versioned, plain_base=plain)
        uuid = mapping.instance_uuid
        known = await self._finder.known_item(uuid, mapping.cell_uuid, template)
        if cell.can.maps_instances:
            spec = await ask_fleet(partial(self._request_spec_of, cell, uuid), self._timeout_s)
            if spec is not None:
                mapping = replace(mapping, user_id=spec.user_id)
                known = template.render_record(_of_spec(mapping, spec))
            elif known is None and not is_damaged:
                # Like Nova: the server may have been deleted before its cell went down, and its request spec archived.
                raise ServerNotFoundError(uuid)
        groups = None if request.minor < _SERVER_GROUPS_SINCE else await self._groups(request, cell, mapping)
        item = down_cells.shown_item(mapping, request.links, known, groups)
        return _server_response(request, item, CellAnswer(cell, Route.SKIPPED, is_complete=False))

    async def _groups(self, request: ApiRequest, cell: Cell, mapping: InstanceMapping) -> Sequence[str]:
        """Find the groups of a server without its cell, of those that the caller may see."""
        project_id = None if request.caller.is_admin else request.caller.project_id
        groups_of = partial(self._groups_of, cell, mapping.instance_uuid, project_id)
        return await ask_fleet(groups_of, self._timeout_s) or ()

    async def _show_indexed(self, request: ApiRequest, cell: Cell, mapping: InstanceMapping) -> Response | None:
        """Show a server of a down cell from the index; None if the index does not have it.

        Raises ServerNotFoundError for a reservation.
        """
        uuid, statuses = mapping.instance_uuid, await self._host_statuses.shown_to(request)
        template = full_template(request, statuses).of_cell_that_is_down()
        answer = await self._finder.answer_while_down(cell)
        item = None if answer is None else await self._finder.known_item(uuid, cell.uuid, template)
        if answer is None:
            return None
        if item is None:
            if await self._finder.known_item(uuid, cell.uuid, template, forthcoming=True) is not None:
                raise ServerNotFoundError(uuid)
            return None
        shown = msgspec.json.decode(item)
        if "scheduler_hints" in shown:
            shown["scheduler_hints"] = shown["scheduler_hints"] or {}
        if request.minor >= _SERVER_GROUPS_SINCE:
            shown["server_groups"] = await self._groups(request, cell, mapping)
        return _server_response(request, msgspec.json.encode(shown), answer)


async def with_visible_groups(
    request: ApiRequest, row: InstanceRow, groups_of: Callable[[str], Sequence[str] | None], timeout_s: float
) -> InstanceRow:
    """Remove groups of other projects from a server; as in Nova, only administrators see them.

    groups_of: reads its groups of a project, or None if unknown; blocks. Raises FleetUnreachableError.
    """
    project_id, groups = request.caller.project_id, row.record["server_groups"]
    if request.minor < _SERVER_GROUPS_SINCE or request.caller.is_admin or not groups or project_id is None:
        return row
    own = await ask_fleet(partial(groups_of, project_id), timeout_s)
    if own is None:
        return row
    visible = [group for group in groups if group in own]
    return InstanceRow(row.cell_uuid, row.revision, {**row.record, "server_groups": visible})


def show_item(request: ApiRequest, row: InstanceRow, host_statuses: HostStatuses | None) -> bytes:
    """Render one server for `GET /servers/{id}`; with `host_status` only if statuses are given.

    Raises UnreadableRowError for a damaged row.
    """
    template = full_template(request, host_statuses)
    try:
        # Without stored hints, a single server shows empty hints, while lists show that they are unknown.
        record = {**row.record, "scheduler_hints": row.record["scheduler_hints"] or {}}
    except UnreadableRowError as error:
        raise damaged_row(row, error) from error
    item = rendered(InstanceRow(row.cell_uuid, row.revision, record), template)
    if request.minor < _SERVER_GROUPS_SINCE:
        return item
    return item[:-1] + b',"server_groups":' + msgspec.json.encode(row.record["server_groups"] or []) + b"}"


def _of_spec(mapping: InstanceMapping, spec: NovaRequestSpec) -> Record:
    """Make the record of a server from its request spec."""
    return {
        **BLANK_INSTANCE,
        "uuid": mapping.instance_uuid,
        "project_id": mapping.project_id,
        "created_at": mapping.created_at,
        "flavor": spec.flavor,
        "image_ref": spec.image_ref or "",
        "availability_zone": spec.availability_zone,
    }


def _unlisted(uuid: str) -> Cell:
    """Make a placeholder for a cell registered after the list of cells was read; only its uuid is known."""
    return Cell(uuid, uuid, CellKind.NATIVE, database_url="", transport_url="")


def _server_response(request: ApiRequest, item: bytes, answer: CellAnswer) -> Response:
    headers = proof_headers(Page(item, 1, None, [answer]), request.caller)
    return Response(b'{"server":' + item + b"}", media_type=_JSON, headers=headers)
