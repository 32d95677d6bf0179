"""Changes of tags of cells, instances, nodes, groups and networks (contracts/ganeti-rapi, 4)."""

from collections.abc import Iterator
from functools import partial

from starlette.responses import Response

from fleetlight.api.rapi.access import OPERATORS
from fleetlight.api.rapi.endpoint import RapiRequest, Resource, Verb, resource
from fleetlight.manager.faces.rapi.item_changes import ALL_ITEMS, Items
from fleetlight.manager.faces.rapi.opcode_request import opcode_of
from fleetlight.manager.faces.rapi.submitting import Submitter
from fleetlight.manager.faces.rapi.target import Targets
from fleetlight.manager.operations.opcodes.tags import TagsDel, TagsSet


class TagChanges:
    """The resources of tags, which requests name in parameters of the address; bodies are ignored."""

    def __init__(self, targets: Targets, submitter: Submitter) -> None:
        self._targets = targets
        self._submitter = submitter

    def resources(self) -> Iterator[Resource]:
        for items in (None, *ALL_ITEMS):
            verbs = (("PUT", TagsSet), ("DELETE", TagsDel))
            path = "/tags" if items is None else f"{items.path}/tags"
            yield resource(path, {verb: Verb(partial(self._change, items, op), OPERATORS) for verb, op in verbs})

    async def _change(self, items: Items | None, opcode: type[TagsSet | TagsDel], request: RapiRequest) -> Response:
        """Add or remove tags. items: None for the tags of the cell itself."""
        name = request.names.get("item", "")
        static = {
            "kind": "cluster" if items is None else items.kind,
            "name": name or None,
            "tags": request.query.all("tag"),
            "dry_run": request.flag("dry-run"),
        }
        resource_name = "tags" if items is None else f"{items.collection}_name_tags"
        op = await opcode_of(request, opcode, resource_name, static, takes_body=False)
        if items is None:
            cell = await self._targets.only_cell(request, "tags")
        else:
            cell = await items.cell_of(self._targets, request, name)
        return await self._submitter.submit(request, cell, op)
