"""Converts a server of a compute API to fields of a record, the reverse of fleetlight.views.compute.members; pure.

Shapes: contracts/nova-servers, section 7, with the rights of an administrator. Fields that an older microversion does
not show are left out, so that known values stay.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from fleetlight.resources.derived_fields import derived_values
from fleetlight.resources.fields import Kind, Member, Record, to_microseconds
from fleetlight.resources.instance import BLANK_INSTANCE, INSTANCE_FIELDS
from fleetlight.resources.server_status import DELETED


def to_record(item: Mapping[str, Any]) -> Record:
    """The complete record of a server; fields that are not shown are unset. Raises as `read_item`."""
    return {**BLANK_INSTANCE, **read_item(item)}


def read_item(item: Mapping[str, Any]) -> dict[str, Any]:
    """Stored values by field, including `uuid`.

    Raises KeyError, TypeError, ValueError or AttributeError if this is not an item of a list with details.
    """
    record = {name: read(item[member]) for member, name, read in _MEMBERS if member in item}
    record["uuid"] = str(UUID(item["id"]))
    if isinstance(item.get("flavor"), dict) and "vcpus" in item["flavor"]:
        record["flavor"] = _flavor(item["flavor"])
    if item.get("image"):
        record["image_ref"] = item["image"]["id"]
        if "properties" in item["image"]:
            record["image_properties"] = item["image"]["properties"]
    elif "image" in item:
        record["image_ref"] = ""
    if "flavor" in record:
        record = {**derived_values({**BLANK_INSTANCE, **record}), **record}
        # An embedded flavor has no id.
        del record["flavor_id"]
    record["deleted"] = item["status"] == DELETED
    if record["deleted"]:
        # The API does not show this field; an instance is terminated when it is deleted.
        record["deleted_at"] = record.get("terminated_at") or record["updated_at"]
    return record


def _as_it_is(value: Any) -> Any:
    return value


def _or_none(value: str) -> str | None:
    return value or None


def _time(text: str | None) -> int | None:
    """The time of a text, which is in UTC if it has no zone (section 7.3)."""
    if text is None:
        return None
    moment = datetime.fromisoformat(text)
    return to_microseconds(moment if moment.tzinfo else moment.replace(tzinfo=UTC))


def _addresses(networks: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {
            "label": label,
            "address": address["addr"],
            "version": address["version"],
            "mac": address.get("OS-EXT-IPS-MAC:mac_addr"),
            "meta": {},
            "port_uuid": None,
            "device_name": None,
            "type": address.get("OS-EXT-IPS:type", "fixed"),
        }
        for label, addresses in networks.items()
        for address in addresses
    ]


def _volumes(volumes: Any) -> list[dict[str, Any]]:
    return [
        {
            "device_name": None,
            "boot_index": None,
            "delete_on_termination": volume.get("delete_on_termination", False),
            "volume_id": volume["id"],
            "tag": None,
        }
        for volume in volumes
    ]


def _flavor(flavor: Mapping[str, Any]) -> dict[str, Any]:
    """An embedded flavor, which has no id."""
    return {
        "flavorid": None,
        "name": flavor["original_name"],
        "memory_mb": flavor["ram"],
        "vcpus": flavor["vcpus"],
        "root_gb": flavor["disk"],
        "ephemeral_gb": flavor["ephemeral"],
        "swap": flavor["swap"],
        "extra_specs": flavor.get("extra_specs"),
    }


def _fault(fault: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "code": fault["code"],
        "created_at": _time(fault["created"]),
        "message": fault["message"],
        "details": fault.get("details"),
    }


_SHOWN_OTHERWISE: Mapping[str, Callable[[Any], Any]] = {
    "ip_addresses": _addresses,
    "auto_disk_config": lambda value: value == "AUTO",
    "security_groups": lambda groups: [group["name"] for group in groups],
    "block_devices": _volumes,
    "fault": _fault,
    "tags": list,
}


def _reader_of(name: str, member: Member) -> Callable[[Any], Any]:
    if INSTANCE_FIELDS[name].kind is Kind.TIMESTAMP:
        return _time
    return _SHOWN_OTHERWISE.get(name, _or_none if member.otherwise == "" else _as_it_is)


# The member of an item, the field, and the function that reads the value.
_MEMBERS = [(member.name, name, _reader_of(name, member)) for name, member in INSTANCE_FIELDS.members.items()]
