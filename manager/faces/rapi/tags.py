"""What changes the tags of cells, instances, nodes, groups and networks (contracts/ganeti-rapi, 4)."""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from typing import Any

from starlette.responses import Response

from fleetlight.api.rapi.access import OPERATORS
from fleetlight.api.rapi.endpoint import NAME, RapiRequest, Resource, Verb, resource
from fleetlight.cells.model import Cell
from fleetlight.manager.faces.rapi.opcode_request import opcode_of
from fleetlight.manager.faces.rapi.submitting import Submitter
from fleetlight.manager.faces.rapi.target import Targets
from fleetlight.manager.operations.opcodes.lookups import groups_called, networks_called, nodes_called
from fleetlight.manager.operations.opcodes.tags import TagsDel, TagsSet

_NAME = "name"
# By the collection of a path: what the operation calls them, and what finds one.
_FOUND_BY: dict[str, tuple[str, Callable[..., Any]]] = {
    "nodes": ("node", nodes_called),
    "groups": ("nodegroup", groups_called),
    "networks": ("network", networks_called),
}


class TagChanges:
    """Requests that add and take away tags; they are parameters of the address, and no body counts."""

    def __init__(self, targets: Targets, submitter: Submitter) -> None:
        self._targets = targets
        self._submitter = submitter

    def resources(self) -> Iterator[Resource]:
        yield self._resource("/tags", "cluster", "tags", self._cell)
        yield self._resource(
            f"/instances/(?P<{_NAME}>{NAME})/tags", "instance", "instances_name_tags", self._cell_of_instance
        )
        for collection, (kind, find) in _FOUND_BY.items():
            path, name = f"/{collection}/(?P<{_NAME}>{NAME})/tags", f"{collection}_name_tags"
            yield self._resource(path, kind, name, partial(self._cell_of_item, find))

    def _resource(self, path: str, kind: str, name: str, cell_of: Callable[[RapiRequest], Awaitable[Cell]]) -> Resource:
        async def change(opcode: Any, request: RapiRequest) -> Response:
            static = {
                "kind": kind,
                "name": request.names.get(_NAME),
                "tags": request.query.all("tag"),
                "dry_run": request.flag("dry-run"),
            }
            op = await opcode_of(request, opcode, name, static, takes_body=False)
            return await self._submitter.submit(request, await cell_of(request), op)

        return resource(
            path,
            {"PUT": Verb(partial(change, TagsSet), OPERATORS), "DELETE": Verb(partial(change, TagsDel), OPERATORS)},
        )

    async def _cell(self, request: RapiRequest) -> Cell:
        return await self._targets.only_cell(request, "tags")

    async def _cell_of_instance(self, request: RapiRequest) -> Cell:
        return await self._targets.of_instance(request, request.names[_NAME])

    async def _cell_of_item(self, find: Callable[..., Any], request: RapiRequest) -> Cell:
        return await self._targets.of_item(request, partial(find, name=request.names[_NAME]))
