"""The images that the simulator's instances were made from, and that new instances can be made from.

They are names and sizes: no cell of this kind has a disk that anything would be copied to.
"""

from dataclasses import dataclass
from uuid import NAMESPACE_URL, uuid5


@dataclass(frozen=True, slots=True)
class Image:
    """os_distro: as libosinfo calls it. size: bytes of the file. min_disk_gb, min_ram_mb: what a flavor has to have."""

    name: str
    os_distro: str
    size: int
    min_disk_gb: int = 0
    min_ram_mb: int = 0

    @property
    def id(self) -> str:
        return str(uuid5(NAMESPACE_URL, f"https://fleetlight.invalid/image/{self.name}"))

    @property
    def properties(self) -> dict[str, str]:
        """What an instance keeps of its image."""
        return {"os_distro": self.os_distro, "hw_disk_bus": "virtio", "hw_machine_type": "q35"}


DEFAULT_IMAGES = (
    Image("cirros-0.6.3", "cirros", 21_692_416),
    Image("debian-12", "debian", 346_030_080),
    Image("rocky-9", "rocky", 609_484_800),
    Image("ubuntu-24.04", "ubuntu", 618_659_840),
)
