"""What changes node groups and networks (contracts/ganeti-rapi, 4): each change is a row of a table."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sqlalchemy import Connection
from starlette.responses import Response

from fleetlight.api.rapi.access import OPERATORS
from fleetlight.api.rapi.endpoint import NAME, RapiRequest, Resource, Verb, resource
from fleetlight.manager.faces.rapi.opcode_request import opcode_of
from fleetlight.manager.faces.rapi.submitting import Submitter
from fleetlight.manager.faces.rapi.target import Targets
from fleetlight.manager.operations.opcodes.groups import (
    GroupAdd,
    GroupAssignNodes,
    GroupRemove,
    GroupRename,
    GroupSetParams,
)
from fleetlight.manager.operations.opcodes.lookups import groups_called, networks_called
from fleetlight.manager.operations.opcodes.networks import (
    NetworkAdd,
    NetworkConnect,
    NetworkDisconnect,
    NetworkRemove,
    NetworkRename,
    NetworkSetParams,
)
from fleetlight.manager.operations.opcodes.opcode import OpCode


@dataclass(frozen=True, slots=True)
class _Change:
    """What `PUT /COLLECTION/NAME/path` asks for. flags: of the address. The rest is as of `opcode_of`."""

    path: str
    opcode: type[OpCode]
    needs_body: bool = True
    renamed: Mapping[str, str] = field(default_factory=dict)
    flags: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class _Items:
    """A collection of the address. named: the parameter that names one of its items, by which `find` finds it."""

    collection: str
    named: str
    find: Callable[[Connection, str], Sequence[Any]]
    add: type[OpCode]
    remove: type[OpCode]
    changes: Sequence[_Change]


_VALUES_OF_GROUPS = {"custom_ndparams": "ndparams", "custom_ipolicy": "ipolicy", "custom_diskparams": "diskparams"}
_ALL = (
    _Items(
        *("groups", "group_name", groups_called, GroupAdd, GroupRemove),
        (
            _Change("modify", GroupSetParams, needs_body=False, renamed=_VALUES_OF_GROUPS),
            _Change("rename", GroupRename),
            _Change("assign-nodes", GroupAssignNodes, flags=("force",)),
        ),
    ),
    _Items(
        *("networks", "network_name", networks_called, NetworkAdd, NetworkRemove),
        (
            _Change("modify", NetworkSetParams),
            _Change("rename", NetworkRename),
            _Change("connect", NetworkConnect),
            _Change("disconnect", NetworkDisconnect),
        ),
    ),
)


class ConfiguredItems:
    """Requests about groups and networks."""

    def __init__(self, targets: Targets, submitter: Submitter) -> None:
        self._targets = targets
        self._submitter = submitter

    def resources(self) -> Iterator[Resource]:
        for items in _ALL:
            one = f"/{items.collection}/(?P<item>{NAME})"
            yield resource(f"/{items.collection}", {"POST": Verb(partial(self._add, items), OPERATORS)})
            yield resource(one, {"DELETE": Verb(partial(self._remove, items), OPERATORS)})
            for change in items.changes:
                handler = partial(self._change, items, change)
                yield resource(f"{one}/{change.path}", {"PUT": Verb(handler, OPERATORS)})

    async def _add(self, items: _Items, request: RapiRequest) -> Response:
        static, renamed = {"dry_run": request.flag("dry-run")}, {"name": items.named}
        op = await opcode_of(request, items.add, items.collection, static, renamed=renamed, needs_body=True)
        return await self._submitter.submit(request, await self._targets.only_cell(request, items.collection), op)

    async def _remove(self, items: _Items, request: RapiRequest) -> Response:
        name = f"{items.collection}_name"
        op = await opcode_of(request, items.remove, name, _of_address(items, request), takes_body=False)
        return await self._submit(items, request, op)

    async def _change(self, items: _Items, change: _Change, request: RapiRequest) -> Response:
        static = _of_address(items, request) | {flag: request.flag(flag) for flag in change.flags}
        name = f"{items.collection}_name_{change.path.replace('-', '_')}"
        op = await opcode_of(request, change.opcode, name, static, renamed=change.renamed, needs_body=change.needs_body)
        return await self._submit(items, request, op)

    async def _submit(self, items: _Items, request: RapiRequest, op: OpCode) -> Response:
        name = request.names["item"]
        cell = await self._targets.of_item(request, lambda connection: items.find(connection, name))
        return await self._submitter.submit(request, cell, op)


def _of_address(items: _Items, request: RapiRequest) -> dict[str, Any]:
    return {items.named: request.names["item"], "dry_run": request.flag("dry-run")}
