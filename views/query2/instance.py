"""What the fields of Query2 are for an instance: one table (docs/reference/ganeti.md says it in words).

What the record of an instance does not tell is no guess: its cell has status 3 where such an instance has no such
value, and 2 where it has one that is not known.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from resources.fields import Record
from resources.instance import INSTANCE_FIELDS
from resources.power_states import CRASHED, PAUSED, RUNNING, SHUT_DOWN, SUSPENDED
from resources.query_fields.ganeti import DERIVED, LIVE_FIELDS, TOLD_FIELDS, told_cell
from resources.query_fields.instance import INSTANCE, MAX_DISKS, MAX_NICS, NIC_FIELDS
from resources.query_fields.parameters import BACKEND_PARAMETERS, HYPERVISOR_PARAMETERS
from views.query2.values import (
    NO_DATA,
    UNAVAILABLE,
    Cell,
    Facts,
    Value,
    constant,
    is_of_kind,
    known,
    live,
    made_of,
    normal,
    of_list,
    of_record,
)

_MIB_OF_GIB = 1024
# In these states the owner wants the guest to be off; in all others that a guest can have, to run.
_WANTED_DOWN = frozenset({"stopped", "shelved", "shelved_offloaded", "soft-delete", "deleted", "suspended"})
_NOT_MADE = frozenset({"building"})
_PRESENT = frozenset({RUNNING, PAUSED})
_ABSENT = frozenset({SHUT_DOWN, CRASHED, SUSPENDED})

Disk = Mapping[str, Any]
Nic = Mapping[str, Any]


def _admin_state(record: Record) -> str:
    return "down" if record["vm_state"] in _WANTED_DOWN | _NOT_MADE else "up"


def _is_running(record: Record) -> bool | None:
    """Whether the hypervisor has the guest, as it last said; None when it said nothing."""
    if record["power_state"] in _PRESENT:
        return True
    return False if record["power_state"] in _ABSENT else None


def _status(record: Record) -> Cell:
    """By contracts/ganeti-query, 8, of the rules that need no node."""
    is_wanted, is_running = _admin_state(record) == "up", _is_running(record)
    if is_running:
        return normal("running" if is_wanted else "ERROR_up")
    return normal("ERROR_down" if is_wanted else "ADMIN_down")


def _running(record: Record) -> Cell:
    return known(_is_running(record))


def _while_running(_record: Record) -> Cell:
    """Nodes are not asked how much of it a guest uses."""
    return UNAVAILABLE if not _is_running(_record) else NO_DATA


def _of_flavor(name: str) -> Callable[[Record], Cell]:
    def make(record: Record) -> Cell:
        return known((record["flavor"] or {}).get(name))

    return make


def _backend_parameters(record: Record) -> Cell:
    flavor = record["flavor"]
    if not flavor:
        return NO_DATA
    memory = flavor["memory_mb"]
    return normal({"maxmem": memory, "minmem": memory, "vcpus": flavor["vcpus"]})


def _disks(record: Record) -> list[Disk]:
    """The disks in the order in which the guest sees them: its own by the flavor, then the volumes.

    size: MiB, None of a volume, which another service keeps.
    """
    flavor = record["flavor"] or {}
    own = [] if not record["image_ref"] else [flavor.get("root_gb", 0) * _MIB_OF_GIB]
    own += [flavor.get("ephemeral_gb", 0) * _MIB_OF_GIB, flavor.get("swap", 0)]
    volumes = [{"size": None, "uuid": volume.get("volume_id")} for volume in record["block_devices"] or ()]
    return [*({"size": size, "uuid": None} for size in own if size), *volumes]


_OF_DISKS = ("flavor", "image_ref", "block_devices")


def _disk_usage(record: Record) -> Cell:
    return normal(sum(disk["size"] or 0 for disk in _disks(record)))


def _nics(record: Record) -> list[Nic]:
    """The network interfaces: addresses with one MAC address are of one."""
    found: dict[Any, dict[str, Any]] = {}
    for address in record["ip_addresses"] or ():
        found.setdefault(
            address.get("mac"),
            {
                "ip": address.get("address"),
                "mac": address.get("mac"),
                "name": address.get("device_name"),
                "uuid": address.get("port_uuid"),
                "network.name": address.get("label"),
            },
        )
    return list(found.values())


def _each(items: Callable[[Record], Sequence[Mapping[str, Any]]], name: str, record: Record) -> Cell:
    """The member `name` of each item, None where one lacks it."""
    return normal([item.get(name) for item in items(record)])


def _one(items: Callable[[Record], Sequence[Mapping[str, Any]]], name: str, index: int, record: Record) -> Cell:
    """The member `name` of the item at `index`."""
    found = items(record)
    return known(found[index].get(name), UNAVAILABLE) if index < len(found) else UNAVAILABLE


def _configured() -> Iterator[tuple[str, Value]]:
    yield "name", of_record("display_name")
    yield "uuid", of_record("uuid")
    yield "serial_no", Value(lambda facts: known(facts.revision, UNAVAILABLE))
    yield "tags", of_list("tags")
    yield "ctime", of_record("created_at")
    yield (
        "mtime",
        made_of(lambda record: known(record["updated_at"] or record["created_at"]), "updated_at", "created_at"),
    )
    yield "pnode", of_record("node")
    yield "snodes", constant(normal([]))
    yield "snodes.group", constant(normal([]))
    yield "snodes.group.uuid", constant(normal([]))
    yield "admin_state", made_of(lambda record: normal(_admin_state(record)), "vm_state")
    yield "admin_state_source", constant(normal("admin"))
    yield "admin_up", made_of(lambda record: normal(_admin_state(record) == "up"), "vm_state")
    yield "forthcoming", of_record("forthcoming")
    for name in ("os", "hypervisor", "disk_template", "network_port", "disks_active", "console"):
        yield name, constant(UNAVAILABLE)
    for name in ("pnode.group", "pnode.group.uuid"):
        yield name, constant(UNAVAILABLE)


def _live() -> Iterator[tuple[str, Value]]:
    yield "oper_state", live(_running, "power_state")
    yield "oper_ram", live(_while_running, "power_state")
    yield "oper_vcpus", live(_while_running, "power_state")
    yield "status", live(_status, "vm_state", "power_state", while_down=normal("ERROR_nodedown"))


def _parameters() -> Iterator[tuple[str, Value]]:
    yield "beparams", made_of(_backend_parameters, "flavor")
    yield "hvparams", constant(UNAVAILABLE)
    yield "osparams", constant(UNAVAILABLE)
    for name in ("custom_beparams", "custom_hvparams", "custom_osparams"):
        yield name, constant(normal({}))
    yield "custom_nicparams", made_of(lambda record: normal([{} for _ in _nics(record)]), "ip_addresses")
    from_flavor = {"maxmem": "memory_mb", "minmem": "memory_mb", "vcpus": "vcpus"}
    for name in BACKEND_PARAMETERS:
        is_told = name in from_flavor
        yield f"be/{name}", made_of(_of_flavor(from_flavor[name]), "flavor") if is_told else constant(UNAVAILABLE)
    for name in HYPERVISOR_PARAMETERS:
        yield f"hv/{name}", constant(UNAVAILABLE)


def _of_disks() -> Iterator[tuple[str, Value]]:
    yield "disk_usage", made_of(_disk_usage, *_OF_DISKS)
    yield "disk.count", made_of(lambda record: normal(len(_disks(record))), *_OF_DISKS)
    for one, several in (("size", "sizes"), ("spindles", "spindles"), ("name", "names"), ("uuid", "uuids")):
        yield f"disk.{several}", made_of(partial(_each, _disks, one), *_OF_DISKS)
        for index in range(MAX_DISKS):
            yield f"disk.{one}/{index}", made_of(partial(_one, _disks, one, index), *_OF_DISKS)


def _of_nics() -> Iterator[tuple[str, Value]]:
    yield "nic.count", made_of(lambda record: normal(len(_nics(record))), "ip_addresses")
    for one, _title, several, *_ in NIC_FIELDS:
        yield f"nic.{several}", made_of(partial(_each, _nics, one), "ip_addresses")
        for index in range(MAX_NICS):
            yield f"nic.{one}/{index}", made_of(partial(_one, _nics, one, index), "ip_addresses")


def _own() -> Iterator[tuple[str, Value]]:
    yield "cell", Value(lambda facts: normal(facts.cell))
    for name, field in INSTANCE_FIELDS.items():
        if name in INSTANCE:
            yield name, of_list(name) if field.is_list else of_record(name, UNAVAILABLE)


def _as_told(name: str, value: Value) -> Value:
    """What a cluster says of the field, where one says something of the instance; else the same value."""
    is_live = name in LIVE_FIELDS

    def make(facts: Facts) -> Cell:
        said = facts.record["ganeti"]
        if said is None or (is_live and facts.cell_is_down):
            return value.make(facts)
        status, found = told_cell(said, name)
        return NO_DATA if found is not None and not is_of_kind(found, INSTANCE[name].kind) else (status, found)

    return Value(make, value.needs | {"ganeti"}, value.stored)


def _all() -> dict[str, Value]:
    values = dict(_own()) | dict((*_configured(), *_live(), *_parameters(), *_of_disks(), *_of_nics()))
    values |= {name: _as_told(name, values[name]) for name in (*TOLD_FIELDS, *DERIVED)}
    return values | {alias: values[target] for alias, target in INSTANCE.aliases.items()}


INSTANCE_VALUES: Mapping[str, Value] = _all()
"""How each field of resources.query_fields.instance comes about, aliases too."""
