"""Facts that only Ganeti has words for, as the stored value of one field of an instance (`ganeti`).

Fields of one disk, one network interface or one parameter are not kept: they follow from the lists and the parameters.
"""

from collections.abc import Callable, Mapping
from typing import Any

from fleetlight.resources.fields import Record
from fleetlight.resources.query_fields.definitions import ResultStatus
from fleetlight.resources.query_fields.instance import MAX_DISKS, MAX_NICS, NIC_FIELDS
from fleetlight.resources.query_fields.parameters import BACKEND_PARAMETERS, HYPERVISOR_PARAMETERS

KeptFields = Mapping[str, Any]
"""`values`: by the names of fields. `no_data`, `offline`: names of those that could not be had. Others do not apply.

With `is_whole` false, others follow from the rest of the record, and from what is configured of the cell: so native
cells keep of an instance what nothing else says. There, `disk.forthcoming` says of each disk if it is reserved only.
"""

DISKS_FORTHCOMING = "disk.forthcoming"

LIVE_FIELDS = ("oper_state", "oper_ram", "oper_vcpus", "status")
DISK_LISTS = {"size": "disk.sizes", "spindles": "disk.spindles", "name": "disk.names", "uuid": "disk.uuids"}
NIC_LISTS = {one: f"nic.{several}" for one, _, several, *_ in NIC_FIELDS}
KEPT_FIELDS = (
    "serial_no",
    "os",
    "hypervisor",
    "disk_template",
    "network_port",
    "admin_state",
    "admin_state_source",
    "disks_active",
    "pnode.group",
    "pnode.group.uuid",
    "snodes",
    "snodes.group",
    "snodes.group.uuid",
    *LIVE_FIELDS,
    "hvparams",
    "beparams",
    "osparams",
    "custom_hvparams",
    "custom_beparams",
    "custom_osparams",
    "custom_nicparams",
    "disk_usage",
    *DISK_LISTS.values(),
    *NIC_LISTS.values(),
)
"""The names that a value of the field may have."""


def kept_fields(record: Record) -> KeptFields:
    """The stored value for what a record says of KEPT_FIELDS; a ResultStatus stands for what could not be had."""
    said = {name: record[name] for name in KEPT_FIELDS if record.get(name) is not None}
    return {
        "values": {name: value for name, value in said.items() if not isinstance(value, ResultStatus)},
        "no_data": [name for name, value in said.items() if value is ResultStatus.NO_DATA],
        "offline": [name for name, value in said.items() if value is ResultStatus.OFFLINE],
    }


def kept_in_part(values: Mapping[str, Any]) -> KeptFields:
    """The stored value of an instance of a native cell. Raises ValueError for a name that nothing is kept under."""
    if unknown := values.keys() - {*KEPT_FIELDS, DISKS_FORTHCOMING}:
        raise ValueError(f"of an instance there is nothing kept that is called {', '.join(sorted(unknown))}")
    return {"values": values, "no_data": [], "offline": [], "is_whole": False}


def own_value(record: Record, name: str) -> Any:
    """What a record keeps of one of KEPT_FIELDS; None where it says nothing."""
    said = record["ganeti"]
    return None if said is None else said["values"].get(name)


def is_offline(record: Record) -> bool:
    """Whether an operator has marked an instance offline: it is down, and is to stay so."""
    return bool(own_value(record, "admin_state") == "offline")


def kept_cell(said: KeptFields, name: str) -> tuple[ResultStatus, Any] | None:
    """What a stored value says of one field of an instance, also of one that follows from others.

    None where that follows from the rest of the record.
    """
    base, pick = DERIVED.get(name, (name, _whole))
    if base in said["no_data"]:
        return ResultStatus.NO_DATA, None
    if base in said["offline"]:
        return ResultStatus.OFFLINE, None
    value = said["values"].get(base)
    if value is None and not said.get("is_whole", True):
        return None
    picked = None if value is None else pick(value)
    return (ResultStatus.UNAVAILABLE, None) if picked is None else (ResultStatus.NORMAL, picked)


def _whole(value: Any) -> Any:
    return value


def _at(index: int) -> Callable[[Any], Any]:
    return lambda values: values[index] if index < len(values) else None


def _member(name: str) -> Callable[[Any], Any]:
    return lambda values: values.get(name)


DERIVED: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "admin_up": ("admin_state", lambda state: state == "up"),
    "disk.count": ("disk.sizes", len),
    "nic.count": ("nic.macs", len),
    **{f"disk.{one}/{n}": (several, _at(n)) for one, several in DISK_LISTS.items() for n in range(MAX_DISKS)},
    **{f"nic.{one}/{n}": (several, _at(n)) for one, several in NIC_LISTS.items() for n in range(MAX_NICS)},
    **{f"be/{name}": ("beparams", _member(name)) for name in BACKEND_PARAMETERS},
    **{f"hv/{name}": ("hvparams", _member(name)) for name in HYPERVISOR_PARAMETERS},
}
"""By the name of a field: the one that it follows from, and how."""
