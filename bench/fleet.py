"""A made-up fleet for benchmarks: the same records for the same seed, about as large as real ones."""

import random
import uuid
from collections.abc import Iterator
from typing import Any

from fleetlight.resources.derived_fields import derived_values

_FLAVOR = {
    "flavorid": "m1.medium",
    "name": "m1.medium",
    "memory_mb": 4096,
    "vcpus": 2,
    "root_gb": 40,
    "ephemeral_gb": 0,
    "swap": 0,
    "rxtx_factor": 1.0,
    "vcpu_weight": 0,
    "disabled": False,
    "is_public": True,
    "extra_specs": {"hw:cpu_policy": "shared", "hw:numa_nodes": "1"},
    "projects": None,
    "description": None,
}
_BEGIN = 1_700_000_000_000_000  # microseconds since the epoch
_YEAR = 365 * 86_400_000_000


def cell_uuids(count: int, seed: int = 1) -> list[str]:
    """The uuids of `count` cells."""
    generator = random.Random(seed)
    return [str(uuid.UUID(int=generator.getrandbits(128), version=4)) for _ in range(count)]


def records(count: int, seed: int = 2) -> Iterator[dict[str, Any]]:
    """`count` instances, live, in random order of creation; every field of INSTANCE_FIELDS is present."""
    generator = random.Random(seed)
    for number in range(count):
        created_at = _BEGIN + generator.randrange(_YEAR)
        host = f"compute{generator.randrange(500):03d}"
        record = {
            "uuid": str(uuid.UUID(int=generator.getrandbits(128), version=4)),
            "project_id": f"{generator.randrange(100):032x}",
            "user_id": f"{generator.randrange(300):032x}",
            "display_name": f"web-{generator.randrange(count)}.shop.example.org",
            "display_description": "front end of the shop",
            "hostname": f"web-{number}",
            "host": host,
            "node": f"{host}.example.org",
            "launched_on": host,
            "availability_zone": f"az{generator.randrange(3)}",
            "vm_state": generator.choice(("active", "active", "active", "stopped", "error")),
            "task_state": None,
            "power_state": 1,
            "progress": 0,
            "created_at": created_at,
            "updated_at": created_at + generator.randrange(_YEAR),
            "launched_at": created_at + 9_000_000,
            "terminated_at": None,
            "deleted_at": None,
            "deleted": False,
            "hidden": False,
            "locked": False,
            "locked_by": None,
            "locked_reason": None,
            "reservation_id": f"r-{generator.getrandbits(32):08x}",
            "launch_index": 0,
            "instance_type_id": 3,
            "image_ref": str(uuid.UUID(int=generator.getrandbits(128), version=4)),
            "kernel_id": "",
            "ramdisk_id": "",
            "key_name": "deploy",
            "os_type": "linux",
            "architecture": "x86_64",
            "root_device_name": "/dev/vda",
            "config_drive": "",
            "auto_disk_config": False,
            "access_ip_v4": None,
            "access_ip_v6": None,
            "instance_name": f"instance-{number:08x}",
            "pinned_availability_zone": None,
            "tags": ["shop", "production"],
            "user_data": None,
            "metadata": {"role": "web", "owner": "shop-team", "cost-centre": str(generator.randrange(1000))},
            "flavor": _FLAVOR,
            "image_properties": {"architecture": "x86_64", "hw_disk_bus": "virtio"},
            "ip_addresses": [_address(generator, network) for network in ("private", "storage")],
            "block_devices": [
                {
                    "device_name": "/dev/vdb",
                    "boot_index": None,
                    "delete_on_termination": True,
                    "volume_id": str(uuid.UUID(int=generator.getrandbits(128), version=4)),
                    "tag": None,
                }
            ],
            "security_groups": ["default", "web"],
            "server_groups": [],
            "scheduler_hints": {},
            "trusted_image_certificates": None,
            "keypairs": [],
            "shares": [],
            "fault": None,
            "forthcoming": False,
            "ganeti": None,
        }
        yield record | derived_values(record)


def _address(generator: random.Random, network: str) -> dict[str, Any]:
    return {
        "label": network,
        "address": f"10.{generator.randrange(256)}.{generator.randrange(256)}.{generator.randrange(256)}",
        "version": 4,
        "mac": "fa:16:3e:4c:2c:30",
        "meta": {},
        "port_uuid": str(uuid.UUID(int=generator.getrandbits(128), version=4)),
        "device_name": "tapce531f90-19",
        "type": "fixed",
    }
