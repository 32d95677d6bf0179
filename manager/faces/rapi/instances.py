"""What changes instances (contracts/ganeti-rapi, 4 to 6; contracts/ganeti-reservations, 3)."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from starlette.responses import Response

from fleetlight.api.rapi.access import OPERATORS
from fleetlight.api.rapi.endpoint import NAME, RapiRequest, Resource, Verb, resource
from fleetlight.api.rapi.faults import RapiError
from fleetlight.manager.faces.rapi.opcode_request import of_today, opcode_of
from fleetlight.manager.faces.rapi.submitting import Submitter
from fleetlight.manager.faces.rapi.target import Targets
from fleetlight.manager.operations.opcodes.instances.contents import (
    BackupExport,
    BackupPrepare,
    BackupRemove,
    InstanceActivateDisks,
    InstanceDeactivateDisks,
    InstanceQueryData,
    InstanceRecreateDisks,
    InstanceReinstall,
)
from fleetlight.manager.operations.opcodes.instances.create_parameters import InstanceCreate
from fleetlight.manager.operations.opcodes.instances.modify import InstanceGrowDisk, InstanceRename, InstanceSetParams
from fleetlight.manager.operations.opcodes.instances.move import InstanceFailover, InstanceMigrate, InstanceReplaceDisks
from fleetlight.manager.operations.opcodes.instances.power import InstanceReboot, InstanceShutdown, InstanceStartup
from fleetlight.manager.operations.opcodes.instances.remove import InstanceRemove
from fleetlight.manager.operations.opcodes.instances.several import InstanceMultiAlloc
from fleetlight.manager.operations.opcodes.opcode import InstanceOpCode, OpCode
from fleetlight.resources.amount import Amount

_ONE = f"/instances/(?P<instance>{NAME})"
_REQUEST_VERSION = 1
_RENAMED_IN_CREATION = {"name": "instance_name", "os": "os_type"}
Static = Callable[[RapiRequest], Mapping[str, Any]]


def _flags(**names: str) -> Static:
    """Parameters of the operation that flags of the address give, by the names of these."""
    return lambda request: {parameter: request.flag(name) for parameter, name in names.items()}


def _none(_request: RapiRequest) -> Mapping[str, Any]:
    return {}


def _reboot_type(request: RapiRequest) -> Mapping[str, Any]:
    kind = request.query.last("type") or "hard"
    return {"reboot_type": kind, "ignore_secondaries": request.flag("ignore_secondaries")}


def _mode(request: RapiRequest) -> Mapping[str, Any]:
    mode = request.query.last("mode")
    if mode is None:
        raise RapiError(HTTPStatus.BAD_REQUEST, "Missing 'mode' query argument")
    return {"mode": mode}


def _disk(request: RapiRequest) -> Mapping[str, Any]:
    return {"disk": int(request.names["disk"])}


def _ignoring_failures(_request: RapiRequest) -> Mapping[str, Any]:
    return {"ignore_failures": False}


@dataclass(frozen=True, slots=True)
class _Change:
    """A request about one instance that is one operation. path: below that of the instance.

    static: parameters that the address gives beside the instance. takes_body, needs_body, renamed: as of `opcode_of`.
    tries: whether there is a trial run.
    """

    method: str
    path: str
    opcode: type[InstanceOpCode]
    static: Static = _none
    takes_body: bool = True
    needs_body: bool = False
    renamed: Mapping[str, str] = field(default_factory=dict)
    tries: bool = False

    @property
    def resource(self) -> str:
        """What the trail of reasons calls it."""
        return "_".join(["instances_name", *self.path.replace("-", "_").removeprefix("/").split("/")[:1]]).rstrip("_")


_CHANGES = (
    _Change("DELETE", "", InstanceRemove, _ignoring_failures, tries=True),
    _Change("POST", "/reboot", InstanceReboot, _reboot_type, tries=True),
    _Change("PUT", "/startup", InstanceStartup, _flags(force="force", no_remember="no_remember"), False, tries=True),
    _Change("PUT", "/shutdown", InstanceShutdown, _flags(no_remember="no_remember"), tries=True),
    _Change("PUT", "/activate-disks", InstanceActivateDisks, _flags(ignore_size="ignore_size"), False),
    _Change("PUT", "/deactivate-disks", InstanceDeactivateDisks, _flags(force="force"), False),
    _Change("POST", "/recreate-disks", InstanceRecreateDisks),
    _Change("POST", r"/disk/(?P<disk>\d+)/grow", InstanceGrowDisk, _disk, needs_body=True),
    _Change("PUT", "/prepare-export", BackupPrepare, _mode, False),
    _Change("PUT", "/export", BackupExport, needs_body=True, renamed={"destination": "target_node"}),
    _Change("DELETE", "/export", BackupRemove, takes_body=False),
    _Change("PUT", "/migrate", InstanceMigrate),
    _Change("PUT", "/failover", InstanceFailover),
    _Change("PUT", "/rename", InstanceRename, needs_body=True),
    _Change(
        "PUT",
        "/modify",
        InstanceSetParams,
        needs_body=True,
        renamed={"custom_beparams": "beparams", "custom_hvparams": "hvparams"},
    ),
)


class InstanceChanges:
    """Requests that change instances, or make them."""

    def __init__(self, targets: Targets, submitter: Submitter) -> None:
        self._targets = targets
        self._submitter = submitter

    def resources(self) -> Iterator[Resource]:
        for change in _CHANGES:
            yield resource(f"{_ONE}{change.path}", {change.method: Verb(self._handler(change), OPERATORS)})
        for method, path, handler in (
            ("POST", "/instances", self._create),
            ("POST", "/instances-multi-alloc", self._create_several),
            ("POST", f"{_ONE}/create", self._commit),
            ("GET", f"{_ONE}/info", self._info),
            ("POST", f"{_ONE}/reinstall", self._reinstall),
            ("POST", f"{_ONE}/replace-disks", self._replace_disks),
        ):
            yield resource(path, {method: Verb(handler, OPERATORS)})

    def _handler(self, change: _Change) -> Callable[[RapiRequest], Awaitable[Response]]:
        async def handle(request: RapiRequest) -> Response:
            static = dict(change.static(request))
            if change.tries:
                static["dry_run"] = request.flag("dry-run")
            op = await opcode_of(
                request,
                change.opcode,
                change.resource,
                {"instance_name": request.names["instance"], **static},
                renamed=change.renamed,
                takes_body=change.takes_body,
                needs_body=change.needs_body,
            )
            return await self._submit(request, op)

        return handle

    async def _submit(self, request: RapiRequest, *opcodes: OpCode) -> Response:
        """About the instance of the address."""
        cell = await self._targets.of_instance(request, request.names["instance"])
        return await self._submitter.submit(request, cell, *opcodes)

    async def _create(self, request: RapiRequest) -> Response:
        """A new instance, a reservation, or, with `commit`, a reservation that is made real."""
        given = request.body if isinstance(request.body, dict) else {}
        version = given.get("__version__", 0)
        if version == 0:
            text = "Instance creation request version 0 is no longer supported"
            raise RapiError(HTTPStatus.BAD_REQUEST, text)
        if version != _REQUEST_VERSION or isinstance(version, bool):
            raise RapiError(HTTPStatus.BAD_REQUEST, f"Unsupported request data version {version!r:.40}")
        op = await opcode_of(
            request,
            InstanceCreate,
            "instances",
            {"dry_run": request.flag("dry-run")},
            renamed=_RENAMED_IN_CREATION,
            needs_body=True,
            without=("__version__",),
        )
        if op.commit and op.instance_name:
            cell = await self._targets.of_instance(request, op.instance_name)
        else:
            cell = await self._targets.for_new(request, op)
        return await self._submitter.submit(request, cell, op)

    async def _create_several(self, request: RapiRequest) -> Response:
        """Each by a job of its own; the first job says which."""
        given = request.body if isinstance(request.body, dict) else {}
        if not isinstance(given.get("instances"), list):
            raise RapiError(HTTPStatus.BAD_REQUEST, "Request is missing required 'instances' field in body")
        each = [of_today(one, _RENAMED_IN_CREATION) if isinstance(one, dict) else one for one in given["instances"]]
        op = await opcode_of(
            request.with_body({**given, "instances": each}),
            InstanceMultiAlloc,
            "instances_multi_alloc",
            {"dry_run": request.flag("dry-run")},
        )
        cell = await self._targets.with_most_room(await self._targets.cells(request), Amount())
        return await self._submitter.submit(request, cell, op)

    async def _commit(self, request: RapiRequest) -> Response:
        """A reservation is made real; the body adds to it."""
        name = request.names["instance"]
        static = {"instance_name": name, "commit": True, "dry_run": request.flag("dry-run")}
        op = await opcode_of(
            request,
            InstanceCreate,
            "instances_name_create",
            static,
            renamed={"os": "os_type"},
            without=("__version__",),
        )
        return await self._submit(request, op)

    async def _info(self, request: RapiRequest) -> Response:
        name = request.names["instance"]
        static = {"instances": [name], "static": request.flag("static")}
        return await self._submit(
            request, await opcode_of(request, InstanceQueryData, "instances_name_info", static, takes_body=False)
        )

    async def _reinstall(self, request: RapiRequest) -> Response:
        """One job: the instance is shut down, installed, and started unless the body says otherwise."""
        name, arguments = request.names["instance"], request.query
        if request.has_body and set(arguments):
            raise RapiError(HTTPStatus.BAD_REQUEST, "Can't combine query and body parameters")
        if request.has_body:
            given = request.body
            if not isinstance(given, dict):
                raise RapiError(HTTPStatus.BAD_REQUEST, "Invalid body parameters: the body must be an object")
            starts = given.get("start", True)
        else:
            given, starts = {"os": arguments.last("os")}, not request.flag("nostartup")
        if not isinstance(starts, bool):
            raise RapiError(HTTPStatus.BAD_REQUEST, "Invalid body parameters: start: it must be true or false")
        of_name = {"instance_name": name}
        install = await opcode_of(
            request.with_body({key: value for key, value in given.items() if key != "start"}),
            InstanceReinstall,
            "instances_name_reinstall",
            of_name,
            renamed={"os": "os_type"},
        )
        stop = await opcode_of(request, InstanceShutdown, "instances_name_reinstall", of_name, takes_body=False)
        start = await opcode_of(request, InstanceStartup, "instances_name_reinstall", of_name, takes_body=False)
        return await self._submit(request, stop, install, *([start] if starts else []))

    async def _replace_disks(self, request: RapiRequest) -> Response:
        """Old clients have the parameters in the address, where there is no body."""
        if not request.has_body:
            found = {name: request.query.last(name) for name in ("mode", "disks", "remote_node", "iallocator")}
            request = request.with_body({name: value for name, value in found.items() if value})
        static = {"instance_name": request.names["instance"]}
        op = await opcode_of(request, InstanceReplaceDisks, "instances_name_replace_disks", static)
        return await self._submit(request, op)
