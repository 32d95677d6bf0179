"""The disks and network interfaces of an instance; without Ganeti's own, those of the compute API."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from fleetlight.resources.derived_fields import DERIVED_FROM, disks_of
from fleetlight.resources.fields import Record
from fleetlight.resources.query_fields.cluster_parameters import DEFAULT, Parameters
from fleetlight.resources.query_fields.ganeti import own_value
from fleetlight.resources.query_fields.instance import MAX_DISKS, MAX_NICS, NIC_FIELDS
from fleetlight.views.query2.instance_parameters import configured
from fleetlight.views.query2.values import (
    NETWORKS,
    NO_DATA,
    UNAVAILABLE,
    Cell,
    Facts,
    Make,
    Value,
    known,
    made_of,
    normal,
    not_had_of_cell,
    of_record,
)

_DISKLESS, _LOCAL, _ELSEWHERE, _MIXED = "diskless", "plain", "ext", "mixed"
_NIC_PARAMETERS = ("mode", "link", "vlan", "bridge")

Nic = Mapping[str, Any]

_OF_NICS = ("ip_addresses", "ganeti")


def disk_values() -> Iterator[tuple[str, Value]]:
    """Yield the values of fields about disks."""
    yield "disk_template", made_of(_disk_template, "forthcoming", *DERIVED_FROM)
    yield "disk_usage", of_record("disk_usage")
    yield "disk.count", made_of(lambda record: normal(len(disks_of(record))), *DERIVED_FROM)
    for one, several in (("size", "sizes"), ("spindles", "spindles"), ("name", "names"), ("uuid", "uuids")):
        all_of_them = made_of(partial(_each, disks_of, one), *DERIVED_FROM)
        yield f"disk.{several}", all_of_them
        yield from _one_by_one(f"disk.{one}", all_of_them, MAX_DISKS)


def nic_values() -> Iterator[tuple[str, Value]]:
    """Yield the values of fields about network interfaces."""
    yield "nic.count", made_of(lambda record: normal(len(_nics(record))), *_OF_NICS)
    yield "custom_nicparams", made_of(lambda record: normal(_set_on_nics(record)), *_OF_NICS)
    for one, _title, several, *_ in NIC_FIELDS:
        all_of_them = _of_each_nic(one)
        yield f"nic.{several}", all_of_them
        yield from _one_by_one(f"nic.{one}", all_of_them, MAX_NICS)


def _of_each_nic(name: str) -> Value:
    if name in _NIC_PARAMETERS:
        return configured(partial(_parameter_of_nics, name), *_OF_NICS)
    if name == "network.name":
        return Value(_network_names, frozenset(_OF_NICS), of_cell=frozenset({NETWORKS}))
    return made_of(partial(_each, _nics, name), *_OF_NICS)


def _one_by_one(name: str, all_of_them: Value, count: int) -> Iterator[tuple[str, Value]]:
    """Yield the values `NAME/0`, `NAME/1` … from the value with the list of all."""

    def at(index: int) -> Make:
        def make(facts: Facts) -> Cell:
            status, found = all_of_them.make(facts)
            if found is None:
                return status, None
            return known(found[index], UNAVAILABLE) if index < len(found) else UNAVAILABLE

        return make

    for index in range(count):
        yield f"{name}/{index}", Value(at(index), all_of_them.needs, of_cell=all_of_them.of_cell)


def _each(items: Callable[[Record], Sequence[Mapping[str, Any]]], name: str, record: Record) -> Cell:
    """Return the member `name` of each item, None for one that lacks it."""
    return normal([item.get(name) for item in items(record)])


def _disk_template(record: Record) -> Cell:
    """Return the disk template; volumes count as disks of an external storage provider."""
    if record["forthcoming"]:
        return NO_DATA
    found = {_ELSEWHERE if disk["size"] is None else _LOCAL for disk in disks_of(record)}
    return normal(_MIXED if len(found) > 1 else next(iter(found), _DISKLESS))


def _nics(record: Record) -> list[Nic]:
    """Return the network interfaces; addresses with the same MAC address belong to one."""
    found: dict[Any, dict[str, Any]] = {}
    for address in record["ip_addresses"] or ():
        found.setdefault(
            address.get("mac"),
            {
                "ip": address.get("address"),
                "mac": address.get("mac"),
                "name": address.get("device_name"),
                "uuid": address.get("port_uuid"),
                "label": address.get("label"),
            },
        )
    return list(found.values())


def _set_on_nics(record: Record) -> Sequence[Parameters]:
    own: Sequence[Parameters] | None = own_value(record, "custom_nicparams")
    return [{} for _ in _nics(record)] if own is None else own


def _parameter_of_nics(name: str, facts: Facts, cluster: Parameters) -> Cell:
    """Return a parameter of each interface; only `bridged` ones have a bridge, and only Open vSwitch's a VLAN."""
    filled = [{**cluster["nicparams"][DEFAULT], **own} for own in _set_on_nics(facts.record)]
    match name:
        case "bridge":
            return normal([nic.get("link") if nic.get("mode") == "bridged" else None for nic in filled])
        case "vlan":
            return normal([nic.get("vlan") if nic.get("mode") == "openvswitch" else None for nic in filled])
    return normal([nic.get(name) for nic in filled])


def _network_names(facts: Facts) -> Cell:
    """Return the names of the interfaces' networks; for the compute API, the labels."""
    uuids: Sequence[str | None] | None = own_value(facts.record, "nic.networks")
    if uuids is None:
        return normal([nic["label"] for nic in _nics(facts.record)])
    names = facts.cell.networks
    if names is None:
        return not_had_of_cell(facts) if any(uuids) else normal([None for _ in uuids])
    return normal([None if uuid is None else names.get(uuid) for uuid in uuids])
