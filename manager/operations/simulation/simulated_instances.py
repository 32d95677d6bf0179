"""The simulator's instances: names, flavors, images, hosts and addresses as a real fleet has them.

Pure: all values come from the given random numbers, so the same seed makes the same fleet.
"""

import hashlib
from collections.abc import Mapping
from random import Random
from typing import Any
from uuid import UUID

from fleetlight.cells.fleet.compute.default_flavors import DEFAULT_FLAVORS
from fleetlight.cells.fleet.compute.default_images import DEFAULT_IMAGES
from fleetlight.manager.operations.hosts.cell_nodes import NewHost
from fleetlight.resources.amount import Amount

HOSTS_PER_CELL = 8
_INSTANCES_PER_HOST = 64
LONGEST_LAUNCH_US = 40_000_000
DEMO_PROJECT = "demo"

_PROJECTS = {DEMO_PROJECT: 60, "analytics": 15, "billing": 12, "research": 8, "platform": 5}
PROJECTS = tuple(_PROJECTS)
_ROLES = ("web", "api", "db", "cache", "queue", "worker", "build", "batch", "proxy", "search")
_STAGES = {"prod": 6, "stage": 2, "dev": 2}
_ZONES_PER_CELL = 2
_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFleetlightSimulatedKeyWithoutAnyUseAtAll0000"


def host_name(cell_name: str, number: int) -> str:
    """Return the name of the compute host `number` (from 0) of a cell."""
    return f"{cell_name}-compute-{number + 1:02d}"


def hosts_for(instance_count: int) -> int:
    """Return how many hosts a cell needs for that many instances, so that none is full."""
    return max(HOSTS_PER_CELL, -(-instance_count // _INSTANCES_PER_HOST))


def new_hosts(cell_name: str, count: int = HOSTS_PER_CELL) -> list[NewHost]:
    """Return the compute hosts of a cell, each with room for about twice as many instances as `hosts_for` assumes."""
    capacity = Amount.of_gib(vcpus=512, memory_mib=1024 * 1024, disk_gib=16_000)
    hosts = [host_name(cell_name, number) for number in range(count)]
    return [NewHost(host, capacity, zone_of(cell_name, host), node_of(host)) for host in hosts]


def new_instance(random: Random, cell_name: str, created_at: int, host_count: int = HOSTS_PER_CELL) -> dict[str, Any]:
    """Return values for the creation of an instance in a cell, without a uuid.

    created_at: microseconds since the epoch, some seconds before its launch. host_count: hosts of the cell.
    """
    stage = _weighted(random, _STAGES)
    role = random.choice(_ROLES)
    name = f"{role}-{stage}-{random.randrange(1, 1000):03d}"
    project = _weighted(random, _PROJECTS)
    host = host_name(cell_name, random.randrange(host_count))
    image = random.choice(DEFAULT_IMAGES)
    boots_from_volume = role in ("db", "queue") and random.random() < 0.5
    flavor_number, flavor = _flavor(random)
    key_name = f"{project}-ops" if random.random() < 0.8 else None
    user = f"{project}-{random.choice(('alice', 'bob', 'carol', 'ci'))}"
    launched_at = created_at + random.randrange(2_000_000, LONGEST_LAUNCH_US)
    return {
        "created_at": created_at,
        "launched_at": launched_at,
        "updated_at": launched_at,
        "project_id": project,
        "user_id": user,
        "display_name": name,
        "display_description": f"{role} of {project}, {stage}" if random.random() < 0.5 else None,
        "hostname": name,
        "host": host,
        "node": node_of(host),
        "launched_on": host,
        "availability_zone": zone_of(cell_name, host),
        "instance_type_id": flavor_number,
        "flavor": flavor,
        "image_ref": "" if boots_from_volume else image.id,
        "image_properties": image.properties,
        "os_type": "linux",
        "architecture": "x86_64",
        "root_device_name": "/dev/vda",
        "config_drive": "True" if random.random() < 0.1 else "",
        "auto_disk_config": random.random() < 0.7,
        "key_name": key_name,
        "keypairs": [] if key_name is None else [_keypair(key_name, user)],
        "metadata": new_metadata(random) | {"role": role},
        "tags": sorted({stage, *random.sample(("managed", "nightly-backup", "pci-dss", "spot"), random.randrange(3))}),
        "security_groups": sorted({"default", role} if random.random() < 0.6 else {"default"}),
        "ip_addresses": [_address(random, cell_name, project)],
        "block_devices": [_volume(random)] if boots_from_volume else [],
    }


def node_of(host: str) -> str:
    """Return the hypervisor name of a compute host."""
    return f"{host}.example.org"


def zone_of(cell_name: str, host: str) -> str:
    """Return the availability zone of a compute host of the cell."""
    return f"{cell_name}-{'ab'[int(host.rsplit('-', 1)[1]) % _ZONES_PER_CELL]}"


def new_name(random: Random, name: str | None) -> str:
    """Return another name for the instance now called `name`."""
    stem = (name or "server").rpartition("-")[0] or "server"
    return f"{stem}-{random.randrange(1, 1000):03d}"


def new_metadata(random: Random) -> dict[str, str]:
    """Return metadata as a deployment tool writes them."""
    return {
        "release": f"{random.randrange(1, 9)}.{random.randrange(20)}.{random.randrange(10)}",
        "cost-center": str(1000 + random.randrange(40)),
    }


def new_tags(random: Random, tags: list[str]) -> list[str]:
    """Return `tags` with one more or one less."""
    return sorted(set(tags) ^ {random.choice(("canary", "managed", "nightly-backup", "pci-dss", "spot"))})


def _weighted(random: Random, weights: Mapping[str, int]) -> str:
    return random.choices(tuple(weights), tuple(weights.values()))[0]


def _flavor(random: Random) -> tuple[int, dict[str, Any]]:
    number = random.randrange(len(DEFAULT_FLAVORS)) + 1
    flavor = DEFAULT_FLAVORS[number - 1]
    return number, {
        "flavorid": str(number),
        "name": flavor.name,
        "memory_mb": flavor.memory_mb,
        "vcpus": flavor.vcpus,
        "root_gb": flavor.root_gb,
        "ephemeral_gb": flavor.ephemeral_gb,
        "swap": flavor.swap,
        "rxtx_factor": 1.0,
        "vcpu_weight": 0,
        "disabled": False,
        "is_public": True,
        "extra_specs": flavor.extra_specs,
        "projects": None,
        "description": None,
    }


def _keypair(name: str, user: str) -> dict[str, Any]:
    digest = hashlib.sha256(name.encode()).hexdigest()[:32]
    fingerprint = ":".join(digest[position : position + 2] for position in range(0, 32, 2))
    return {"name": name, "user_id": user, "type": "ssh", "fingerprint": fingerprint, "public_key": _KEY}


def _address(random: Random, cell_name: str, project: str) -> dict[str, Any]:
    octets = [random.randrange(256) for _ in range(3)]
    network = 10 + tuple(_PROJECTS).index(project)
    cell_octet = hashlib.sha256(cell_name.encode()).digest()[0]
    return {
        "label": f"{project}-net",
        "address": f"10.{network}.{cell_octet}.{random.randrange(2, 255)}",
        "version": 4,
        "mac": "fa:16:3e:" + ":".join(f"{octet:02x}" for octet in octets),
        "meta": {},
        "port_uuid": str(UUID(int=random.getrandbits(128), version=4)),
        "device_name": f"tap{random.getrandbits(32):08x}",
    }


def _volume(random: Random) -> dict[str, Any]:
    return {
        "volume_id": str(UUID(int=random.getrandbits(128), version=4)),
        "delete_on_termination": True,
        "device_name": "/dev/vda",
        "boot_index": 0,
        "tag": None,
    }
