"""Fields that only Ganeti has, as the stored value of one field of an instance (`ganeti`).

Fields of a single disk, network interface or parameter are not stored, since the lists and parameters contain them.
"""

from collections.abc import Callable, Mapping
from typing import Any

from fleetlight.resources.fields import Record
from fleetlight.resources.query_fields.definitions import ResultStatus
from fleetlight.resources.query_fields.instance import MAX_DISKS, MAX_NICS, NIC_FIELDS
from fleetlight.resources.query_fields.parameters import BACKEND_PARAMETERS, HYPERVISOR_PARAMETERS

KeptFields = Mapping[str, Any]
"""`values`: by field. `no_data`, `offline`: fields whose values were unavailable. Other fields do not apply.

If `is_whole` is false, other fields follow from the rest of the record and the configuration of the cell: native cells
store only values that nothing else has. Their `disk.forthcoming` has for each disk whether it is only reserved.
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
"""The fields that a stored value may contain."""


def kept_fields(record: Record) -> KeptFields:
    """The stored value for KEPT_FIELDS of a record, in which a ResultStatus stands for an unavailable value."""
    said = {name: record[name] for name in KEPT_FIELDS if record.get(name) is not None}
    return {
        "values": {name: value for name, value in said.items() if not isinstance(value, ResultStatus)},
        "no_data": [name for name, value in said.items() if value is ResultStatus.NO_DATA],
        "offline": [name for name, value in said.items() if value is ResultStatus.OFFLINE],
    }


def kept_in_part(values: Mapping[str, Any]) -> KeptFields:
    """The stored value for an instance of a native cell. Raises ValueError for a name that is not in KEPT_FIELDS."""
    if unknown := values.keys() - {*KEPT_FIELDS, DISKS_FORTHCOMING}:
        raise ValueError(f"of an instance there is nothing kept that is called {', '.join(sorted(unknown))}")
    return {"values": values, "no_data": [], "offline": [], "is_whole": False}


def own_value(record: Record, name: str) -> Any:
    """The value of one of KEPT_FIELDS in a record; None if it has none."""
    said = record["ganeti"]
    return None if said is None else said["values"].get(name)


def is_offline(record: Record) -> bool:
    """Whether an operator has marked an instance offline, so that it stays down."""
    return bool(own_value(record, "admin_state") == "offline")


def kept_cell(said: KeptFields, name: str) -> tuple[ResultStatus, Any] | None:
    """The status and value of one field of an instance from a stored value, also of a single disk or parameter.

    None if the field follows from the rest of the record.
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
"""By field: the one that contains its value, and the function that extracts it."""
