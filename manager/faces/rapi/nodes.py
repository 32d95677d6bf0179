"""What changes nodes (contracts/ganeti-rapi, 4 and 6)."""

from collections.abc import Iterator, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from fleetlight.api.rapi.access import OPERATORS
from fleetlight.api.rapi.endpoint import NAME, RapiRequest, Resource, Verb, resource
from fleetlight.api.rapi.faults import RapiError
from fleetlight.cells.model import Cell
from fleetlight.manager.faces.rapi.opcode_request import opcode_of
from fleetlight.manager.faces.rapi.submitting import Submitter
from fleetlight.manager.faces.rapi.target import Targets
from fleetlight.manager.operations.opcodes.evacuation import NodeEvacuate, NodeMigrate
from fleetlight.manager.operations.opcodes.lookups import nodes_called
from fleetlight.manager.operations.opcodes.nodes import NodePowercycle, NodeSetParams
from fleetlight.manager.operations.opcodes.storage import NodeModifyStorage, NodeQueryStorage, RepairNodeStorage

_ONE = f"/nodes/(?P<node>{NAME})"
_FLAGS_OF_ROLES: Mapping[str, Mapping[str, bool]] = {
    "regular": {"master_candidate": False, "offline": False, "drained": False},
    "master-candidate": {"master_candidate": True},
    "drained": {"drained": True},
    "offline": {"offline": True},
}


class NodeChanges:
    """Requests about one node each."""

    def __init__(self, targets: Targets, submitter: Submitter) -> None:
        self._targets = targets
        self._submitter = submitter

    def resources(self) -> Iterator[Resource]:
        for path, method, handler in (
            ("role", "PUT", self._role),
            ("modify", "POST", self._modify),
            ("powercycle", "POST", self._powercycle),
            ("evacuate", "POST", self._evacuate),
            ("migrate", "POST", self._migrate),
            ("storage", "GET", self._storage),
            ("storage/modify", "PUT", self._modify_storage),
            ("storage/repair", "PUT", self._repair_storage),
        ):
            yield resource(f"{_ONE}/{path}", {method: Verb(handler, OPERATORS)})

    async def _role(self, request: RapiRequest) -> Response:
        """The body is the name of the role."""
        if not isinstance(request.body, str):
            raise RapiError(HTTPStatus.BAD_REQUEST, "Body contents must be a string with the role")
        flags = _FLAGS_OF_ROLES.get(request.body)
        if flags is None:
            raise RapiError(HTTPStatus.BAD_REQUEST, f"Can't set '{request.body}' role")
        static = {**flags, "force": request.flag("force"), "auto_promote": request.flag("auto-promote")}
        return await self._submit(request, NodeSetParams, "nodes_name_role", static, takes_body=False)

    async def _modify(self, request: RapiRequest) -> Response:
        return await self._submit(request, NodeSetParams, "nodes_name_modify", {}, needs_body=True)

    async def _powercycle(self, request: RapiRequest) -> Response:
        static = {"force": request.flag("force")}
        return await self._submit(request, NodePowercycle, "nodes_name_powercycle", static)

    async def _evacuate(self, request: RapiRequest) -> Response:
        return await self._submit(request, NodeEvacuate, "nodes_name_evacuate", {}, needs_body=True)

    async def _migrate(self, request: RapiRequest) -> Response:
        """Old clients say in the address how the guests are moved, and nothing else."""
        live, mode = request.query.last("live"), request.query.last("mode")
        if live is None and mode is None:
            return await self._submit(request, NodeMigrate, "nodes_name_migrate", {})
        if live is not None and mode is not None:
            raise RapiError(HTTPStatus.BAD_REQUEST, "Only one of 'live' and 'mode' should be passed")
        static = {"mode": mode or ("live" if request.flag("live") else "non-live")}
        return await self._submit(request, NodeMigrate, "nodes_name_migrate", static, takes_body=False)

    async def _storage(self, request: RapiRequest) -> Response:
        """A GET that submits a job."""
        node = request.names["node"]
        static = {
            "nodes": [node],
            "storage_type": _needed(request, "storage_type"),
            "output_fields": [name.strip() for name in _needed(request, "output_fields").split(",")],
        }
        op = await opcode_of(request, NodeQueryStorage, "nodes_name_storage", static, takes_body=False)
        return await self._submitter.submit(request, await self._cell(request, node), op)

    async def _modify_storage(self, request: RapiRequest) -> Response:
        text = request.query.last("allocatable")
        allocatable = {} if text is None else {"allocatable": request.flag("allocatable")}
        static = {**_unit(request), "changes": allocatable}
        return await self._submit(request, NodeModifyStorage, "nodes_name_storage_modify", static, takes_body=False)

    async def _repair_storage(self, request: RapiRequest) -> Response:
        return await self._submit(
            request, RepairNodeStorage, "nodes_name_storage_repair", _unit(request), takes_body=False
        )

    async def _submit(
        self, request: RapiRequest, opcode: Any, name: str, static: Mapping[str, Any], **options: Any
    ) -> Response:
        """static: the parameters of the address, beside the node, and whether it is a trial run."""
        node = request.names["node"]
        of_all = {"node_name": node, "dry_run": request.flag("dry-run")}
        op = await opcode_of(request, opcode, name, {**of_all, **static}, **options)
        return await self._submitter.submit(request, await self._cell(request, node), op)

    async def _cell(self, request: RapiRequest, node: str) -> Cell:
        return await self._targets.of_item(request, partial(nodes_called, name=node))


def _needed(request: RapiRequest, name: str) -> str:
    text = request.query.last(name)
    if not text:
        raise RapiError(HTTPStatus.BAD_REQUEST, f"Missing the required '{name}' parameter")
    return text


def _unit(request: RapiRequest) -> Mapping[str, Any]:
    return {"storage_type": _needed(request, "storage_type"), "name": _needed(request, "name")}
