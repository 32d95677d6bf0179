"""The calls that an agent answers: the arguments of each, and its execution by the driver.

fleetlight.manager.agents.rpcs says which calls only read. The shapes of the old calls are those of
contracts/ganeti-node-state-cache, 8.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fleetlight.manager.agents import changes
from fleetlight.manager.agents.arguments import (
    AllInstancesArguments,
    Arguments,
    FinishArguments,
    GrowArguments,
    GuestArguments,
    HypervisorListArguments,
    InstanceArguments,
    InstanceInfoArguments,
    MemoryArguments,
    MigrateArguments,
    NewGuestArguments,
    NewVolumeArguments,
    NodeInfoArguments,
    RebuildArguments,
    ShutDownArguments,
    SnapshotArguments,
    VolumeArguments,
)
from fleetlight.manager.agents.drivers.driver import Driver, GuestState
from fleetlight.manager.agents.errors import DriverError
from fleetlight.manager.agents.wire import (
    CACHE_REQ_BOOTID,
    CACHE_REQ_DISKINFO,
    CACHE_REQ_HV,
    INSTANCES_DATA,
    NODE_DATA,
    VERSION,
)

LVM = "lvm-vg"


def _version(_driver: Driver, _arguments: Arguments) -> int:
    return VERSION


def _node_snapshot(driver: Driver, arguments: SnapshotArguments) -> dict[str, Any]:
    request = arguments.request
    found: dict[str, Any] = {}
    if request.hv is not None:
        found[CACHE_REQ_HV] = {name: _hypervisor_data(driver, name) for name, _ in request.hv}
    if request.diskinfo is not None:
        groups = driver.volume_groups()
        found[CACHE_REQ_DISKINFO] = {
            name: {"vg_size": group and group.size, "vg_free": group and group.free}
            for name in request.diskinfo
            for group in [groups.get(name)]
        }
    if request.bootid:
        found[CACHE_REQ_BOOTID] = driver.boot_id()
    return found


def _hypervisor_data(driver: Driver, name: str) -> dict[str, Any]:
    state = driver.hypervisor(name)
    guests = {guest: values.to_json() for guest, values in state.guests.items()}
    return {NODE_DATA: dict(state.node), INSTANCES_DATA: guests}


def _node_info(driver: Driver, arguments: NodeInfoArguments) -> list[Any]:
    storage = None
    if arguments.storage_units is not None:
        groups = driver.volume_groups()
        storage = []
        for kind, name, _ in arguments.storage_units:
            group = groups.get(name) if kind == LVM else None
            storage.append(
                {
                    "type": kind,
                    "name": name,
                    "storage_free": group and group.free,
                    "storage_size": group and group.size,
                }
            )
    specs = arguments.hv_specs
    hypervisors = None if specs is None else [dict(driver.hypervisor(name).node) for name, _ in specs]
    return [driver.boot_id(), storage, hypervisors]


def _instance_info(driver: Driver, arguments: InstanceInfoArguments) -> dict[str, Any]:
    guest = driver.hypervisor(arguments.hname).guests.get(arguments.instance)
    return {} if guest is None else guest.to_json()


def _all_instances_info(driver: Driver, arguments: AllInstancesArguments) -> dict[str, Any]:
    found: dict[str, GuestState] = {}
    for hypervisor in arguments.hypervisor_list:
        for name, guest in driver.hypervisor(hypervisor).guests.items():
            other = found.get(name)
            if other is not None and (other.memory, other.vcpus) != (guest.memory, guest.vcpus):
                raise DriverError(f"Instance {name} is running twice with different parameters")
            found[name] = guest
    return {name: guest.to_json() for name, guest in found.items()}


def _instance_list(driver: Driver, arguments: HypervisorListArguments) -> list[str]:
    return sorted({name for each in arguments.hypervisor_list for name in driver.hypervisor(each).guests})


def _vg_list(driver: Driver, _arguments: Arguments) -> dict[str, int]:
    return {name: group.size for name, group in driver.volume_groups().items()}


@dataclass(frozen=True, slots=True)
class Call:
    """A call. arguments: their model. run: carries the call out by the driver; returns the payload, which is JSON."""

    arguments: type[Arguments]
    run: Callable[[Driver, Any], Any]


CALLS: Mapping[str, Call] = {
    "version": Call(Arguments, _version),
    "node_snapshot": Call(SnapshotArguments, _node_snapshot),
    "node_info": Call(NodeInfoArguments, _node_info),
    "instance_info": Call(InstanceInfoArguments, _instance_info),
    "all_instances_info": Call(AllInstancesArguments, _all_instances_info),
    "instance_list": Call(HypervisorListArguments, _instance_list),
    "vg_list": Call(Arguments, _vg_list),
    "instance_create": Call(NewGuestArguments, changes.create),
    "instance_remove": Call(InstanceArguments, changes.remove),
    "instance_start": Call(GuestArguments, changes.start),
    "instance_shutdown": Call(ShutDownArguments, changes.shut_down),
    "instance_reboot": Call(InstanceArguments, changes.reboot),
    "instance_pause": Call(InstanceArguments, changes.pause),
    "instance_unpause": Call(InstanceArguments, changes.unpause),
    "instance_suspend": Call(InstanceArguments, changes.suspend),
    "instance_rescue": Call(GuestArguments, changes.rescue),
    "instance_unrescue": Call(GuestArguments, changes.unrescue),
    "instance_rebuild": Call(RebuildArguments, changes.rebuild),
    "instance_snapshot": Call(InstanceArguments, changes.snapshot),
    "instance_balloon_memory": Call(MemoryArguments, changes.set_memory),
    "resize_disk": Call(GrowArguments, changes.grow_disk),
    "accept_instance": Call(GuestArguments, changes.accept),
    "instance_migrate": Call(MigrateArguments, changes.migrate),
    "instance_finalize_migration_dst": Call(FinishArguments, changes.finish_arrival),
    "instance_finalize_migration_src": Call(FinishArguments, changes.finish_departure),
    "blockdev_create": Call(NewVolumeArguments, changes.create_volume),
    "blockdev_remove": Call(VolumeArguments, changes.remove_volume),
    "node_powercycle": Call(Arguments, changes.power_cycle),
}
"""The calls by name. Each is also in fleetlight.manager.agents.rpcs.RPCS."""


def storage_units(groups: Sequence[str]) -> list[tuple[str, str, list[Any]]]:
    """Make the argument of `node_info` that asks for volume groups."""
    return [(LVM, group, []) for group in groups]
