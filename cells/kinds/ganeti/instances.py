"""Converts an instance of a cluster to a record; pure (docs/reference/ganeti.md).

Fields of the compute API come from fields of Ganeti with the same meaning, or are unset if Ganeti has none, such as
projects. The record keeps the fields that only a cluster has apart (fleetlight.resources.query_fields.ganeti).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from uuid import UUID

from fleetlight.cells.errors import UpstreamError
from fleetlight.cells.kinds.ganeti.values import record_of
from fleetlight.resources.derived_fields import derived_values
from fleetlight.resources.fields import Record
from fleetlight.resources.instance import BLANK_INSTANCE
from fleetlight.resources.power_states import NO_STATE, RUNNING, SHUT_DOWN
from fleetlight.resources.query_fields.definitions import ResultStatus
from fleetlight.resources.query_fields.ganeti import DISK_LISTS, KEPT_FIELDS, NIC_LISTS, kept_fields
from fleetlight.resources.query_fields.instance import INSTANCE
from fleetlight.resources.units import MIB_PER_GIB

_LISTS = ("snodes", "snodes.group", "snodes.group.uuid", *DISK_LISTS.values(), *NIC_LISTS.values())
_OBJECTS = ("hvparams", "beparams", "osparams")
# vm_state and power_state of an instance with this status (contracts/ganeti-query, 8).
_STATES = {
    "running": ("active", RUNNING),
    "ERROR_up": ("active", RUNNING),
    "ERROR_wrongnode": ("error", RUNNING),
    "ERROR_down": ("error", SHUT_DOWN),
    "ERROR_nodedown": ("error", NO_STATE),
    "ERROR_nodeoffline": ("error", NO_STATE),
    "ADMIN_down": ("stopped", SHUT_DOWN),
    "ADMIN_offline": ("stopped", SHUT_DOWN),
    "USER_down": ("stopped", SHUT_DOWN),
}
_RESERVED = ("building", NO_STATE)

INSTANCE_QUERY = ("uuid", "name", "pnode", "tags", "ctime", "mtime", "forthcoming", *KEPT_FIELDS)
"""The fields to request from a cluster."""


def to_record(row: Mapping[str, tuple[int, Any]]) -> Record:
    """The record of an instance, from a row with the fields of INSTANCE_QUERY. Raises UpstreamError if malformed."""
    said = record_of(INSTANCE, row)
    _check(said)
    name, node = _text(said, "name"), _text(said, "pnode")
    is_reserved = bool(said.get("forthcoming"))
    vm_state, power_state = _RESERVED if is_reserved else _STATES.get(said["status"], (None, NO_STATE))
    record: Record = {
        **BLANK_INSTANCE,
        "uuid": _uuid(said),
        "display_name": name,
        "hostname": name,
        "host": node,
        "node": node,
        "vm_state": vm_state,
        "power_state": power_state,
        "progress": 0,
        "config_drive": "",
        "created_at": _known(said, "ctime"),
        "updated_at": _known(said, "mtime"),
        "forthcoming": is_reserved,
        "tags": said.get("tags") or [],
        "flavor": _flavor(said),
        "ip_addresses": list(_addresses(said)),
        "ganeti": kept_fields(said),
    }
    return {**record, **derived_values(record)}


def _check(said: Record) -> None:
    for names, of, shape in ((_LISTS, "a list", list), (("tags",), "a list", list), (_OBJECTS, "an object", dict)):
        for name in names:
            value = said.get(name)
            if value is not None and not isinstance(value, ResultStatus | shape):
                raise UpstreamError(f"the cluster says that {name} of an instance is {str(value)[:100]!r}, not {of}")
    if not all(isinstance(tag, str) for tag in said.get("tags") or ()):
        raise UpstreamError("the cluster says that an instance has a tag that is no text")
    if not isinstance(said.get("status"), str):
        raise UpstreamError("the cluster does not say what status an instance has")


def _uuid(said: Record) -> str:
    try:
        return str(UUID(said["uuid"]))
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise UpstreamError("the cluster has an instance without a uuid") from error


def _known(said: Record, name: str) -> Any:
    value = said.get(name)
    return None if isinstance(value, ResultStatus) else value


def _text(said: Record, name: str) -> str | None:
    value: str | None = _known(said, name)
    return value


def _list(said: Record, name: str) -> Sequence[Any]:
    return _known(said, name) or ()


def _flavor(said: Record) -> Record:
    """The size of the instance, as a flavor without a name."""
    parameters = _known(said, "beparams") or {}
    sizes = _list(said, "disk.sizes")
    first = sizes[0] if sizes and isinstance(sizes[0], int) else 0
    return {
        "flavorid": None,
        "name": None,
        "memory_mb": _number(parameters.get("maxmem")),
        "vcpus": _number(parameters.get("vcpus")),
        "root_gb": -(-first // MIB_PER_GIB),
        "ephemeral_gb": 0,
        "swap": 0,
        "extra_specs": {},
    }


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _addresses(said: Record) -> Iterator[Record]:
    """The addresses of network interfaces; the label is the network, or the link of the interface."""
    macs, names, links = (_list(said, NIC_LISTS[one]) for one in ("mac", "network.name", "link"))
    for index, address in enumerate(_list(said, NIC_LISTS["ip"])):
        if not isinstance(address, str):
            continue
        labels = [values[index] for values in (names, links) if index < len(values) and values[index]]
        yield {
            "label": str(labels[0]) if labels else "",
            "address": address,
            "version": 6 if ":" in address else 4,
            "mac": macs[index] if index < len(macs) else None,
            "meta": {},
            "port_uuid": None,
            "device_name": None,
            "type": "fixed",
        }
