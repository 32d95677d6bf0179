"""The rules of `block_device_mapping_v2` (contracts/nova-rest, 1.3); native cells support only local disks."""

from collections.abc import Sequence

from fleetlight.api.http.errors import BadRequestError, NotSupportedError
from fleetlight.cells.fleet.compute.flavors import Flavor
from fleetlight.manager.faces.servers.create_body import BlockDevice

_MAX_LOCAL = 3
_NEW_DISK = ("blank", "local")
_SWAP = "swap"
_TYPES = ("cdrom", "disk", "floppy", "fs", "lun")
_BUSES = ("fdc", "ide", "sata", "scsi", "usb", "virtio", "xen", "lxc", "uml")


def check_block_devices(devices: Sequence[BlockDevice], image_ref: str, flavor: Flavor) -> None:
    """Raise BadRequestError for contradictory devices, and NotSupportedError for volumes, which no native cell has."""
    if any(device.virtual_name for device in devices):
        raise _invalid("virtual_name belongs to the old form of block device mappings")
    kept = [device for device in devices if not device.no_device]
    if not kept:
        return
    order = sorted(device.boot_index for device in kept if device.boot_index is not None and device.boot_index >= 0)
    if not order or order != list(range(len(order))):
        raise BadRequestError("Block Device Mapping is Invalid: Boot sequence for the instance is not valid.")
    for device in kept:
        _check(device, image_ref)
    _check_sizes([device for device in kept if (device.source_type, device.destination_type) == _NEW_DISK], flavor)
    if sum(device.destination_type == "local" for device in kept) > _MAX_LOCAL:
        raise BadRequestError("Block Device Mapping is Invalid: You specified more local devices than the limit allows")
    if any("volume" in {device.source_type, device.destination_type} for device in kept):
        raise NotSupportedError("This fleet has no volumes: native cells have local disks only.")


def _check(device: BlockDevice, image_ref: str) -> None:
    source, destination = device.source_type, device.destination_type
    if source is None:
        raise _invalid("a device needs a source_type")
    if source == "blank" and device.uuid:
        raise _invalid("blank devices have no uuid")
    if source != "blank" and not device.uuid:
        raise _invalid("a device that is not blank needs the uuid of its source")
    if source == "image" and destination == "local" and not (image_ref and device.boot_index == 0):
        raise _invalid("an image can be put on a local disk only as the root disk, with imageRef")
    if device.volume_type and (destination == "local" or source == "volume"):
        raise _invalid("this device cannot have a volume_type")
    if source in {"blank", "image"} and destination == "volume" and not device.volume_size:
        raise _invalid("a new volume needs a volume_size")
    if device.device_type is not None and device.device_type not in _TYPES:
        raise _invalid(f"the device type {device.device_type} is not one of {', '.join(_TYPES)}")
    if device.disk_bus and device.disk_bus not in _BUSES:
        raise _invalid(f"the disk bus {device.disk_bus} is not one of {', '.join(_BUSES)}")


def _check_sizes(disks: Sequence[BlockDevice], flavor: Flavor) -> None:
    """Raise BadRequestError for new disks that exceed the flavor's; a disk without a size has the flavor's."""
    swaps = [disk for disk in disks if disk.guest_format == _SWAP]
    if sum(disk.volume_size or flavor.ephemeral_gb for disk in disks if disk not in swaps) > flavor.ephemeral_gb:
        raise _invalid("the ephemeral disks are larger than the flavor allows")
    if len(swaps) > 1:
        raise _invalid("more than one swap disk")
    if any(disk.volume_size > flavor.swap for disk in swaps):
        raise _invalid("the swap disk is larger than the flavor allows")


def _invalid(reason: str) -> BadRequestError:
    return BadRequestError(f"Block Device Mapping is Invalid: {reason}.")
