"""The server in answers to `PUT` and rebuild; until 2.74 it has fewer keys than in show (contracts/nova-rest, 2.1)."""

from collections.abc import Sequence
from typing import Any

import msgspec

from fleetlight.api.compute.hosts.host_status import HostStatusCache
from fleetlight.api.compute.server_lists.shape import KINDS, SHOWN_SERVER, SOMETIMES
from fleetlight.api.compute.server_lists.show import show_item, with_visible_groups
from fleetlight.api.http.shapes import Key, Shape, TypeSince
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.cells.model import InstanceRow
from fleetlight.resources.instance import INSTANCE_FIELDS

_AS_SHOWN_SINCE = 75
# The keys until 2.74.
_SINCE = {
    **dict.fromkeys(("id", "name", "status", "user_id", "tenant_id", "hostId", "image", "flavor"), 1),
    **dict.fromkeys(("created", "updated", "addresses", "links", "metadata", "accessIPv4", "accessIPv6"), 1),
    **dict.fromkeys(("OS-DCF:diskConfig", "progress", "fault"), 1),
    "server_groups": 71,
    **{
        member.name: member.since
        for member in INSTANCE_FIELDS.members.values()
        if not member.is_for_admins and 1 < member.since < _AS_SHOWN_SINCE
    },
}
_UNTIL_74 = Shape({name: Key(KINDS[name], since, is_optional=name in SOMETIMES) for name, since in _SINCE.items()})
CHANGED_SERVER = TypeSince({1: _UNTIL_74, _AS_SHOWN_SINCE: SHOWN_SERVER})
_ADDRESS_KEYS = ("version", "addr")


async def changed_item(
    request: ApiRequest, row: InstanceRow, host_statuses: HostStatusCache, access: FleetAccess
) -> dict[str, Any]:
    """Make the item of a server that `request` has just changed."""

    def groups_of(project_id: str) -> Sequence[str]:
        return access.fleet.server_groups.of_instance(row.uuid, project_id=project_id)

    row = await with_visible_groups(request, row, groups_of, access.timeout_s)
    statuses = await host_statuses.shown_to(request)
    shown: dict[str, Any] = msgspec.json.decode(show_item(request, row, statuses))
    if request.minor >= _AS_SHOWN_SINCE:
        return shown
    item = _UNTIL_74.of(request.minor, shown)
    item["addresses"] = {
        label: [{name: address[name] for name in _ADDRESS_KEYS} for address in addresses]
        for label, addresses in item["addresses"].items()
    }
    return item
