"""Reads the JSON columns of Nova, in all the shapes that rows of many years have (contracts/nova-db, 2).

Versions are not checked: the reader opens envelopes, takes the members that it knows, and uses defaults for missing
ones. A text that cannot be read, perhaps because MySQL truncated it, counts as missing.
"""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

_DATA = "nova_object.data"
_decode = msgspec.json.decode
_UNREADABLE = (msgspec.DecodeError, UnicodeEncodeError, RecursionError)
# Errors for unknown shapes: one row must not make the list of its cell fail.
_MISSHAPEN = (AttributeError, KeyError, TypeError)

Plain = dict[str, Any]


def decoded(text: str | bytes | None) -> Any:
    """The value of a JSON text, with envelopes of versioned objects opened; None if it cannot be read."""
    if not text:
        return None
    try:
        return opened(_decode(text))
    except _UNREADABLE:
        return None


def opened(value: Any) -> Any:
    """`value` with each envelope replaced by its content, and each object that is a list by the list."""
    if isinstance(value, dict):
        if _DATA in value:
            inside = opened(value[_DATA])
            is_list = isinstance(inside, dict) and inside.keys() == {"objects"}
            return inside["objects"] if is_list else inside
        return {name: opened(each) for name, each in value.items()}
    return [opened(each) for each in value] if isinstance(value, list) else value


@lru_cache(maxsize=4096)
def current_flavor(text: str | None) -> Plain | None:
    """The current flavor of an instance as in a record. Do not change it: instances with the same text share it."""
    flavors = decoded(text)
    return flavor(flavors.get("cur")) if isinstance(flavors, dict) else None


def flavor(found: Any) -> Plain | None:
    if not isinstance(found, dict) or "flavorid" not in found:
        return None
    return {
        "flavorid": found["flavorid"],
        "name": found.get("name", ""),
        "memory_mb": found.get("memory_mb"),
        "vcpus": found.get("vcpus"),
        "root_gb": found.get("root_gb"),
        "ephemeral_gb": found.get("ephemeral_gb"),
        "swap": found.get("swap") or 0,
        "rxtx_factor": found.get("rxtx_factor"),
        "vcpu_weight": found.get("vcpu_weight"),
        "disabled": bool(found.get("disabled")),
        "is_public": found.get("is_public", True),
        "extra_specs": found.get("extra_specs"),
        "projects": found.get("projects"),
        "description": found.get("description"),
    }


def addresses(network_info: str | None) -> list[Plain]:
    """The addresses of the ports in an info cache, in order, fixed ones of each port before floating ones."""
    try:
        ports = _decode(network_info) if network_info else None
        return [address for port in ports or () for address in _addresses_of(port)]
    except (*_UNREADABLE, *_MISSHAPEN):
        return []


def trusted_certificates(text: str | None) -> list[str] | None:
    found = decoded(text)
    return found.get("ids") if isinstance(found, dict) else None


def _addresses_of(port: Mapping[str, Any]) -> Iterator[Plain]:
    network = port.get("network") or {}
    fixed = [address for subnet in network.get("subnets") or () for address in subnet.get("ips") or ()]
    floating = [address for each in fixed for address in each.get("floating_ips") or ()]
    for address in (*fixed, *floating):
        yield {
            "label": network.get("label"),
            "address": address["address"],
            "version": address.get("version"),
            "mac": port.get("address"),
            "meta": port.get("meta") or {},
            "port_uuid": port.get("id"),
            "device_name": port.get("devname"),
            "type": address.get("type"),
        }
