"""`/os-instance_usage_audit_log` (contracts/nova-rest, 7): the hosts that have announced the usage of the last month.

Hosts here make no such announcements, so the answer lists none.
"""

from datetime import UTC, datetime, timedelta

from starlette.responses import Response

from fleetlight.api.compute.protocol.route_table import ApiRoute
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.errors import BadRequestError
from fleetlight.api.http.shapes import INTEGER, TEXT, ListOf, MapOf, Shape
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.headers import COMPLETE
from fleetlight.cells.kinds.native.nodes import COMPUTE
from fleetlight.manager.faces.hosts.fleet_hosts import FleetHosts
from fleetlight.resources.clock import Clock
from fleetlight.resources.fields import from_microseconds

_FORMATS = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M:%S.%f")
_LOG = Shape(
    {
        "hosts_not_run": ListOf(TEXT),
        "log": MapOf(Shape({})),
        **dict.fromkeys(("num_hosts", "num_hosts_done", "num_hosts_not_run", "num_hosts_running"), INTEGER),
        **dict.fromkeys(("overall_status", "period_beginning", "period_ending"), TEXT),
        **dict.fromkeys(("total_errors", "total_instances"), INTEGER),
    }
)


class AuditLogHandlers:
    def __init__(self, hosts: FleetHosts, clock: Clock) -> None:
        self._hosts = hosts
        self._clock = clock

    def routes(self) -> list[ApiRoute]:
        path, gives = "/os-instance_usage_audit_log", (COMPLETE,)
        all_logs, one = (Shape({f"instance_usage_audit_log{ending}": _LOG}) for ending in ("s", ""))
        return [
            ApiRoute("GET", path, self.index, errors=(403,), answer=all_logs, gives=gives),
            ApiRoute("GET", path + "/{before}", self.show, errors=(400, 403), answer=one, gives=gives),
        ]

    async def index(self, request: ApiRequest) -> Response:
        request.authorize("os_compute_api:os-instance-usage-audit-log:list")
        return await self._answer("instance_usage_audit_logs", from_microseconds(self._clock()))

    async def show(self, request: ApiRequest) -> Response:
        """Show the last month that ended before the time in the address."""
        request.authorize("os_compute_api:os-instance-usage-audit-log:show")
        return await self._answer("instance_usage_audit_log", _time(request.http.path_params["before"]))

    async def _answer(self, key: str, before: datetime) -> Response:
        end = before.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        begin = (end - timedelta(days=1)).replace(day=1)
        of_cells = await self._hosts.services(binary=COMPUTE)
        hosts = sorted(service.host for _, services in of_cells.answers for service in services)
        log = {
            "hosts_not_run": hosts,
            "log": {},
            "num_hosts": len(hosts),
            "num_hosts_done": 0,
            "num_hosts_not_run": len(hosts),
            "num_hosts_running": 0,
            "overall_status": f"0 of {len(hosts)} hosts done. 0 errors.",
            "period_beginning": f"{begin:{_FORMATS[0]}}",
            "period_ending": f"{end:{_FORMATS[0]}}",
            "total_errors": 0,
            "total_instances": 0,
        }
        return json_answer({key: log}, headers=of_cells.headers)


def _time(text: str) -> datetime:
    for form in _FORMATS:
        try:
            time = datetime.strptime(text, form).replace(tzinfo=UTC)
        except ValueError:
            continue
        if time.year > 1:
            return time
    raise BadRequestError(f"Invalid timestamp for date {text}")
