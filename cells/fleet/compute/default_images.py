"""The images of the simulator's instances, and for new instances.

They are names and sizes, since no simulated cell has disks to which they could be copied.
"""

from dataclasses import dataclass
from uuid import UUID


@dataclass(frozen=True, slots=True)
class DefaultImage:
    """An image. os_distro: its name in libosinfo. size: bytes of the file. min_disk_gb, min_ram_mb: for flavors."""

    id: str
    name: str
    os_distro: str
    size: int
    min_disk_gb: int = 0
    min_ram_mb: int = 0

    @property
    def properties(self) -> dict[str, str]:
        """The properties of the image that an instance keeps."""
        return {"os_distro": self.os_distro, "hw_disk_bus": "virtio", "hw_machine_type": "q35"}


DEFAULT_IMAGES = (
    # The image in the examples of Nova's documentation.
    DefaultImage("70a599e0-31e7-49b7-b260-868f441e862b", "cirros-0.6.3", "cirros", 21_692_416),
    DefaultImage("3a8bc58e-4d60-546d-aa62-66b5b8bf0435", "debian-12", "debian", 346_030_080),
    DefaultImage("21eb97bb-faf1-58a0-a8b8-3119f3d1b613", "rocky-9", "rocky", 609_484_800),
    DefaultImage("2b4163e9-5d90-500c-95e3-bd5d29f078a7", "ubuntu-24.04", "ubuntu", 618_659_840),
)


def is_default_image(image_id: str) -> bool:
    """Whether an image has this id, in any spelling of a uuid. Raises ValueError if it is not a uuid."""
    return str(UUID(image_id)) in {image.id for image in DEFAULT_IMAGES}
