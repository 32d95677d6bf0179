"""The flavors of a new fleet, and of the simulator's instances."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class FlavorSizes:
    """memory_mb and swap in MiB, disks in GiB."""

    name: str
    memory_mb: int
    vcpus: int
    root_gb: int
    ephemeral_gb: int = 0
    swap: int = 0
    extra_specs: dict[str, str] = field(default_factory=dict)


# The position in this list, from 1, is the flavor's id, and its number in the database.
DEFAULT_FLAVORS = (
    FlavorSizes("m1.tiny", 512, 1, 1),
    FlavorSizes("m1.small", 2048, 1, 20),
    FlavorSizes("m1.medium", 4096, 2, 40),
    FlavorSizes("m1.large", 8192, 4, 80),
    FlavorSizes("c1.large", 4096, 8, 40, ephemeral_gb=20, extra_specs={"hw:cpu_policy": "dedicated"}),
    FlavorSizes("r1.large", 32768, 4, 80, swap=1024),
)
