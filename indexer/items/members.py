"""The members of an instance's full item: what each shows, and in which form (contracts/nova-servers, section 7).

Links are not among them: the addresses that they begin with are those of a request. Which members a request gets, and
in which order they are kept, is in `indexer.items.view`.
"""

import hashlib
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from cells.native.nodes import DEFAULT_ZONE
from query.fields import Record, from_microseconds
from query.server_status import WITH_FAULT, WITH_PROGRESS, status_of

Members = dict[str, Any]

_MICROSECONDS = 1_000_000
_DAY = 24 * 60 * 60
_GUEST = [
    (f"OS-EXT-SRV-ATTR:{name}", name)
    for name in ("kernel_id", "launch_index", "ramdisk_id", "reservation_id", "root_device_name", "user_data")
]


def common(record: Record) -> Members:
    """What every microversion and every caller gets alike, besides `identity` (section 7.3)."""
    status = _status(record)
    item = {
        "status": status,
        "tenant_id": record["project_id"] or "",
        "user_id": record["user_id"] or "",
        "created": _seconds(record["created_at"]),
        # Nova shows the current time when there was no update; that changes with each look, so we show the creation.
        "updated": _seconds(record["updated_at"] or record["created_at"]),
        "hostId": _host_id(record["project_id"] or "", record["host"]) if record["host"] else "",
        "metadata": record["metadata"] or {},
        "accessIPv4": record["access_ip_v4"] or "",
        "accessIPv6": record["access_ip_v6"] or "",
        "addresses": {} if record["vm_state"] == "building" else _addresses(record["ip_addresses"] or ()),
        "key_name": record["key_name"],
        "config_drive": record["config_drive"],
        "OS-DCF:diskConfig": "AUTO" if record["auto_disk_config"] else "MANUAL",
        "OS-EXT-AZ:availability_zone": record["availability_zone"] or (DEFAULT_ZONE if record["host"] else ""),
        "OS-EXT-STS:task_state": record["task_state"],
        "OS-EXT-STS:vm_state": record["vm_state"],
        "OS-EXT-STS:power_state": record["power_state"],
        "OS-SRV-USG:launched_at": _microseconds(record["launched_at"]),
        "OS-SRV-USG:terminated_at": _microseconds(record["terminated_at"]),
    }
    if status in WITH_PROGRESS:
        item["progress"] = record["progress"]
    if record["security_groups"]:
        item["security_groups"] = [{"name": name} for name in record["security_groups"]]
    return item


def identity(record: Record) -> Members:
    """What an item of `GET /servers` has besides its links."""
    return {"id": record["uuid"], "name": record["display_name"]}


def volumes(record: Record) -> Members:
    """As from 2.3 on; before, a volume has its id only."""
    return {
        "os-extended-volumes:volumes_attached": [
            {"id": device["volume_id"], "delete_on_termination": bool(device.get("delete_on_termination"))}
            for device in record["block_devices"] or ()
            if device.get("volume_id")
        ]
    }


def locked(record: Record) -> Members:
    return {"locked": bool(record["locked"])}


def description(record: Record) -> Members:
    return {"description": record["display_description"]}


def tags(record: Record) -> Members:
    return {"tags": record["tags"] or ()}


def flavor(record: Record) -> Members:
    """The flavor as it was when the instance was created or resized (section 7.5)."""
    embedded = record["flavor"]
    if not embedded:
        return {"flavor": {}}
    return {
        "flavor": {
            "vcpus": embedded["vcpus"],
            "ram": embedded["memory_mb"],
            "disk": embedded["root_gb"],
            "ephemeral": embedded["ephemeral_gb"],
            "swap": embedded.get("swap") or 0,
            "original_name": embedded.get("name"),
            "extra_specs": embedded.get("extra_specs") or {},
        }
    }


def trusted_image_certificates(record: Record) -> Members:
    return {"trusted_image_certificates": record["trusted_image_certificates"]}


def locked_reason(record: Record) -> Members:
    return {"locked_reason": record["locked_reason"]}


def hostname(record: Record) -> Members:
    return {"OS-EXT-SRV-ATTR:hostname": record["hostname"]}


def pinned_availability_zone(record: Record) -> Members:
    return {"pinned_availability_zone": record["pinned_availability_zone"]}


def scheduler_hints(record: Record) -> Members:
    return {"scheduler_hints": record["scheduler_hints"]}


def placement(record: Record) -> Members:
    return {
        "OS-EXT-SRV-ATTR:host": record["host"],
        "OS-EXT-SRV-ATTR:hypervisor_hostname": record["node"],
        "OS-EXT-SRV-ATTR:instance_name": record["instance_name"] or "",
    }


def guest(record: Record) -> Members:
    return {member: record[name] for member, name in _GUEST}


def image(record: Record) -> dict[str, Any] | str:
    """The image without its links, as from 2.98 on; empty text when booted from a volume."""
    if not record["image_ref"]:
        return ""
    properties = record["image_properties"] or {}
    return {
        "id": record["image_ref"],
        "properties": {name: value for name, value in properties.items() if value is not None},
    }


def fault(record: Record) -> dict[str, Any] | None:
    """As administrators see it (section 7.7); None when none is shown."""
    newest = record["fault"]
    if not newest or _status(record) not in WITH_FAULT:
        return None
    shown = {"code": newest["code"], "created": _seconds(newest["created_at"]), "message": newest["message"]}
    if newest.get("details"):
        shown["details"] = newest["details"]
    return shown


def _status(record: Record) -> str:
    return status_of(record["vm_state"], record["task_state"], deleted=bool(record["deleted"]))


def _addresses(addresses: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Addresses by network label, fixed ones first (section 7.4)."""
    networks: dict[str, list[dict[str, Any]]] = {}
    if any("type" in address and address["type"] != "fixed" for address in addresses):
        addresses = sorted(addresses, key=lambda address: address.get("type", "fixed") != "fixed")
    for address in addresses:
        networks.setdefault(address["label"], []).append(
            {
                "addr": address["address"],
                "version": address["version"],
                "OS-EXT-IPS:type": address.get("type", "fixed"),
                "OS-EXT-IPS-MAC:mac_addr": address["mac"],
            }
        )
    return networks


@lru_cache(maxsize=65_536)
def _host_id(project_id: str, host: str) -> str:
    return hashlib.sha224(f"{project_id}{host}".encode()).hexdigest()


def _seconds(value: int | None) -> datetime | None:
    """A time as most members have it: to the second, with a zone. The encoder makes the text."""
    return None if value is None else datetime.fromtimestamp(value // _MICROSECONDS, UTC)


def _microseconds(value: int | None) -> str | None:
    """Text as the two members of a usage have it: to the microsecond, without a zone (section 7.3)."""
    if value is None:
        return None
    # By hand, since `isoformat` takes twice as long.
    seconds, fraction = divmod(value, _MICROSECONDS)
    days, second = divmod(seconds, _DAY)
    return f"{_date(days)}T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}.{fraction:06}"


@lru_cache(maxsize=4096)
def _date(days: int) -> str:
    """The date this many days after the epoch."""
    return from_microseconds(days * _DAY * _MICROSECONDS).date().isoformat()
