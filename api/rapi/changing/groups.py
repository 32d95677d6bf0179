"""What changes node groups (contracts/ganeti-rapi, 4)."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from starlette.responses import Response

from fleetlight.api.rapi.access import OPERATORS
from fleetlight.api.rapi.changing.opcode_request import opcode_of
from fleetlight.api.rapi.changing.submitting import Submitter
from fleetlight.api.rapi.changing.target import Targets
from fleetlight.api.rapi.endpoint import NAME, RapiRequest, Resource, Verb, resource
from fleetlight.operations.opcodes.groups import GroupAdd, GroupAssignNodes, GroupRemove, GroupRename, GroupSetParams
from fleetlight.operations.opcodes.lookups import groups_called

_ONE = f"/groups/(?P<group>{NAME})"
_NAMES_OF_VALUES = {
    "custom_ndparams": "ndparams",
    "custom_ipolicy": "ipolicy",
    "custom_diskparams": "diskparams",
}


class GroupChanges:
    """Requests about groups."""

    def __init__(self, targets: Targets, submitter: Submitter) -> None:
        self._targets = targets
        self._submitter = submitter

    def resources(self) -> Iterator[Resource]:
        yield resource("/groups", {"POST": Verb(self._add, OPERATORS)})
        yield resource(_ONE, {"DELETE": Verb(self._remove, OPERATORS)})
        for path, handler in (
            ("modify", self._modify),
            ("rename", self._rename),
            ("assign-nodes", self._assign_nodes),
        ):
            yield resource(f"{_ONE}/{path}", {"PUT": Verb(handler, OPERATORS)})

    async def _add(self, request: RapiRequest) -> Response:
        static = {"dry_run": request.flag("dry-run")}
        op = await opcode_of(request, GroupAdd, "groups", static, renamed={"name": "group_name"}, needs_body=True)
        return await self._submitter.submit(request, await self._targets.only_cell(request, "groups"), op)

    async def _remove(self, request: RapiRequest) -> Response:
        return await self._submit(request, GroupRemove, "groups_name", {}, takes_body=False)

    async def _modify(self, request: RapiRequest) -> Response:
        return await self._submit(request, GroupSetParams, "groups_name_modify", {}, renamed=_NAMES_OF_VALUES)

    async def _rename(self, request: RapiRequest) -> Response:
        return await self._submit(request, GroupRename, "groups_name_rename", {}, needs_body=True)

    async def _assign_nodes(self, request: RapiRequest) -> Response:
        static = {"force": request.flag("force")}
        return await self._submit(request, GroupAssignNodes, "groups_name_assign_nodes", static, needs_body=True)

    async def _submit(
        self, request: RapiRequest, opcode: Any, name: str, static: Mapping[str, Any], **options: Any
    ) -> Response:
        """static: the parameters of the address, beside the group, and whether it is a trial run."""
        group = request.names["group"]
        of_all = {"group_name": group, "dry_run": request.flag("dry-run")}
        op = await opcode_of(request, opcode, name, {**of_all, **static}, **options)
        cell = await self._targets.of_item(request, partial(groups_called, name=group))
        return await self._submitter.submit(request, cell, op)
