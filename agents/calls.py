"""What an agent answers: the arguments of each call, and what it does with its driver.

Which calls only read says agents.rpcs. The shapes of the old calls are those of contracts/ganeti-node-state-cache, 8.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from agents.drivers.driver import Driver, Guest
from agents.errors import DriverError
from agents.wire import CACHE_REQ_BOOTID, CACHE_REQ_DISKINFO, CACHE_REQ_HV, INSTANCES_DATA, NODE_DATA, VERSION

Name = Annotated[str, Field(min_length=1, max_length=255)]
Mebibytes = Annotated[int, Field(gt=0)]
HypervisorSpec = tuple[Name, dict[str, Any]]
"""A hypervisor with its parameters."""
LVM = "lvm-vg"


class Arguments(BaseModel):
    """Of calls without any."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class SnapshotRequest(Arguments):
    hv: list[HypervisorSpec] | None = None
    diskinfo: list[Name] | None = None
    bootid: bool = False


class SnapshotArguments(Arguments):
    request: SnapshotRequest


class NodeInfoArguments(Arguments):
    """storage_units: types, names and parameters of them."""

    storage_units: list[tuple[Name, Name, list[Any]]] | None = None
    hv_specs: list[HypervisorSpec] | None = None


class InstanceInfoArguments(Arguments):
    instance: Name
    hname: Name
    hvparams: dict[str, Any] = Field(default_factory=dict)


class AllInstancesArguments(Arguments):
    hypervisor_list: list[Name]
    all_hvparams: dict[str, dict[str, Any]] = Field(default_factory=dict)


class HypervisorListArguments(Arguments):
    hypervisor_list: list[Name]


class InstanceArguments(Arguments):
    instance: Name


class GuestArguments(InstanceArguments):
    """memory: MiB."""

    hypervisor: Name
    memory: Mebibytes
    vcpus: Annotated[int, Field(gt=0)]


class ShutDownArguments(InstanceArguments):
    timeout_s: Annotated[float, Field(ge=0, le=3600)] = 120.0


class MemoryArguments(InstanceArguments):
    memory: Mebibytes


class MigrateArguments(InstanceArguments):
    target: Name


class FinishArguments(InstanceArguments):
    success: bool


class VolumeArguments(Arguments):
    volume_group: Name
    name: Name


class NewVolumeArguments(VolumeArguments):
    size: Mebibytes


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
    found: dict[str, Guest] = {}
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


def _start(driver: Driver, arguments: GuestArguments) -> None:
    driver.start(arguments.hypervisor, arguments.instance, memory=arguments.memory, vcpus=arguments.vcpus)


def _shut_down(driver: Driver, arguments: ShutDownArguments) -> None:
    driver.shut_down(arguments.instance, timeout_s=arguments.timeout_s)


def _reboot(driver: Driver, arguments: InstanceArguments) -> None:
    driver.reboot(arguments.instance)


def _set_memory(driver: Driver, arguments: MemoryArguments) -> None:
    driver.set_memory(arguments.instance, arguments.memory)


def _accept(driver: Driver, arguments: GuestArguments) -> None:
    driver.accept(arguments.hypervisor, arguments.instance, memory=arguments.memory, vcpus=arguments.vcpus)


def _migrate(driver: Driver, arguments: MigrateArguments) -> None:
    driver.send_away(arguments.instance, arguments.target)


def _finish_arrival(driver: Driver, arguments: FinishArguments) -> None:
    driver.finish_arrival(arguments.instance, has_succeeded=arguments.success)


def _finish_departure(driver: Driver, arguments: FinishArguments) -> None:
    driver.finish_departure(arguments.instance, has_succeeded=arguments.success)


def _create_volume(driver: Driver, arguments: NewVolumeArguments) -> None:
    driver.create_volume(arguments.volume_group, arguments.name, arguments.size)


def _remove_volume(driver: Driver, arguments: VolumeArguments) -> None:
    driver.remove_volume(arguments.volume_group, arguments.name)


def _power_cycle(driver: Driver, _arguments: Arguments) -> None:
    driver.power_cycle()


@dataclass(frozen=True, slots=True)
class Call:
    """arguments: what they have to be. run: what the driver does; returns the payload, which is JSON."""

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
    "instance_start": Call(GuestArguments, _start),
    "instance_shutdown": Call(ShutDownArguments, _shut_down),
    "instance_reboot": Call(InstanceArguments, _reboot),
    "instance_balloon_memory": Call(MemoryArguments, _set_memory),
    "accept_instance": Call(GuestArguments, _accept),
    "instance_migrate": Call(MigrateArguments, _migrate),
    "instance_finalize_migration_dst": Call(FinishArguments, _finish_arrival),
    "instance_finalize_migration_src": Call(FinishArguments, _finish_departure),
    "blockdev_create": Call(NewVolumeArguments, _create_volume),
    "blockdev_remove": Call(VolumeArguments, _remove_volume),
    "node_powercycle": Call(Arguments, _power_cycle),
}
"""By name. Every one of them is in agents.rpcs.RPCS."""


def storage_units(groups: Sequence[str]) -> list[tuple[str, str, list[Any]]]:
    """The argument of `node_info` that asks for volume groups."""
    return [(LVM, group, []) for group in groups]
