"""What changes instances (contracts/ganeti-rapi, 4 and 6)."""

from collections.abc import Iterator, Mapping
from typing import Any

from starlette.responses import Response

from api.rapi.access import OPERATORS
from api.rapi.changing.opcode_request import opcode_of
from api.rapi.changing.submitting import Submitter
from api.rapi.changing.target import Targets
from api.rapi.endpoint import NAME, RapiRequest, Resource, Verb, resource
from operations.opcodes.instances.power import InstanceReboot, InstanceShutdown, InstanceStartup

_ONE = f"/instances/(?P<instance>{NAME})"


class InstanceChanges:
    """Requests about one instance each."""

    def __init__(self, targets: Targets, submitter: Submitter) -> None:
        self._targets = targets
        self._submitter = submitter

    def resources(self) -> Iterator[Resource]:
        for path, method, handler in (
            ("startup", "PUT", self._startup),
            ("shutdown", "PUT", self._shutdown),
            ("reboot", "POST", self._reboot),
        ):
            yield resource(f"{_ONE}/{path}", {method: Verb(handler, OPERATORS)})

    async def _startup(self, request: RapiRequest) -> Response:
        static = {"force": request.flag("force"), "no_remember": request.flag("no_remember")}
        return await self._submit(request, InstanceStartup, "instances_name_startup", static, takes_body=False)

    async def _shutdown(self, request: RapiRequest) -> Response:
        static = {"no_remember": request.flag("no_remember")}
        return await self._submit(request, InstanceShutdown, "instances_name_shutdown", static)

    async def _reboot(self, request: RapiRequest) -> Response:
        static = {
            "reboot_type": request.query.last("type") or "hard",
            "ignore_secondaries": request.flag("ignore_secondaries"),
        }
        return await self._submit(request, InstanceReboot, "instances_name_reboot", static)

    async def _submit(
        self, request: RapiRequest, opcode: Any, name: str, static: Mapping[str, Any], **options: Any
    ) -> Response:
        """static: the parameters of the address, beside the instance, and whether it is a trial run."""
        instance = request.names["instance"]
        of_all = {"instance_name": instance, "dry_run": request.flag("dry-run")}
        op = opcode_of(request, opcode, name, {**of_all, **static}, **options)
        return await self._submitter.submit(request, await self._targets.of_instance(request, instance), op)
