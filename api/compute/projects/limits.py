"""`GET /limits`: limits and usage of a project (contracts/nova-rest, 4.3)."""

from collections.abc import Mapping
from functools import partial

from starlette.responses import Response

from fleetlight.api.compute.projects.quota_names import FILES_UNTIL, IMAGE_METADATA_UNTIL, NETWORK_UNTIL
from fleetlight.api.compute.protocol.route_table import ApiRoute
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.query_string import list_parameters
from fleetlight.api.http.shapes import INTEGER, NOTHING, Key, ListOf, Shape
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.api.shared.headers import COMPLETE
from fleetlight.cells.fleet.compute.quotas import UNLIMITED

_LIMITS = {
    "maxTotalInstances": "instances",
    "maxTotalCores": "cores",
    "maxTotalRAMSize": "ram",
    "maxServerMeta": "metadata_items",
    "maxTotalKeypairs": "key_pairs",
    "maxServerGroups": "server_groups",
    "maxServerGroupMembers": "server_group_members",
}
_USED = {
    "totalInstancesUsed": "instances",
    "totalCoresUsed": "cores",
    "totalRAMUsed": "ram",
    "totalServerGroupsUsed": "server_groups",
}
_NETWORK_LIMITS = ("maxTotalFloatingIps", "maxSecurityGroups", "maxSecurityGroupRules")
_NETWORK_USED = ("totalFloatingIpsUsed", "totalSecurityGroupsUsed")
_ABSOLUTE = Shape(
    {
        **dict.fromkeys((*_LIMITS, *_USED), INTEGER),
        **dict.fromkeys((*_NETWORK_LIMITS, *_NETWORK_USED), Key(INTEGER, until=NETWORK_UNTIL)),
        "maxImageMeta": Key(INTEGER, until=IMAGE_METADATA_UNTIL),
        **dict.fromkeys(("maxPersonality", "maxPersonalitySize"), Key(INTEGER, until=FILES_UNTIL)),
    }
)
_ANSWER = Shape({"limits": Shape({"rate": ListOf(NOTHING), "absolute": _ABSOLUTE})})


class LimitHandlers:
    def __init__(self, access: FleetAccess) -> None:
        self._access = access

    def routes(self) -> list[ApiRoute]:
        return [
            ApiRoute(
                "GET",
                "/limits",
                self.show,
                query=list_parameters({"tenant_id": 1, "reserved": 1}),
                errors=(403,),
                answer=_ANSWER,
                gives=(COMPLETE,),
            )
        ]

    async def show(self, request: ApiRequest) -> Response:
        caller = request.caller
        project_id = request.query.last("tenant_id") or caller.project_id or ""
        if project_id != caller.project_id:
            request.authorize("os_compute_api:limits:other_project")
        limits = await self._access.ask(partial(self._access.fleet.quotas.limits, project_id))
        used = await self._access.in_use(project_id)
        absolute = _absolute(limits, used.amounts, request.minor)
        return json_answer({"limits": {"rate": [], "absolute": absolute}}, headers=used.headers)


def _absolute(limits: Mapping[str, int], used: Mapping[str, int], minor: int) -> dict[str, int]:
    values = {
        **{name: limits[resource] for name, resource in _LIMITS.items()},
        **{name: used[resource] for name, resource in _USED.items()},
        **dict.fromkeys(_NETWORK_LIMITS, UNLIMITED),
        **dict.fromkeys(_NETWORK_USED, 0),
        "maxImageMeta": limits["metadata_items"],
        "maxPersonality": limits["injected_files"],
        "maxPersonalitySize": limits["injected_file_content_bytes"],
    }
    return _ABSOLUTE.of(minor, values)
