"""The changing calls: each passes its arguments to the driver."""

from fleetlight.manager.agents.arguments import (
    Arguments,
    FinishArguments,
    GrowArguments,
    GuestArguments,
    InstanceArguments,
    MemoryArguments,
    MigrateArguments,
    NewGuestArguments,
    NewVolumeArguments,
    RebuildArguments,
    ShutDownArguments,
    VolumeArguments,
)
from fleetlight.manager.agents.drivers.driver import Driver


def create(driver: Driver, arguments: NewGuestArguments) -> None:
    driver.create(
        arguments.hypervisor,
        arguments.instance,
        memory=arguments.memory,
        vcpus=arguments.vcpus,
        disks=arguments.disks,
        starts=arguments.start,
        is_moved=arguments.moved,
    )


def remove(driver: Driver, arguments: InstanceArguments) -> None:
    driver.remove(arguments.instance)


def start(driver: Driver, arguments: GuestArguments) -> None:
    driver.start(arguments.hypervisor, arguments.instance, memory=arguments.memory, vcpus=arguments.vcpus)


def shut_down(driver: Driver, arguments: ShutDownArguments) -> None:
    driver.shut_down(arguments.instance, timeout_s=arguments.timeout_s)


def reboot(driver: Driver, arguments: InstanceArguments) -> None:
    driver.reboot(arguments.instance)


def pause(driver: Driver, arguments: InstanceArguments) -> None:
    driver.pause(arguments.instance)


def unpause(driver: Driver, arguments: InstanceArguments) -> None:
    driver.unpause(arguments.instance)


def suspend(driver: Driver, arguments: InstanceArguments) -> None:
    driver.suspend(arguments.instance)


def rescue(driver: Driver, arguments: GuestArguments) -> None:
    driver.rescue(arguments.hypervisor, arguments.instance, memory=arguments.memory, vcpus=arguments.vcpus)


def unrescue(driver: Driver, arguments: GuestArguments) -> None:
    driver.unrescue(arguments.hypervisor, arguments.instance, memory=arguments.memory, vcpus=arguments.vcpus)


def rebuild(driver: Driver, arguments: RebuildArguments) -> None:
    driver.rebuild(
        arguments.hypervisor,
        arguments.instance,
        memory=arguments.memory,
        vcpus=arguments.vcpus,
        starts=arguments.start,
    )


def snapshot(driver: Driver, arguments: InstanceArguments) -> None:
    driver.keep_contents(arguments.instance)


def grow_disk(driver: Driver, arguments: GrowArguments) -> None:
    driver.grow_disk(arguments.instance, arguments.disk, arguments.size)


def set_memory(driver: Driver, arguments: MemoryArguments) -> None:
    driver.set_memory(arguments.instance, arguments.memory)


def accept(driver: Driver, arguments: GuestArguments) -> None:
    driver.accept(arguments.hypervisor, arguments.instance, memory=arguments.memory, vcpus=arguments.vcpus)


def migrate(driver: Driver, arguments: MigrateArguments) -> None:
    driver.send_away(arguments.instance, arguments.target)


def finish_arrival(driver: Driver, arguments: FinishArguments) -> None:
    driver.finish_arrival(arguments.instance, has_succeeded=arguments.success)


def finish_departure(driver: Driver, arguments: FinishArguments) -> None:
    driver.finish_departure(arguments.instance, has_succeeded=arguments.success)


def create_volume(driver: Driver, arguments: NewVolumeArguments) -> None:
    driver.create_volume(arguments.volume_group, arguments.name, arguments.size)


def remove_volume(driver: Driver, arguments: VolumeArguments) -> None:
    driver.remove_volume(arguments.volume_group, arguments.name)


def power_cycle(driver: Driver, _arguments: Arguments) -> None:
    driver.power_cycle()
