"""Converts rows of Nova to records of instances (fleetlight.resources.instance); pure (contracts/nova-db, 2)."""

from collections.abc import Collection
from contextlib import suppress
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row

from fleetlight.cells.kinds.nova_db.details import Details, image_properties
from fleetlight.cells.kinds.nova_db.json_columns import addresses, current_flavor, decoded, flavor, trusted_certificates
from fleetlight.cells.kinds.nova_db.tables import INSTANCE_NAME_PREFIX, NOT_IN_COLUMNS, PLAIN_COLUMNS
from fleetlight.resources.derived_fields import DERIVED_FROM, derived_values
from fleetlight.resources.fields import Kind, to_microseconds
from fleetlight.resources.instance import INSTANCE_FIELDS

_DETAILS = tuple(each.name for each in fields(Details))
# Fields that are not in these databases, or not shown.
_NOT_THERE: dict[str, Any] = dict.fromkeys(("security_groups", "keypairs", "shares", "ganeti")) | {"forthcoming": False}
_ON_A_HOST = ("host", "node", "launched_on", "launched_at", "terminated_at")

# Columns to read of each row, and the columns of fields with another name.
_ALWAYS_READ = {"id", "uuid", "deleted", "hidden", "locked_by", "vm_state", "task_state"}
_READ_AS = {"trusted_image_certificates": "trusted_certs", "ip_addresses": "network_info"}


def columns_for(fields: Collection[str]) -> set[str]:
    """The names of the columns that `to_record` needs for these fields."""
    derived = DERIVED_FROM if NOT_IN_COLUMNS.intersection(fields) else ()
    return _ALWAYS_READ.union(_READ_AS.get(name, name) for name in (*fields, *derived))


def to_record(row: Row[Any], details: Details) -> dict[str, Any]:
    """The record of a row of `instances` with `flavor`, `trusted_certs` and `network_info`; missing lists are empty."""
    values = row._mapping
    record: dict[str, Any] = {name: values[name] for name in PLAIN_COLUMNS}
    current = current_flavor(values["flavor"])
    deleted = values["deleted"]
    record["deleted"] = None if deleted is None else deleted != 0
    record["hidden"] = bool(values["hidden"])
    record["locked"] = bool(values["locked_by"])
    record["flavor"] = current
    record["instance_name"] = f"{INSTANCE_NAME_PREFIX}{values['id']:08x}"
    record["ip_addresses"] = addresses(values["network_info"])
    record["trusted_image_certificates"] = trusted_certificates(values["trusted_certs"])
    return _with_derived(record | _NOT_THERE | _details_fields(details))


def build_request_record(row: Row[Any], details: Details) -> dict[str, Any] | None:
    """The record of a build request; None if it cannot be read, which Nova treats as absent.

    Raises one of fleetlight.cells.kinds.nova_db.damage.MISSHAPEN if it is damaged.
    """
    found = decoded(row.instance)
    if not isinstance(found, dict):
        return None
    record: dict[str, Any] = {name: _as_stored(name, found.get(name)) for name in PLAIN_COLUMNS}
    certificates = found.get("trusted_certs") or {}
    system = found.get("system_metadata") or {}
    record["flavor"] = flavor(found.get("flavor"))
    record |= _NOT_THERE | _details_fields(details) | dict.fromkeys(_ON_A_HOST)
    record |= _of_build_request(row)
    record |= {
        "hidden": bool(found.get("hidden")),
        "locked": bool(found.get("locked_by")),
        "instance_name": None,
        "ip_addresses": addresses((found.get("info_cache") or {}).get("network_info")),
        "trusted_image_certificates": certificates.get("ids"),
        "metadata": found.get("metadata") or {},
        "image_properties": image_properties(system),
        "tags": sorted(tag["tag"] for tag in decoded(row.tags) or ()),
    }
    return _with_derived(record)


def readable_build_request(row: Row[Any]) -> dict[str, Any]:
    """The readable fields of a build request for which `build_request_record` raises."""
    found = decoded(row.instance)
    readable: dict[str, Any] = {"forthcoming": False, "hidden": bool(found.get("hidden"))}
    for name in PLAIN_COLUMNS:
        with suppress(TypeError, ValueError):
            readable[name] = _as_stored(name, found.get(name))
    return readable | _of_build_request(row)


def _of_build_request(row: Row[Any]) -> dict[str, Any]:
    """The fields from columns of a build request, and those that are equal for all."""
    return {
        "uuid": row.instance_uuid,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
        "deleted": False,
    }


def _with_derived(record: dict[str, Any]) -> dict[str, Any]:
    """Add derived fields, except those with a column, by which the database sorts."""
    return {**derived_values(record), **record}


def _details_fields(details: Details) -> dict[str, Any]:
    return {name: getattr(details, name) for name in _DETAILS}


def _as_stored(name: str, value: Any) -> Any:
    """The stored value of a member of an object, in which times are text."""
    if value is None or INSTANCE_FIELDS[name].kind is not Kind.TIMESTAMP:
        return value
    moment = datetime.fromisoformat(value)
    return to_microseconds(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
