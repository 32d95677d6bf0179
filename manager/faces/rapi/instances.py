"""Creation of instances, and changes that need more than one plain operation (contracts/ganeti-rapi, 4 to 6)."""

from collections.abc import Iterator
from http import HTTPStatus

from starlette.responses import Response

from fleetlight.api.rapi.access import OPERATORS
from fleetlight.api.rapi.endpoint import RapiRequest, Resource, Verb, resource
from fleetlight.api.rapi.faults import RapiError
from fleetlight.manager.faces.rapi.item_changes import INSTANCES
from fleetlight.manager.faces.rapi.opcode_request import of_today, opcode_of
from fleetlight.manager.faces.rapi.submitting import Submitter
from fleetlight.manager.faces.rapi.target import Targets
from fleetlight.manager.operations.opcodes.instances.contents import (
    InstanceReinstall,
)
from fleetlight.manager.operations.opcodes.instances.create_parameters import InstanceCreate
from fleetlight.manager.operations.opcodes.instances.move import InstanceReplaceDisks
from fleetlight.manager.operations.opcodes.instances.power import InstanceShutdown, InstanceStartup
from fleetlight.manager.operations.opcodes.instances.several import InstanceMultiAlloc
from fleetlight.manager.operations.opcodes.opcode import OpCode
from fleetlight.resources.amount import Amount

_REQUEST_VERSION = 1
_RENAMED_IN_CREATION = {"name": "instance_name", "os": "os_type"}


class InstanceChanges:
    """The resources of instances that are no rows of `item_changes`."""

    def __init__(self, targets: Targets, submitter: Submitter) -> None:
        self._targets = targets
        self._submitter = submitter

    def resources(self) -> Iterator[Resource]:
        for method, path, handler in (
            ("POST", "/instances", self._create),
            ("POST", "/instances-multi-alloc", self._create_several),
            ("POST", f"{INSTANCES.path}/reinstall", self._reinstall),
            ("POST", f"{INSTANCES.path}/replace-disks", self._replace_disks),
        ):
            yield resource(path, {method: Verb(handler, OPERATORS)})

    async def _submit(self, request: RapiRequest, *opcodes: OpCode) -> Response:
        """Submit operations on the instance in the address."""
        cell = await self._targets.of_instance(request, request.names["item"])
        return await self._submitter.submit(request, cell, *opcodes)

    async def _create(self, request: RapiRequest) -> Response:
        """Create an instance or a reservation, or, with `commit`, turn a reservation into an instance."""
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
        """Create instances, each by a job of its own, which a first job submits."""
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

    async def _reinstall(self, request: RapiRequest) -> Response:
        """Submit one job that shuts the instance down, installs it, and starts it unless the body forbids that."""
        name, arguments = request.names["item"], request.query
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
        """Replace disks; without a body, parameters come from the address, as old clients send them."""
        if not request.has_body:
            found = {name: request.query.last(name) for name in ("mode", "disks", "remote_node", "iallocator")}
            request = request.with_body({name: value for name, value in found.items() if value})
        static = {"instance_name": request.names["item"]}
        op = await opcode_of(request, InstanceReplaceDisks, "instances_name_replace_disks", static)
        return await self._submit(request, op)
