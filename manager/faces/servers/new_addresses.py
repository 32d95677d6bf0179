"""Addresses of new instances. There is no network service: hosts are simulated, and so are their networks."""

import hashlib
from collections.abc import Sequence
from typing import Any, Literal

from fleetlight.api.http.errors import BadRequestError
from fleetlight.manager.faces.servers.create_body import Network

_DEFAULT_LABEL = "private"


def check_networks(networks: Sequence[Network] | Literal["auto", "none"], count: int) -> None:
    """Raises BadRequestError for what makes no sense, or names a port, since there are none."""
    if isinstance(networks, str):
        return
    for network in networks:
        if network.port is not None and network.fixed_ip:
            raise BadRequestError("Specified Fixed IP cannot be used with port: the two together are not allowed.")
        if network.port is not None:
            raise BadRequestError(f"Port id {network.port} could not be found.")
        if not network.uuid:
            raise BadRequestError("Bad network format: missing 'uuid'")
        if network.fixed_ip and count > 1:
            raise BadRequestError("max_count cannot be greater than 1 if an fixed_ip is specified.")


def addresses_of(networks: Sequence[Network] | Literal["auto", "none"], instance_uuid: str) -> list[dict[str, Any]]:
    """The fixed addresses of an instance: one for each network, or one of the project's own."""
    if networks == "none":
        return []
    if isinstance(networks, str) or not networks:
        return [_address(_DEFAULT_LABEL, instance_uuid, "")]
    return [_address(f"net-{network.uuid[:8]}", instance_uuid, network.fixed_ip) for network in networks]


def _address(label: str, instance_uuid: str, wanted: str) -> dict[str, Any]:
    digest = hashlib.sha256(f"{label} {instance_uuid}".encode()).digest()
    first, second, third = digest[:3]
    address = wanted or f"10.{first}.{second}.{third % 254 + 1}"
    return {
        "label": label,
        "address": address,
        "version": 6 if ":" in address else 4,
        "mac": "fa:16:3e:" + ":".join(f"{octet:02x}" for octet in digest[3:6]),
    }
