"""The tools, each of which is one request to the API."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import msgspec
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.types import ToolAnnotations
from pydantic import Field

from fleetlight.api.assistants.results import Result, fault_said, result_of, rows_shown
from fleetlight.api.http.in_process import InProcessResponse
from fleetlight.cells.model import FIRST_REVISION
from fleetlight.listing.cell_board import CellHealth
from fleetlight.resources.clock import Clock
from fleetlight.resources.fields import Kind

Ask = Callable[[str, str, Mapping[str, str]], Awaitable[InProcessResponse]]
"""Answers a GET of a path with a query and headers."""

_OK = 200
_LOGIN = ("x-auth-token", "authorization", "x-project-id", "x-user-id", "x-roles")
_MOST = 1000
_WHOLE = "This is everything."
_LAST = "This is the last part: with those before it it is everything."
_AS_KEPT = "This is as far back as changes are kept; there may have been others before."
_READS = ToolAnnotations(read_only_hint=True, idempotent_hint=True, open_world_hint=False)
_INSTRUCTIONS = """\
Fleetlight lists what runs on many cells (clouds, clusters), and says of each answer what it covers.
Every result begins with `summary`. Where that says INCOMPLETE or ONLY A PART, tell the user so: never present
such a result as the whole, and never take a missing item for a deleted one. To count, use `count`, not the rows of a
list. `fields` names the fields that filters and lists take. A filter is a text such as
`status == "running" and be/memory > 4096`, with ==, !=, <, >, =~ (a pattern), `"x" in tags`, and, or, not, brackets;
times are texts such as "2026-11-28T18:00Z" or "10m ago"."""

ItemType = Literal["instance", "node", "group", "network", "job", "lock", "os", "export", "filter"]
What = Annotated[ItemType, Field(description="The type of items; members may ask for instances alone.")]
Filter = Annotated[str | None, Field(description='Such as `status == "running" and name =* "web*"`.')]
EveryProject = Annotated[bool, Field(description="Of all projects, for administrators, and not of one's own.")]
Server = Annotated[str, Field(pattern="^[0-9a-fA-F-]{32,36}$", description="The uuid of an instance.")]


class Tools:
    """The tools, by the names of their methods. ask: sends a request to the API with the caller's login."""

    def __init__(self, ask: Ask, clock: Clock) -> None:
        self._ask = ask
        self._clock = clock

    async def query(
        self,
        context: Context,
        *,
        fields: Annotated[list[str], Field(description="Names of fields, as `fields` tells them.")],
        what: What = "instance",
        filter: Filter = None,  # the word of the API
        order: Annotated[str | None, Field(description="Fields to sort by: `-ctime,name`.")] = None,
        limit: Annotated[int, Field(ge=1, le=_MOST)] = 100,
        marker: Annotated[str | None, Field(description="Of the result before, for its next part.")] = None,
        all_projects: EveryProject = False,
        as_of: Annotated[str | None, Field(description="A moment of the past: instances as they were then.")] = None,
    ) -> Result:
        """List items of all cells: chosen fields of those that a filter lets pass, in an order, page by page."""
        asked: dict[str, object] = {
            "what": what,
            "fields": ",".join(fields),
            "filter": filter,
            "order": order,
            "limit": limit,
        }
        answer, found = await self._get(
            context, "/fleetlight/query", asked | {"marker": marker, "as_of": as_of} | _every(all_projects)
        )
        if unknown := [field["name"] for field in found["fields"] if field["kind"] == Kind.UNKNOWN]:
            raise ToolError(
                f"there is no field {', '.join(unknown)} of {what} here: the tool fields names those there are"
            )
        rows = rows_shown(found["fields"], found["data"])
        more = None if found["marker"] is None else f'call query again, the same with marker="{found["marker"]}"'
        whole = _WHOLE if marker is None else _LAST
        said = f"{len(rows)} items of type {what}"
        return result_of(answer, rows, said, self._clock(), following=more, whole=whole, moment=as_of)

    async def count(
        self,
        context: Context,
        *,
        what: What = "instance",
        by: Annotated[
            str | None, Field(description="Up to four fields whose values make groups: `cell,status`.")
        ] = None,
        filter: Filter = None,
        all_projects: EveryProject = False,
    ) -> Result:
        """Count the items that a filter lets pass, in all or in groups. Exact where the result is complete."""
        asked: dict[str, object] = {"what": what, "by": by, "filter": filter}
        answer, found = await self._get(context, "/fleetlight/query/counts", asked | _every(all_projects))
        groups = [{"by": group["by"], "count": group["count"]} for group in found["groups"]]
        total = sum(group["count"] for group in groups)
        missing = ["only a part was counted, since there is too much for one request"] if found["partial"] else []
        return result_of(answer, groups, f"{total} items of type {what} counted", self._clock(), missing=missing)

    async def fields(self, context: Context, *, what: What = "instance") -> Result:
        """Name the fields of an item type, with what they mean, their kinds, and which can be sorted by."""
        answer, found = await self._get(context, "/fleetlight/query/fields", {"what": what})
        return result_of(answer, found["fields"], f"{len(found['fields'])} fields of type {what}", self._clock())

    async def show(self, context: Context, *, server_id: Server) -> Result:
        """Show all of one instance: state, fault, host, flavor, addresses, volumes, tags, metadata."""
        path = f"/v2.1/servers/{server_id}"
        answer, found = await self._get(context, path, {}, {"OpenStack-API-Version": "compute latest"})
        return result_of(answer, found["server"], f"instance {found['server']['id']}", self._clock())

    async def history(
        self,
        context: Context,
        *,
        server_id: Server,
        limit: Annotated[int, Field(ge=1, le=100)] = 20,
        before: Annotated[int | None, Field(description="A revision: only the changes before it.")] = None,
    ) -> Result:
        """Tell what was done to one instance, the newest first: when, by whom, and what changed from what to what."""
        path = f"/fleetlight/servers/{server_id}/history"
        answer, found = await self._get(context, path, {"limit": limit, "before": before})
        more = None if found["before"] is None else f"call history again with before={found['before']}"
        entries = found["history"]
        whole = _LAST if entries and entries[-1]["revision"] == FIRST_REVISION else _AS_KEPT
        said = f"{len(entries)} changes"
        return result_of(answer, entries, said, self._clock(), following=more, whole=whole)

    async def changes(
        self,
        context: Context,
        *,
        filter: Filter = None,
        limit: Annotated[int, Field(ge=1, le=200)] = 50,
        marker: Annotated[str | None, Field(description="Of the result before, for older changes.")] = None,
        all_projects: EveryProject = False,
    ) -> Result:
        """Tell what changed lately in the instances of all cells, the newest first, and who asked for it."""
        asked: dict[str, object] = {"filter": filter, "limit": limit, "marker": marker}
        answer, found = await self._get(context, "/fleetlight/changes/recent", asked | _every(all_projects))
        more = None if found["marker"] is None else f'call changes again, the same with marker="{found["marker"]}"'
        return result_of(
            answer,
            found["changes"],
            f"{len(found['changes'])} changes",
            self._clock(),
            following=more,
            whole=f"{_AS_KEPT} Of a cell of Nova or Ganeti it is the newest change of each instance.",
            is_complete=found["complete"],
            missing=[f"cell {each['cell']}: {each['reason']}" for each in found.get("missing", ())],
        )

    async def explain(
        self,
        context: Context,
        *,
        what: What = "instance",
        filter: Filter = None,
        all_projects: EveryProject = True,
    ) -> Result:
        """Say why a query is answered as it is: which cells, from where, how old, what is missing. Administrators."""
        asked = {
            "what": what,
            "fields": "name",
            **({} if filter is None else {"filter": filter}),
            **_every(all_projects),
        }
        request = f"GET /fleetlight/query?{urlencode(asked)}"
        answer, found = await self._get(context, "/fleetlight/explain", {"request": request})
        why = [f"cell {cell['cell']}: {cell['why']}" for cell in found["cells"] if not cell["complete"]]
        return result_of(answer, found, request, self._clock(), is_complete=found["complete"], missing=why)

    async def capacity(
        self,
        context: Context,
        *,
        vcpus: Annotated[int | None, Field(ge=0, description="Of an instance: how many more fit?")] = None,
        memory_mib: Annotated[int | None, Field(ge=0)] = None,
        disk_mib: Annotated[int | None, Field(ge=0)] = None,
    ) -> Result:
        """Tell what the nodes of all cells have, use, reserve and have free, and how many more fit. Administrators."""
        size = {"vcpus": vcpus, "memory_mib": memory_mib, "disk_mib": disk_mib}
        answer, found = await self._get(context, "/fleetlight/capacity", size)
        missing = [f"cell {each['cell']}: {each['why']}" for each in found["missing"]]
        return result_of(answer, found, f"capacity of {len(found['cells'])} cells", self._clock(), missing=missing)

    async def findings(self, context: Context) -> Result:
        """List what is not as it should be in the fleet, with evidence, age and remedy. Administrators."""
        answer, found = await self._get(context, "/fleetlight/findings", {})
        return result_of(
            answer,
            found["findings"],
            f"{len(found['findings'])} findings" if found["findings"] else "no findings",
            self._clock(),
            is_complete=found["complete"],
            missing=[
                f"{each['source']} of {each['cell'] or 'the fleet'}: {each['reason']}" for each in found["missing"]
            ],
        )

    async def cells(self, context: Context) -> Result:
        """List the cells: kind, health, how far the index follows each, how many instances. Administrators."""
        answer, found = await self._get(context, "/fleetlight/cells", {})
        down = [
            f"cell {cell['name']}: {cell['reason'] or cell['health']}"
            for cell in found["cells"]
            if cell["health"] == CellHealth.DOWN
        ]
        said = f"{len(found['cells'])} cells"
        return result_of(answer, found, said, self._clock(), is_complete=not down, missing=down)

    async def _get(
        self, context: Context, path: str, query: Mapping[str, object], headers: Mapping[str, str] | None = None
    ) -> tuple[InProcessResponse, Any]:
        """Return the API's answer and its document. Raises ToolError with the API's message if it refuses."""
        given = {name: value for name, value in query.items() if value not in (None, "")}
        answer = await self._ask(path, urlencode(given), {**_login(context), **(headers or {})})
        if answer.status != _OK:
            raise ToolError(fault_said(answer))
        return answer, msgspec.json.decode(answer.body)


def make_server(ask: Ask, clock: Clock, version: str) -> MCPServer[None]:
    """Make an MCP server of the tools."""
    server: MCPServer[None] = MCPServer("fleetlight", version=version, instructions=_INSTRUCTIONS, subscriptions=False)
    of = Tools(ask, clock)
    for tool in (
        of.query,
        of.count,
        of.fields,
        of.show,
        of.history,
        of.changes,
        of.explain,
        of.capacity,
        of.findings,
        of.cells,
    ):
        server.add_tool(tool, annotations=_READS)
    return server


def over_http(server: MCPServer[None]) -> StreamableHTTPSessionManager:
    """Serve the tools over HTTP without sessions. The API itself checks host names and pages of other sites."""
    trusting = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    server.streamable_http_app(json_response=True, stateless_http=True, transport_security=trusting)
    return server.session_manager


def _every(all_projects: bool) -> dict[str, object]:
    return {"all_projects": 1} if all_projects else {}


def _login(context: Context) -> dict[str, str]:
    """Return the login headers of the HTTP request that carries the call; none for a call over a pipe."""
    request = context.request_context.request
    if request is None:
        return {}
    return {name: request.headers[name] for name in _LOGIN if name in request.headers}
