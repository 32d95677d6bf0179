"""The action `rebuild` (contracts/nova-rest, 2.4)."""

from functools import partial
from typing import Any

from starlette.responses import Response

from fleetlight.api.compute.hosts.host_status import HostStatusCache
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.shapes import TEXT, Extended, Key, or_null
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.api.shared.references import check_metadata, named_keypairs
from fleetlight.manager.faces.servers.action_bodies import RebuildBody
from fleetlight.manager.faces.servers.changed_server import CHANGED_SERVER, changed_item
from fleetlight.manager.faces.servers.create import given_or_new
from fleetlight.manager.faces.servers.lookup import FoundServer
from fleetlight.manager.faces.servers.orders import accept, order_of, require_ready

_KEY_SINCE, _USER_DATA_SINCE = 54, 57
REBUILT_SERVER = Extended(
    CHANGED_SERVER,
    {
        "adminPass": TEXT,
        "key_name": Key(or_null(TEXT), since=_KEY_SINCE),
        "user_data": Key(or_null(TEXT), since=_USER_DATA_SINCE),
    },
)


class RebuildAction:
    def __init__(self, access: FleetAccess, host_statuses: HostStatusCache) -> None:
        self._access = access
        self._host_statuses = host_statuses

    async def rebuild(self, request: ApiRequest, server: FoundServer, content: RebuildBody) -> Response:
        require_ready(request, server, "rebuild")
        access = self._access
        access.check_image(content.image_ref)
        await access.ask(partial(check_metadata, access, request, content.metadata))
        values = _rebuilt_values(content)
        if "key_name" in values:
            values["keypairs"] = await access.ask(partial(named_keypairs, access, request, values["key_name"]))
        row = await accept(access, request, server, order_of(request, "rebuild", values=values))
        item = await changed_item(request, row, self._host_statuses, self._access)
        item["adminPass"] = given_or_new(content.admin_pass)
        if request.minor >= _KEY_SINCE:
            item["key_name"] = row.record["key_name"]
        if request.minor >= _USER_DATA_SINCE:
            item["user_data"] = row.record["user_data"]
            item.pop("OS-EXT-SRV-ATTR:user_data", None)
        return json_answer({"server": item}, 202, {"Location": request.links.of_server(server.uuid)[0]["href"]})


def _rebuilt_values(content: RebuildBody) -> dict[str, Any]:
    """Return the given fields, which a rebuild sets in the record."""
    names = {
        "image_ref": "image_ref",
        "name": "display_name",
        "description": "display_description",
        "metadata": "metadata",
        "access_ip_v4": "access_ip_v4",
        "access_ip_v6": "access_ip_v6",
        "key_name": "key_name",
        "user_data": "user_data",
        "trusted_image_certificates": "trusted_image_certificates",
        "hostname": "hostname",
    }
    given = content.model_dump(exclude_unset=True)
    values = {record_name: given[name] for name, record_name in names.items() if name in given}
    if values.get("user_data") is not None:
        values["user_data"] = values["user_data"].get_secret_value()
    if "disk_config" in given:
        values["auto_disk_config"] = given["disk_config"] == "AUTO"
    return values
