"""What changes networks (contracts/ganeti-rapi, 4)."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from starlette.responses import Response

from fleetlight.api.rapi.access import OPERATORS
from fleetlight.api.rapi.changing.opcode_request import opcode_of
from fleetlight.api.rapi.changing.submitting import Submitter
from fleetlight.api.rapi.changing.target import Targets
from fleetlight.api.rapi.endpoint import NAME, RapiRequest, Resource, Verb, resource
from fleetlight.operations.opcodes.lookups import networks_called
from fleetlight.operations.opcodes.networks import (
    NetworkAdd,
    NetworkConnect,
    NetworkDisconnect,
    NetworkRemove,
    NetworkRename,
    NetworkSetParams,
)

_ONE = f"/networks/(?P<network>{NAME})"


class NetworkChanges:
    """Requests about networks."""

    def __init__(self, targets: Targets, submitter: Submitter) -> None:
        self._targets = targets
        self._submitter = submitter

    def resources(self) -> Iterator[Resource]:
        yield resource("/networks", {"POST": Verb(self._add, OPERATORS)})
        yield resource(_ONE, {"DELETE": Verb(self._remove, OPERATORS)})
        for path, handler in (
            ("modify", self._modify),
            ("rename", self._rename),
            ("connect", self._connect),
            ("disconnect", self._disconnect),
        ):
            yield resource(f"{_ONE}/{path}", {"PUT": Verb(handler, OPERATORS)})

    async def _add(self, request: RapiRequest) -> Response:
        static = {"dry_run": request.flag("dry-run")}
        op = await opcode_of(request, NetworkAdd, "networks", static, renamed={"name": "network_name"}, needs_body=True)
        return await self._submitter.submit(request, await self._targets.only_cell(request, "networks"), op)

    async def _remove(self, request: RapiRequest) -> Response:
        return await self._submit(request, NetworkRemove, "networks_name", takes_body=False)

    async def _modify(self, request: RapiRequest) -> Response:
        return await self._submit(request, NetworkSetParams, "networks_name_modify", needs_body=True)

    async def _rename(self, request: RapiRequest) -> Response:
        return await self._submit(request, NetworkRename, "networks_name_rename", needs_body=True)

    async def _connect(self, request: RapiRequest) -> Response:
        return await self._submit(request, NetworkConnect, "networks_name_connect", needs_body=True)

    async def _disconnect(self, request: RapiRequest) -> Response:
        return await self._submit(request, NetworkDisconnect, "networks_name_disconnect", needs_body=True)

    async def _submit(self, request: RapiRequest, opcode: Any, name: str, **options: Any) -> Response:
        network = request.names["network"]
        static = {"network_name": network, "dry_run": request.flag("dry-run")}
        op = await opcode_of(request, opcode, name, static, **options)
        cell = await self._targets.of_item(request, partial(networks_called, name=network))
        return await self._submitter.submit(request, cell, op)
