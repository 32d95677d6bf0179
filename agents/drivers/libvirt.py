"""A real host, by libvirt: its guests are domains that an operator has made, its volume groups are storage pools.

It uses libvirt's own Python binding: the extra `libvirt`, which is built against Debian's libvirt-dev. A change is what
is wanted to be, and not a difference, since it may be made once more (agents.agent). Moving guests, and restarting the
host under them, is refused.
"""

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar
from xml.sax.saxutils import escape

from agents.drivers.driver import RUNNING, SHUT_DOWN, Guest, HypervisorState, VolumeGroup
from agents.errors import AgentError, DriverError, UnknownGuestError

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_KIB_IN_MIB = 1024
_BYTES_IN_MIB = 1024 * 1024
_NANOSECONDS = 1_000_000_000
_POLL_S = 0.5
_MOVES_NOTHING = "this host does not move instances: its driver is libvirt, which has to be asked for that itself"


class LibvirtDriver:
    """uri: of libvirt, as in qemu:///system. Raises AgentError without its binding."""

    is_transactional: ClassVar[bool] = False

    def __init__(self, uri: str) -> None:
        try:
            self._libvirt: Any = import_module("libvirt")
        except ImportError as error:
            raise AgentError(
                "libvirt's Python binding is not installed: pip install 'fleetlight[libvirt]', which needs libvirt-dev"
            ) from error
        # It would print what is raised as well.
        self._libvirt.registerErrorHandler(lambda _context, _error: None, None)
        self._uri = uri
        self._guard = Lock()
        self._opened: Any = None

    @property
    def hypervisors(self) -> Collection[str]:
        return (self._said(lambda connection: str(connection.getType()).lower()),)

    def before(self, call: str) -> None:
        """There is nothing to do."""

    def changing(self) -> AbstractContextManager[object]:
        return nullcontext()

    def boot_id(self) -> str:
        return _BOOT_ID.read_text(encoding="ascii").strip()

    def hypervisor(self, name: str) -> HypervisorState:
        self._check_hypervisor(name)
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

    def start(self, hypervisor: str, name: str, *, memory: int, vcpus: int) -> None:
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
            domain = self._domain(connection, name)
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

    def set_memory(self, name: str, memory: int) -> None:
        self._said(lambda connection: self._domain(connection, name).setMemory(memory * _KIB_IN_MIB))

    def accept(self, hypervisor: str, name: str, *, memory: int, vcpus: int) -> None:
        raise DriverError(_MOVES_NOTHING)

    def send_away(self, name: str, target: str) -> None:
        raise DriverError(_MOVES_NOTHING)

    def finish_arrival(self, name: str, *, has_succeeded: bool) -> None:
        raise DriverError(_MOVES_NOTHING)

    def finish_departure(self, name: str, *, has_succeeded: bool) -> None:
        raise DriverError(_MOVES_NOTHING)

    def create_volume(self, volume_group: str, name: str, size: int) -> None:
        def change(connection: Any) -> None:
            pool = self._pool(connection, volume_group)
            if name in pool.listVolumes():
                known = pool.storageVolLookupByName(name).info()[1]
                if known != size * _BYTES_IN_MIB:
                    raise DriverError(f"there is a volume '{name}' of {known // _BYTES_IN_MIB} MiB in {volume_group}")
                return
            pool.createXML(f"<volume><name>{escape(name)}</name><capacity unit='MiB'>{size}</capacity></volume>", 0)

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
        guests = {domain.name(): self._guest(domain) for domain in connection.listAllDomains()}
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

    def _guest(self, domain: Any) -> Guest:
        _, _, memory_kib, vcpus, time_ns = domain.info()
        state = RUNNING if domain.isActive() else SHUT_DOWN
        return Guest(memory_kib // _KIB_IN_MIB, vcpus, state, time_ns / _NANOSECONDS)

    def _domain(self, connection: Any, name: str) -> Any:
        try:
            return connection.lookupByName(name)
        except self._libvirt.libvirtError as error:
            if error.get_error_code() == self._libvirt.VIR_ERR_NO_DOMAIN:
                raise UnknownGuestError(name) from None
            raise

    def _pool(self, connection: Any, name: str) -> Any:
        try:
            return connection.storagePoolLookupByName(name)
        except self._libvirt.libvirtError as error:
            if error.get_error_code() == self._libvirt.VIR_ERR_NO_STORAGE_POOL:
                raise DriverError(f"this host has no storage pool '{name}'") from None
            raise

    def _check_hypervisor(self, name: str) -> None:
        if name not in self.hypervisors:
            raise DriverError(f"this host has the hypervisor {', '.join(self.hypervisors)}, and not '{name}'")

    def _said(self, ask: Callable[[Any], Any]) -> Any:
        """What `ask` finds out by a connection, which is made again when it was lost. Raises DriverError."""
        try:
            with self._guard:
                if self._opened is None or not self._opened.isAlive():
                    self._opened = self._libvirt.open(self._uri)
                connection = self._opened
            return ask(connection)
        except self._libvirt.libvirtError as error:
            raise DriverError(f"libvirt: {error}") from error
