"""Amounts of resources, of nodes and of instances."""

from dataclasses import dataclass

from fleetlight.resources.units import MIB_PER_GIB


@dataclass(frozen=True, slots=True)
class Amount:
    """Virtual processors, memory and disk. A difference may be negative, as on an overcommitted node."""

    vcpus: int = 0
    memory_mib: int = 0
    disk_mib: int = 0

    @classmethod
    def of_gib(cls, vcpus: int, memory_mib: int, disk_gib: int) -> "Amount":
        """An amount from a disk size in GiB, as flavors and native cells have it."""
        return cls(vcpus, memory_mib, disk_gib * MIB_PER_GIB)

    @property
    def disk_gib(self) -> int:
        """Whole GiB of disk."""
        return self.disk_mib // MIB_PER_GIB

    def __add__(self, other: "Amount") -> "Amount":
        return Amount(self.vcpus + other.vcpus, self.memory_mib + other.memory_mib, self.disk_mib + other.disk_mib)

    def __sub__(self, other: "Amount") -> "Amount":
        return Amount(self.vcpus - other.vcpus, self.memory_mib - other.memory_mib, self.disk_mib - other.disk_mib)

    def fits_into(self, free: "Amount") -> bool:
        """Whether `free` has enough of every resource."""
        return self.vcpus <= free.vcpus and self.memory_mib <= free.memory_mib and self.disk_mib <= free.disk_mib

    def times_in(self, free: "Amount") -> int:
        """How many times this amount fits into `free`; 0 for an amount of nothing."""
        pairs = ((self.vcpus, free.vcpus), (self.memory_mib, free.memory_mib), (self.disk_mib, free.disk_mib))
        return max(0, min((has // needs for needs, has in pairs if needs > 0), default=0))
