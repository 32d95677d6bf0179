"""`GET /fleetlight/servers/{server_id}/history`: the changes of a server of a native cell, newest first."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from starlette.responses import Response

from fleetlight.api.documented import ApiOperation
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.errors import BadRequestError
from fleetlight.api.http.query_string import QueryString
from fleetlight.api.http.shapes import INTEGER, OBJECT, TEXT, ListOf, Shape, or_null
from fleetlight.api.query.scope import visible_fields
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.api.shared.server_lookup import find_server
from fleetlight.api.shared.times import without_zone
from fleetlight.cells.kinds.native.instance_history import HistoryEntry, InstanceHistory
from fleetlight.resources.fields import Kind, from_microseconds
from fleetlight.resources.query_fields.definitions import QueryFields

_DEFAULT_LIMIT = 100
_MAX_LIMIT = 200
_MAX_DIGITS = 18

HISTORY = ApiOperation(
    "GET",
    "/fleetlight/servers/{server_id}/history",
    Shape(
        {
            "history": ListOf(
                Shape(
                    {
                        "revision": INTEGER,
                        "at": TEXT,
                        "event": TEXT,
                        "publisher": TEXT,
                        **dict.fromkeys(("request_id", "user_id", "project_id"), or_null(TEXT)),
                        "changed": or_null(OBJECT),
                    }
                )
            ),
            "before": or_null(INTEGER),
        }
    ),
    query=("limit", "before"),
    faults=(400, 404, 501),
    summary="What became of a server, the newest change first: when, by which user, and each field before and after",
)


class HistoryHandler:
    def __init__(self, access: FleetAccess) -> None:
        self._access = access

    async def show(self, request: ApiRequest) -> Response:
        """Answer with a page of the history. Raises the errors of `find_server`; 501 for cells without a changelog."""
        limit = min(_number(request.query, "limit", _DEFAULT_LIMIT) or _DEFAULT_LIMIT, _MAX_LIMIT)
        before = _number(request.query, "before", None)
        server = await find_server(self._access, request, also_deleted=True)
        history = InstanceHistory(self._access.native.engine(server.cell), server.cell)
        # One more entry tells whether older ones exist.
        found = await self._access.ask_cell(
            server.cell, partial(history.entries, server.uuid, limit + 1, before=before)
        )
        entries = found[:limit]
        visible = visible_fields("instance", request.caller)
        return json_answer(
            {
                "history": [entry_shown(entry, visible) for entry in entries],
                "before": entries[-1].revision if len(found) > limit else None,
            }
        )


def entry_shown(entry: HistoryEntry, visible: QueryFields) -> dict[str, Any]:
    """Show a change. visible: the fields of instances that the caller may see."""
    return {
        "revision": entry.revision,
        "at": f"{without_zone(entry.at)}Z",
        "event": entry.event_type,
        "publisher": entry.publisher_id.partition(":")[0] if "host" not in visible else entry.publisher_id,
        "request_id": entry.request_id,
        "user_id": entry.user_id,
        "project_id": entry.project_id,
        "changed": None
        if entry.changed is None
        else {
            name: [_value(visible, name, value) for value in values]
            for name, values in _by_field(entry.changed)
            if name in visible
        },
    }


def _by_field(changed: Mapping[str, tuple[Any, Any]]) -> Iterator[tuple[str, tuple[Any, Any]]]:
    """Yield the changed fields. Ganeti's own values are one field of the record, and each is a field here."""
    yield from changed.items()
    before, after = (said["values"] if said else {} for said in changed.get("ganeti", (None, None)))
    for name in sorted(before.keys() | after.keys()):
        if name not in changed and before.get(name) != after.get(name):
            yield name, (before.get(name), after.get(name))


def _value(visible: QueryFields, name: str, value: Any) -> Any:
    if value is not None and visible[name].kind is Kind.TIMESTAMP:
        return f"{from_microseconds(value).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"
    return value


def _number(query: QueryString, name: str, default: int | None) -> int | None:
    text = query.last(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdigit() or len(text) > _MAX_DIGITS or not int(text):
        raise BadRequestError(f"{name}: '{text}' is no whole number from 1 on")
    return int(text)
