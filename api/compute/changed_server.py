"""A server as `PUT` and rebuild answer with it: fewer keys than show until 2.74 (contracts/nova-rest, 2.1)."""

from typing import Any

import msgspec

from api.compute.endpoint import ComputeRequest
from api.compute.host_status import HostStatusCache
from api.compute.servers import show_item
from cells.model import InstanceRow

_AS_SHOWN_SINCE = 75
_KEYS = {
    "id": 1,
    "name": 1,
    "status": 1,
    "user_id": 1,
    "tenant_id": 1,
    "hostId": 1,
    "image": 1,
    "flavor": 1,
    "created": 1,
    "updated": 1,
    "addresses": 1,
    "links": 1,
    "metadata": 1,
    "accessIPv4": 1,
    "accessIPv6": 1,
    "OS-DCF:diskConfig": 1,
    "progress": 1,
    "fault": 1,
    "locked": 9,
    "description": 19,
    "tags": 26,
    "trusted_image_certificates": 63,
    "server_groups": 71,
    "locked_reason": 73,
}
_ADDRESS_KEYS = ("version", "addr")


async def changed_item(request: ComputeRequest, row: InstanceRow, host_statuses: HostStatusCache) -> dict[str, Any]:
    """The item of a server that `request` has just changed."""
    statuses = await host_statuses.shown_to(request)
    shown: dict[str, Any] = msgspec.json.decode(show_item(request, row, statuses))
    if request.minor >= _AS_SHOWN_SINCE:
        return shown
    item = {name: value for name, value in shown.items() if _KEYS.get(name, _AS_SHOWN_SINCE) <= request.minor}
    item["addresses"] = {
        label: [{name: address[name] for name in _ADDRESS_KEYS} for address in addresses]
        for label, addresses in item["addresses"].items()
    }
    return item
