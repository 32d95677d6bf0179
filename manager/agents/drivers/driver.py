"""The interface of drivers, by which an agent controls its host."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

RUNNING, SHUT_DOWN = 0, 1
"""The states of a guest (contracts/ganeti-node-state-cache, 8)."""


@dataclass(frozen=True, slots=True)
class GuestState:
    """The state of an instance in its hypervisor. memory: MiB. time: seconds of processor time."""

    memory: int
    vcpus: int
    state: int
    time: float

    def to_json(self) -> dict[str, Any]:
        return {"memory": self.memory, "vcpus": self.vcpus, "state": self.state, "time": self.time}


@dataclass(frozen=True, slots=True)
class HypervisorState:
    """The report of one hypervisor of the host at one moment.

    node: memory_total, memory_free, memory_dom0 (MiB), cpu_total, cpu_nodes, cpu_sockets, cpu_dom0. guests: by name.
    """

    node: Mapping[str, int]
    guests: Mapping[str, GuestState]


@dataclass(frozen=True, slots=True)
class VolumeGroup:
    """Sizes in MiB."""

    size: int
    free: int


class Driver(Protocol):
    """A driver. Its calls block, come from several threads, and raise DriverError.

    is_transactional: whether `changing` undoes its changes if the process dies in the block.
    """

    is_transactional: ClassVar[bool]

    @property
    def hypervisors(self) -> Collection[str]:
        """Return the names of the host's hypervisors."""
        ...

    def before(self, call: str) -> None:
        """Prepare for a call, without locks; may raise DriverError, which fails the call."""

    def changing(self) -> AbstractContextManager[object]:
        """Return the context in which a change and its entry in the journal are made."""
        ...

    def boot_id(self) -> str: ...

    def hypervisor(self, name: str) -> HypervisorState:
        """Report node and guests as of one moment, since the free memory depends on the guests.

        Empty for a hypervisor that the host lacks, since cells ask all nodes for all of their hypervisors.
        """
        ...

    def volume_groups(self) -> Mapping[str, VolumeGroup]: ...

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
        """Make a guest and its disks (sizes in MiB); leave existing ones as they are.

        hypervisor: None for the host's default. is_moved: whether the disks must get the contents of those elsewhere.
        """

    def remove(self, name: str) -> None:
        """End a guest, and remove it and its original disks; do nothing if it does not exist."""

    def start(self, hypervisor: str | None, name: str, *, memory: int, vcpus: int) -> None:
        """Start a guest; do nothing if it runs."""

    def shut_down(self, name: str, *, timeout_s: float) -> None:
        """Ask a guest to shut down, and end it after `timeout_s`; do nothing if it does not exist."""

    def reboot(self, name: str) -> None: ...

    def pause(self, name: str) -> None: ...

    def unpause(self, name: str) -> None: ...

    def suspend(self, name: str) -> None:
        """Save a guest's state and end it, so that a start resumes it."""

    def rescue(self, hypervisor: str | None, name: str, *, memory: int, vcpus: int) -> None:
        """Start a guest with a rescue system, to repair its own."""

    def unrescue(self, hypervisor: str | None, name: str, *, memory: int, vcpus: int) -> None:
        """Start a guest with its own system again."""

    def rebuild(self, hypervisor: str | None, name: str, *, memory: int, vcpus: int, starts: bool) -> None:
        """Install a new system on a guest's disks."""

    def keep_contents(self, name: str) -> None:
        """Copy the contents of a guest's disks to another place."""

    def set_memory(self, name: str, memory: int) -> None: ...

    def accept(self, hypervisor: str | None, name: str, *, memory: int, vcpus: int) -> None:
        """Prepare for a guest that will arrive from another host."""

    def send_away(self, name: str, target: str) -> None:
        """Migrate a guest to `target`, which is prepared for it."""

    def finish_arrival(self, name: str, *, has_succeeded: bool) -> None:
        """Finish a guest's arrival. has_succeeded: False if it does not come; fails if it has arrived already."""

    def finish_departure(self, name: str, *, has_succeeded: bool) -> None: ...

    def grow_disk(self, name: str, index: int, size: int) -> None:
        """Grow a disk to `size` MiB; do nothing if it has that size."""

    def create_volume(self, volume_group: str, name: str, size: int) -> None: ...

    def remove_volume(self, volume_group: str, name: str) -> None: ...

    def power_cycle(self) -> None:
        """Restart the host: its guests end, and its boot id changes."""


def disk_name(guest: str, index: int) -> str:
    """Return the name of a disk's volume."""
    return f"{guest}.disk{index}"


def is_disk_of(guest: str, volume: str) -> bool:
    """Whether a volume has the name of a guest's disk."""
    index = volume.removeprefix(f"{guest}.disk")
    return index.isdecimal() and volume == disk_name(guest, int(index))
