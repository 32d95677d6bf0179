"""The interface of drivers: what an agent asks of the host that it runs on."""

from collections.abc import Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

RUNNING, SHUT_DOWN = 0, 1
"""The states of a guest (contracts/ganeti-node-state-cache, 8)."""


@dataclass(frozen=True, slots=True)
class GuestState:
    """An instance as its hypervisor has it. memory: MiB. time: seconds of processor time."""

    memory: int
    vcpus: int
    state: int
    time: float

    def to_json(self) -> dict[str, Any]:
        return {"memory": self.memory, "vcpus": self.vcpus, "state": self.state, "time": self.time}


@dataclass(frozen=True, slots=True)
class HypervisorState:
    """What one hypervisor of the host says at one moment.

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
    """Calls block, come from several threads, and raise DriverError.

    is_transactional: whether `changing` takes back what was changed when the process ends inside of it.
    """

    is_transactional: ClassVar[bool]

    @property
    def hypervisors(self) -> Collection[str]:
        """Those that can be asked for."""
        ...

    def before(self, call: str) -> None:
        """Called first for each call, with nothing locked; may raise DriverError."""

    def changing(self) -> AbstractContextManager[object]:
        """What a change and the note that it was made happen in."""
        ...

    def boot_id(self) -> str: ...

    def hypervisor(self, name: str) -> HypervisorState:
        """Node and guests of the same moment, since the free memory depends on the guests.

        Of a hypervisor that the host does not have there is nothing: cells ask all of their nodes for all they know.
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
        """Make a guest with its disks, which have these sizes in MiB; nothing of what is there already.

        hypervisor: None: whichever the host has. is_moved: whether the disks have to have what those elsewhere have.
        """

    def remove(self, name: str) -> None:
        """End a guest, and remove it with the disks that it was made with; nothing, if it is not there."""

    def start(self, hypervisor: str | None, name: str, *, memory: int, vcpus: int) -> None:
        """Nothing, if it runs."""

    def shut_down(self, name: str, *, timeout_s: float) -> None:
        """Let a guest end, and end it after `timeout_s`; nothing, if it is not there."""

    def reboot(self, name: str) -> None: ...

    def pause(self, name: str) -> None: ...

    def unpause(self, name: str) -> None: ...

    def suspend(self, name: str) -> None:
        """Let a guest end, so that it goes on where it was when it is started."""

    def rescue(self, hypervisor: str | None, name: str, *, memory: int, vcpus: int) -> None:
        """Start a guest with another system than its own, to repair that."""

    def unrescue(self, hypervisor: str | None, name: str, *, memory: int, vcpus: int) -> None:
        """Start a guest with its own system."""

    def rebuild(self, hypervisor: str | None, name: str, *, memory: int, vcpus: int, starts: bool) -> None:
        """Put a new system on the disks of a guest."""

    def keep_contents(self, name: str) -> None:
        """Keep elsewhere what the disks of a guest have."""

    def set_memory(self, name: str, memory: int) -> None: ...

    def accept(self, hypervisor: str | None, name: str, *, memory: int, vcpus: int) -> None:
        """Be ready for a guest that is to come from another host."""

    def send_away(self, name: str, target: str) -> None:
        """Move a guest to `target`, which is ready for it."""

    def finish_arrival(self, name: str, *, has_succeeded: bool) -> None:
        """Not has_succeeded: the guest does not come; what has arrived is not sent back, which is a failure."""

    def finish_departure(self, name: str, *, has_succeeded: bool) -> None: ...

    def grow_disk(self, name: str, index: int, size: int) -> None:
        """size: MiB, as it is to be; nothing, if it is as large."""

    def create_volume(self, volume_group: str, name: str, size: int) -> None: ...

    def remove_volume(self, volume_group: str, name: str) -> None: ...

    def power_cycle(self) -> None:
        """Restart the host: its guests end, and it has another boot id."""


def disk_name(guest: str, index: int) -> str:
    """What the volume of a disk is called."""
    return f"{guest}.disk{index}"


def is_disk_of(guest: str, volume: str) -> bool:
    """Whether a volume is called as one of the disks of a guest."""
    index = volume.removeprefix(f"{guest}.disk")
    return index.isdecimal() and volume == disk_name(guest, int(index))
