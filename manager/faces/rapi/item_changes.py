"""Changes of one instance, node, group or network by one operation, in tables (contracts/ganeti-rapi, 4)."""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Any

from sqlalchemy import Connection
from starlette.responses import Response

from fleetlight.api.rapi.access import OPERATORS
from fleetlight.api.rapi.endpoint import NAME, RapiRequest, Resource, Verb, resource
from fleetlight.api.rapi.faults import RapiError
from fleetlight.cells.model import Cell
from fleetlight.manager.faces.rapi.opcode_request import opcode_of
from fleetlight.manager.faces.rapi.submitting import Submitter
from fleetlight.manager.faces.rapi.target import Targets
from fleetlight.manager.operations.opcodes import groups, networks, storage
from fleetlight.manager.operations.opcodes.evacuation import NodeEvacuate, NodeMigrate
from fleetlight.manager.operations.opcodes.instances import contents, modify, move, power
from fleetlight.manager.operations.opcodes.instances.create_parameters import InstanceCreate
from fleetlight.manager.operations.opcodes.instances.remove import InstanceRemove
from fleetlight.manager.operations.opcodes.lookups import groups_called, networks_called, nodes_called
from fleetlight.manager.operations.opcodes.nodes import NodePowercycle, NodeSetParams
from fleetlight.manager.operations.opcodes.opcode import OpCode

_ROLES: Mapping[str, Mapping[str, bool]] = {
    "regular": {"master_candidate": False, "offline": False, "drained": False},
    "master-candidate": {"master_candidate": True},
    "drained": {"drained": True},
    "offline": {"offline": True},
}
Static = Callable[[RapiRequest], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Items:
    """A collection in addresses.

    named: the parameter by which operations name an item. kind: the name of the type in operations on tags.
    cell_of: finds the cell of an item by name. add: the operation that makes an item with only a name.
    """

    collection: str
    named: str
    kind: str
    cell_of: Callable[[Targets, RapiRequest, str], Awaitable[Cell]]
    add: type[OpCode] | None = None

    @property
    def path(self) -> str:
        """The path of one item."""
        return f"/{self.collection}/(?P<item>{NAME})"


def _found_by(
    find: Callable[[Connection, str], Sequence[Any]],
) -> Callable[[Targets, RapiRequest, str], Awaitable[Cell]]:
    return lambda targets, request, name: targets.of_item(request, lambda connection: find(connection, name))


INSTANCES = Items("instances", "instance_name", "instance", Targets.of_instance)
NODES = Items("nodes", "node_name", "node", _found_by(nodes_called))
_GROUPS = Items("groups", "group_name", "nodegroup", _found_by(groups_called), groups.GroupAdd)
_NETWORKS = Items("networks", "network_name", "network", _found_by(networks_called), networks.NetworkAdd)
ALL_ITEMS = (INSTANCES, NODES, _GROUPS, _NETWORKS)


def _none(_request: RapiRequest) -> Mapping[str, Any]:
    return {}


def _flags(*names: str) -> Static:
    """Return a function that reads parameters of the operation from flags in the address."""
    return lambda request: {name: request.flag(name) for name in names}


def _reboot_type(request: RapiRequest) -> Mapping[str, Any]:
    kind = request.query.last("type") or "hard"
    return {"reboot_type": kind, "ignore_secondaries": request.flag("ignore_secondaries")}


def _mode(request: RapiRequest) -> Mapping[str, Any]:
    mode = request.query.last("mode")
    if mode is None:
        raise RapiError(HTTPStatus.BAD_REQUEST, "Missing 'mode' query argument")
    return {"mode": mode}


def _role(request: RapiRequest) -> Mapping[str, Any]:
    """Read the role, whose name is the body."""
    if not isinstance(request.body, str):
        raise RapiError(HTTPStatus.BAD_REQUEST, "Body contents must be a string with the role")
    flags = _ROLES.get(request.body)
    if flags is None:
        raise RapiError(HTTPStatus.BAD_REQUEST, f"Can't set '{request.body}' role")
    return {**flags, "force": request.flag("force"), "auto_promote": request.flag("auto-promote")}


def _needed(*names: str) -> Static:
    """Return a function that reads required parameters from the address."""

    def needed(request: RapiRequest) -> Mapping[str, Any]:
        found = {name: request.query.last(name) for name in names}
        missing = next((name for name, text in found.items() if not text), None)
        if missing is not None:
            raise RapiError(HTTPStatus.BAD_REQUEST, f"Missing the required '{missing}' parameter")
        return found

    return needed


_storage_unit = _needed("storage_type", "name")


def _storage_fields(request: RapiRequest) -> Mapping[str, Any]:
    found = _needed("storage_type", "output_fields")(request)
    return {**found, "output_fields": [name.strip() for name in found["output_fields"].split(",")]}


def _allocatable(request: RapiRequest) -> Mapping[str, Any]:
    is_given = request.query.last("allocatable") is not None
    return {**_storage_unit(request), "changes": _flags("allocatable")(request) if is_given else {}}


@dataclass(frozen=True, slots=True)
class _Change:
    """A request that submits one operation on an item. path: below that of the item.

    static: reads further parameters from the address. takes_body to without: see `opcode_of`.
    tries: whether a dry run is possible. several: the parameter with a list of items, if the operation takes several.
    """

    method: str
    path: str
    opcode: type[OpCode]
    static: Static = _none
    takes_body: bool = True
    needs_body: bool = False
    renamed: Mapping[str, str] = field(default_factory=dict)
    without: Sequence[str] = ()
    tries: bool = True
    several: str = ""


_CHANGES: Mapping[Items, Sequence[_Change]] = {
    INSTANCES: (
        _Change(
            *("POST", "/create", InstanceCreate, lambda _: {"commit": True}),
            renamed={"os": "os_type"},
            without=("__version__",),
        ),
        _Change("DELETE", "", InstanceRemove, lambda _: {"ignore_failures": False}),
        _Change("GET", "/info", contents.InstanceQueryData, _flags("static"), False, tries=False, several="instances"),
        _Change("POST", "/reboot", power.InstanceReboot, _reboot_type),
        _Change("PUT", "/startup", power.InstanceStartup, _flags("force", "no_remember"), False),
        _Change("PUT", "/shutdown", power.InstanceShutdown, _flags("no_remember")),
        _Change("PUT", "/activate-disks", contents.InstanceActivateDisks, _flags("ignore_size"), False, tries=False),
        _Change("PUT", "/deactivate-disks", contents.InstanceDeactivateDisks, _flags("force"), False, tries=False),
        _Change("POST", "/recreate-disks", contents.InstanceRecreateDisks, tries=False),
        _Change(
            *("POST", r"/disk/(?P<disk>\d+)/grow", modify.InstanceGrowDisk),
            lambda request: {"disk": int(request.names["disk"])},
            needs_body=True,
            tries=False,
        ),
        _Change("PUT", "/prepare-export", contents.BackupPrepare, _mode, False, tries=False),
        _Change(
            *("PUT", "/export", contents.BackupExport),
            needs_body=True,
            renamed={"destination": "target_node"},
            tries=False,
        ),
        _Change("DELETE", "/export", contents.BackupRemove, takes_body=False, tries=False),
        _Change("PUT", "/migrate", move.InstanceMigrate, tries=False),
        _Change("PUT", "/failover", move.InstanceFailover, tries=False),
        _Change("PUT", "/rename", modify.InstanceRename, needs_body=True, tries=False),
        _Change(
            *("PUT", "/modify", modify.InstanceSetParams),
            needs_body=True,
            renamed={"custom_beparams": "beparams", "custom_hvparams": "hvparams"},
            tries=False,
        ),
    ),
    NODES: (
        _Change("PUT", "/role", NodeSetParams, _role, False),
        _Change("POST", "/modify", NodeSetParams, needs_body=True),
        _Change("POST", "/powercycle", NodePowercycle, _flags("force")),
        _Change("POST", "/evacuate", NodeEvacuate, needs_body=True),
        _Change("GET", "/storage", storage.NodeQueryStorage, _storage_fields, False, tries=False, several="nodes"),
        _Change("PUT", "/storage/modify", storage.NodeModifyStorage, _allocatable, False),
        _Change("PUT", "/storage/repair", storage.RepairNodeStorage, _storage_unit, False),
    ),
    _GROUPS: (
        _Change("DELETE", "", groups.GroupRemove, takes_body=False),
        _Change(
            *("PUT", "/modify", groups.GroupSetParams),
            renamed={f"custom_{name}": name for name in ("ndparams", "ipolicy", "diskparams")},
        ),
        _Change("PUT", "/rename", groups.GroupRename, needs_body=True),
        _Change("PUT", "/assign-nodes", groups.GroupAssignNodes, _flags("force"), needs_body=True),
    ),
    _NETWORKS: (
        _Change("DELETE", "", networks.NetworkRemove, takes_body=False),
        _Change("PUT", "/modify", networks.NetworkSetParams, needs_body=True),
        _Change("PUT", "/rename", networks.NetworkRename, needs_body=True),
        _Change("PUT", "/connect", networks.NetworkConnect, needs_body=True),
        _Change("PUT", "/disconnect", networks.NetworkDisconnect, needs_body=True),
    ),
}


class ItemChanges:
    """The resources of single items, and those that add a group or a network."""

    def __init__(self, targets: Targets, submitter: Submitter) -> None:
        self._targets = targets
        self._submitter = submitter

    def resources(self) -> Iterator[Resource]:
        for items, changes in _CHANGES.items():
            if items.add is not None:
                add = partial(self._add, items, items.add)
                yield resource(f"/{items.collection}", {"POST": Verb(add, OPERATORS)})
            for change in changes:
                verb = Verb(partial(self._change, items, change), OPERATORS)
                yield resource(items.path + change.path, {change.method: verb})

        yield resource(f"{NODES.path}/migrate", {"POST": Verb(self._migrate_node, OPERATORS)})

    async def _migrate_node(self, request: RapiRequest) -> Response:
        """Migrate a node's guests; old clients put the mode into the address, and nothing else."""
        live, mode = request.query.last("live"), request.query.last("mode")
        if live is not None and mode is not None:
            raise RapiError(HTTPStatus.BAD_REQUEST, "Only one of 'live' and 'mode' should be passed")
        static = (
            {} if live is None and mode is None else {"mode": mode or ("live" if request.flag("live") else "non-live")}
        )
        change = _Change("POST", "/migrate", NodeMigrate, lambda _: static, takes_body=not static)
        return await self._change(NODES, change, request)

    async def _add(self, items: Items, opcode: type[OpCode], request: RapiRequest) -> Response:
        static, renamed = {"dry_run": request.flag("dry-run")}, {"name": items.named}
        op = await opcode_of(request, opcode, items.collection, static, renamed=renamed, needs_body=True)
        return await self._submitter.submit(request, await self._targets.only_cell(request, items.collection), op)

    async def _change(self, items: Items, change: _Change, request: RapiRequest) -> Response:
        name = request.names["item"]
        op = await opcode_of(
            *(request, change.opcode, _resource_name(items, change)),
            {
                **({change.several: [name]} if change.several else {items.named: name}),
                **({"dry_run": request.flag("dry-run")} if change.tries else {}),
                **change.static(request),
            },
            renamed=change.renamed,
            takes_body=change.takes_body,
            needs_body=change.needs_body,
            without=change.without,
        )
        return await self._submitter.submit(request, await items.cell_of(self._targets, request, name), op)


def _resource_name(items: Items, change: _Change) -> str:
    """Return the resource's name in the reason trail, such as `nodes_name_storage_modify`."""
    words = [word for word in change.path.replace("-", "_").split("/") if word and not word.startswith("(")]
    return "_".join([items.collection, "name", *words])
