"""A real host, by libvirt: its guests are domains, its volume groups are storage pools.

It uses libvirt's own Python binding: the extra `libvirt`, which is built against Debian's libvirt-dev. A change sets a
wanted state, since it may be repeated (fleetlight.manager.agents.agent). The driver refuses to carry contents of disks,
or memory of guests, to another place, and to restart the host under its guests.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar
from xml.etree.ElementTree import Element, SubElement, tostring
from xml.sax.saxutils import escape

from fleetlight.manager.agents.drivers.driver import (
    RUNNING,
    SHUT_DOWN,
    GuestState,
    HypervisorState,
    VolumeGroup,
    disk_name,
    is_disk_of,
)
from fleetlight.manager.agents.errors import AgentError, DriverError, UnknownGuestError

HYPERVISORS: Mapping[str, str] = {"qemu": "kvm"}
"""Ganeti's names of hypervisors, by libvirt's, where they differ."""
_FIRST = ord("a")
_LETTERS = 26


def domain_xml(hypervisor: str, name: str, memory: int, vcpus: int, disks: Sequence[str]) -> str:
    """Make the definition of a domain. memory: MiB. disks: paths of its volumes."""
    domain = Element("domain", type=hypervisor)
    SubElement(domain, "name").text = name
    SubElement(domain, "memory", unit="MiB").text = str(memory)
    SubElement(domain, "vcpu").text = str(vcpus)
    system = SubElement(domain, "os")
    SubElement(system, "type").text = "hvm"
    SubElement(system, "boot", dev="hd")
    devices = SubElement(domain, "devices")
    for index, path in enumerate(disks):
        is_block = path.startswith("/dev/")
        disk = SubElement(devices, "disk", type="block" if is_block else "file", device="disk")
        SubElement(disk, "source", {"dev" if is_block else "file": path})
        SubElement(disk, "target", dev=_device(index), bus="virtio")
    return tostring(domain, encoding="unicode")


def _device(index: int) -> str:
    """Return the name of a disk's device: vda, … vdz, vdaa, …"""
    beyond, letter = divmod(index, _LETTERS)
    return "vd" + ("" if beyond == 0 else chr(_FIRST + beyond - 1)) + chr(_FIRST + letter)


_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_KIB_IN_MIB = 1024
_BYTES_IN_MIB = 1024 * 1024
_NANOSECONDS = 1_000_000_000
_POLL_S = 0.5
_MOVES_NOTHING = "this host does not move instances: its driver is libvirt, which has to be asked for that itself"
_CHANGES_NO_DISKS = "this host gives no more disks to a guest that is there: its driver is libvirt"
_CARRIES_NOTHING = "this host does not fill or keep disks: its driver is libvirt, which has no images"


class LibvirtDriver:
    """The driver. uri: of libvirt, such as qemu:///system. pool: the storage pool for disks of new guests.

    Raises AgentError without libvirt's binding.
    """

    is_transactional: ClassVar[bool] = False

    def __init__(self, uri: str, pool: str = "xenvg") -> None:
        try:
            self._libvirt: Any = import_module("libvirt")
        except ImportError as error:
            raise AgentError(
                "libvirt's Python binding is not installed: pip install 'fleetlight[libvirt]', which needs libvirt-dev"
            ) from error
        # By default libvirt prints each error that it raises, too.
        self._libvirt.registerErrorHandler(lambda _context, _error: None, None)
        self._uri = uri
        self._pool_name = pool
        self._guard = Lock()
        self._opened: Any = None

    @property
    def hypervisors(self) -> Collection[str]:
        return (self._said(_hypervisor_of),)

    def before(self, call: str) -> None:
        """Do nothing."""

    def changing(self) -> AbstractContextManager[object]:
        return nullcontext()

    def boot_id(self) -> str:
        return _BOOT_ID.read_text(encoding="ascii").strip()

    def hypervisor(self, name: str) -> HypervisorState:
        if name not in self.hypervisors:
            return HypervisorState({}, {})
        state: HypervisorState = self._said(self._state)
        return state

    def volume_groups(self) -> Mapping[str, VolumeGroup]:
        def read(connection: Any) -> dict[str, VolumeGroup]:
            sizes = {pool.name(): pool.info() for pool in connection.listAllStoragePools() if pool.isActive()}
            return {
                name: VolumeGroup(capacity // _BYTES_IN_MIB, available // _BYTES_IN_MIB)
                for name, (_, capacity, _, available) in sizes.items()
            }

        groups: Mapping[str, VolumeGroup] = self._said(read)
        return groups

    def create(
        self,
        hypervisor: str | None,
        name: str,
        *,
        memory: int,
        vcpus: int,
        disks: Sequence[int],
        starts: bool,
        is_moved: bool,
    ) -> None:
        self._check_hypervisor(hypervisor)
        if is_moved:
            raise DriverError(_MOVES_NOTHING)

        def change(connection: Any) -> None:
            pool = self._pool(connection, self._pool_name)
            if self._found(connection, name) is not None:
                known = pool.listVolumes()
                if any(disk_name(name, index) not in known for index, _ in enumerate(disks)):
                    raise DriverError(_CHANGES_NO_DISKS)
                return
            paths = [_volume(pool, disk_name(name, index), size).path() for index, size in enumerate(disks)]
            connection.defineXML(domain_xml(_hypervisor_of(connection), name, memory, vcpus, paths))

        self._said(change)
        if starts:
            self.start(hypervisor, name, memory=memory, vcpus=vcpus)

    def remove(self, name: str) -> None:
        def change(connection: Any) -> None:
            domain = self._found(connection, name)
            if domain is not None:
                if domain.isActive():
                    domain.destroy()
                domain.undefineFlags(self._libvirt.VIR_DOMAIN_UNDEFINE_MANAGED_SAVE)
            pool = self._pool(connection, self._pool_name)
            for volume in pool.listVolumes():
                if is_disk_of(name, volume):
                    pool.storageVolLookupByName(volume).delete(0)

        self._said(change)

    def start(self, hypervisor: str | None, name: str, *, memory: int, vcpus: int) -> None:
        self._check_hypervisor(hypervisor)

        def change(connection: Any) -> None:
            domain = self._domain(connection, name)
            if domain.isActive():
                return
            _, most_kib, _, known_vcpus, _ = domain.info()
            if (most_kib, known_vcpus) != (memory * _KIB_IN_MIB, vcpus):
                raise DriverError(
                    f"instance '{name}' is defined with {most_kib // _KIB_IN_MIB} MiB and {known_vcpus} processors, "
                    f"and not with {memory} MiB and {vcpus}"
                )
            domain.create()

        self._said(change)

    def shut_down(self, name: str, *, timeout_s: float) -> None:
        def change(connection: Any) -> None:
            domain = self._found(connection, name)
            if domain is None:
                return
            ends_s = time.monotonic() + timeout_s
            if domain.isActive():
                domain.shutdown()
            while domain.isActive() and time.monotonic() < ends_s:
                time.sleep(_POLL_S)
            if domain.isActive():
                domain.destroy()

        self._said(change)

    def reboot(self, name: str) -> None:
        self._said(lambda connection: self._domain(connection, name).reboot(0))

    def pause(self, name: str) -> None:
        self._switch(name, self._libvirt.VIR_DOMAIN_PAUSED, lambda domain: domain.suspend())

    def unpause(self, name: str) -> None:
        self._switch(name, self._libvirt.VIR_DOMAIN_RUNNING, lambda domain: domain.resume())

    def suspend(self, name: str) -> None:
        self._switch(name, self._libvirt.VIR_DOMAIN_SHUTOFF, lambda domain: domain.managedSave(0))

    def rescue(self, hypervisor: str | None, name: str, *, memory: int, vcpus: int) -> None:
        raise DriverError(_CARRIES_NOTHING)

    def unrescue(self, hypervisor: str | None, name: str, *, memory: int, vcpus: int) -> None:
        raise DriverError(_CARRIES_NOTHING)

    def rebuild(self, hypervisor: str | None, name: str, *, memory: int, vcpus: int, starts: bool) -> None:
        raise DriverError(_CARRIES_NOTHING)

    def keep_contents(self, name: str) -> None:
        raise DriverError(_CARRIES_NOTHING)

    def set_memory(self, name: str, memory: int) -> None:
        self._said(lambda connection: self._domain(connection, name).setMemory(memory * _KIB_IN_MIB))

    def accept(self, hypervisor: str | None, name: str, *, memory: int, vcpus: int) -> None:
        raise DriverError(_MOVES_NOTHING)

    def send_away(self, name: str, target: str) -> None:
        raise DriverError(_MOVES_NOTHING)

    def finish_arrival(self, name: str, *, has_succeeded: bool) -> None:
        # A refused arrival has ended already.
        if has_succeeded:
            raise DriverError(_MOVES_NOTHING)

    def finish_departure(self, name: str, *, has_succeeded: bool) -> None:
        if has_succeeded:
            raise DriverError(_MOVES_NOTHING)

    def create_volume(self, volume_group: str, name: str, size: int) -> None:
        def change(connection: Any) -> None:
            _volume(self._pool(connection, volume_group), name, size)

        self._said(change)

    def grow_disk(self, name: str, index: int, size: int) -> None:
        def change(connection: Any) -> None:
            pool, volume = self._pool(connection, self._pool_name), disk_name(name, index)
            if volume not in pool.listVolumes():
                raise DriverError(f"there is no volume '{volume}' in {self._pool_name}")
            found = pool.storageVolLookupByName(volume)
            if found.info()[1] < size * _BYTES_IN_MIB:
                found.resize(size * _BYTES_IN_MIB, 0)

        self._said(change)

    def remove_volume(self, volume_group: str, name: str) -> None:
        def change(connection: Any) -> None:
            pool = self._pool(connection, volume_group)
            if name in pool.listVolumes():
                pool.storageVolLookupByName(name).delete(0)

        self._said(change)

    def power_cycle(self) -> None:
        raise DriverError("this host is not restarted under its instances: its driver is libvirt")

    def _state(self, connection: Any) -> HypervisorState:
        _, memory, processors, _, nodes, sockets, _, _ = connection.getInfo()
        guests = dict(self._guests(connection))
        free = connection.getFreeMemory() // _BYTES_IN_MIB
        used = sum(guest.memory for guest in guests.values() if guest.state == RUNNING)
        node = {
            "memory_total": memory,
            "memory_free": free,
            "memory_dom0": max(0, memory - free - used),
            "cpu_total": processors,
            "cpu_nodes": nodes,
            "cpu_sockets": sockets,
            "cpu_dom0": processors,
        }
        return HypervisorState(node, guests)

    def _guests(self, connection: Any) -> Iterator[tuple[str, GuestState]]:
        """Yield the guests by name, without those that were removed since they were listed."""
        for domain in connection.listAllDomains():
            try:
                yield domain.name(), self._guest(domain)
            except self._libvirt.libvirtError as error:
                if error.get_error_code() != self._libvirt.VIR_ERR_NO_DOMAIN:
                    raise

    def _guest(self, domain: Any) -> GuestState:
        _, _, memory_kib, vcpus, time_ns = domain.info()
        state = RUNNING if domain.isActive() else SHUT_DOWN
        return GuestState(memory_kib // _KIB_IN_MIB, vcpus, state, time_ns / _NANOSECONDS)

    def _switch(self, name: str, state: int, change: Callable[[Any], object]) -> None:
        """Bring a domain into a state of libvirt's, unless it is in that state."""

        def switch(connection: Any) -> None:
            domain = self._domain(connection, name)
            if domain.state()[0] != state:
                change(domain)

        self._said(switch)

    def _domain(self, connection: Any, name: str) -> Any:
        domain = self._found(connection, name)
        if domain is None:
            raise UnknownGuestError(name)
        return domain

    def _found(self, connection: Any, name: str) -> Any:
        """Find a domain by name; None if there is none."""
        try:
            return connection.lookupByName(name)
        except self._libvirt.libvirtError as error:
            if error.get_error_code() == self._libvirt.VIR_ERR_NO_DOMAIN:
                return None
            raise

    def _pool(self, connection: Any, name: str) -> Any:
        try:
            return connection.storagePoolLookupByName(name)
        except self._libvirt.libvirtError as error:
            if error.get_error_code() == self._libvirt.VIR_ERR_NO_STORAGE_POOL:
                raise DriverError(f"this host has no storage pool '{name}'") from None
            raise

    def _check_hypervisor(self, name: str | None) -> None:
        if name is not None and name not in self.hypervisors:
            raise DriverError(f"this host has the hypervisor {', '.join(self.hypervisors)}, and not '{name}'")

    def _said(self, ask: Callable[[Any], Any]) -> Any:
        """Run `ask` with a connection, and reconnect if it was lost. Raises DriverError."""
        try:
            with self._guard:
                if self._opened is None or not self._opened.isAlive():
                    self._opened = self._libvirt.open(self._uri)
                connection = self._opened
            return ask(connection)
        except self._libvirt.libvirtError as error:
            raise DriverError(f"libvirt: {error}") from error


def _hypervisor_of(connection: Any) -> str:
    """Return Ganeti's name of the hypervisor."""
    found = str(connection.getType()).lower()
    return HYPERVISORS.get(found, found)


def _volume(pool: Any, name: str, size: int) -> Any:
    """Find or make a volume of a pool. size: MiB. Raises DriverError if it exists with another size."""
    if name not in pool.listVolumes():
        return pool.createXML(f"<volume><name>{escape(name)}</name><capacity unit='MiB'>{size}</capacity></volume>", 0)
    volume = pool.storageVolLookupByName(name)
    known = volume.info()[1]
    if known != size * _BYTES_IN_MIB:
        raise DriverError(f"there is a volume '{name}' of {known // _BYTES_IN_MIB} MiB in {pool.name()}")
    return volume
