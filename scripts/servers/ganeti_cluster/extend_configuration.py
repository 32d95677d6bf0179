"""Add to the configuration of a cluster of one node what it would take ssh, DRBD or an accident to make.

extend_configuration.py NET     on the master, with all daemons stopped; NET: the first three numbers of its network
"""

import json
import sys
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

_PATH = Path("/var/lib/ganeti/config.data")
_MIRROR_PORT = 11_000
_META_MIB = 128

Item = dict[str, Any]


class Extension:
    """Additions to one configuration; each has `now` as its times."""

    def __init__(self, configuration: Item) -> None:
        self._configuration = configuration
        self._now = time.time()
        [(master_uuid, self._master)] = configuration["nodes"].items()
        [self._group] = configuration["nodegroups"].values()
        self._nodes: dict[str, str] = {"node1": master_uuid}
        for kind in ("disks", "instances"):
            configuration.setdefault(kind, {})

    def add_group(self, name: str, policy: str) -> str:
        group = self._made(self._group, name=name, alloc_policy=policy)
        self._configuration["nodegroups"][group["uuid"]] = group
        return str(group["uuid"])

    def add_node(self, name: str, address: str, **changed: Any) -> None:
        named = {"name": f"{name}.gnt.example", "primary_ip": address, "secondary_ip": address}
        node = self._made(self._master, **named, **changed)
        self._configuration["nodes"][node["uuid"]] = node
        self._nodes[name] = node["uuid"]

    def trust_as_master(self, name: str) -> None:
        """A candidate speaks with the certificate of the master, which is copied there."""
        certificates = self._configuration["cluster"]["candidate_certs"]
        certificates[self._nodes[name]] = certificates[self._nodes["node1"]]

    def add_instance(self, name: str, node: str, *disks: str, **changed: Any) -> None:
        blank = {
            "os": "noop+default",
            "hypervisor": "fake",
            "hvparams": {},
            "beparams": {},
            "osparams": {},
            "osparams_private": {},
            "admin_state": "down",
            "admin_state_source": "admin",
            "disks_active": False,
            "nics": [],
            "tags": [],
            "serial_no": 1,
        }
        placed = {"name": f"{name}.gnt.example", "primary_node": self._nodes[node], "disks": list(disks)}
        instance = self._made(blank, **placed, **changed)
        self._configuration["instances"][instance["uuid"]] = instance

    def add_mirrored_disk(self, primary: str, secondary: str, size: int, minor: int) -> str:
        """Its uuid; size: MiB."""
        nodes = [self._nodes[primary], self._nodes[secondary]]
        common = {"nodes": nodes, "params": {}, "serial_no": 1}
        children = [
            self._made(common, dev_type="plain", size=of_child, logical_id=["xenvg", f"{uuid4()}.disk0_{suffix}"])
            for suffix, of_child in (("data", size), ("meta", _META_MIB))
        ]
        disk = self._made(
            common,
            dev_type="drbd",
            size=size,
            mode="rw",
            iv_name="disk/0",
            logical_id=[*nodes, _MIRROR_PORT + minor, minor, minor, uuid4().hex],
            children=children,
        )
        self._configuration["disks"][disk["uuid"]] = disk
        return str(disk["uuid"])

    def _made(self, like: Item, **changed: Any) -> Item:
        return {**like, "uuid": str(uuid4()), "ctime": self._now, "mtime": self._now, **changed}


def main(net: str) -> None:
    configuration: Item = json.loads(_PATH.read_text())
    extension = Extension(configuration)
    second = extension.add_group("second", "last_resort")
    extension.add_node("node2", f"{net}.3")
    extension.add_node("node3", f"{net}.4", offline=True, master_candidate=False, group=second)
    extension.add_node("node4", f"{net}.5", drained=True, master_candidate=False, master_capable=False, group=second)
    extension.trust_as_master("node2")

    nic = {"mac": "aa:00:00:77:00:01", "nicparams": {}, "uuid": str(uuid4())}
    first = extension.add_mirrored_disk("node2", "node1", 2048, 0)
    memory = {"maxmem": 512, "minmem": 256}
    extension.add_instance("mirror1", "node2", first, beparams=memory, nics=[nic], tags=["role:db"])
    extension.add_instance("mirror2", "node1", extension.add_mirrored_disk("node1", "node3", 1024, 1))
    for prefix, node in (("offline", "node3"), ("unreach", "node4")):
        extension.add_instance(f"{prefix}-up", node, admin_state="up")
        extension.add_instance(f"{prefix}-down", node)
    extension.add_instance("crashed", "node2", admin_state="up")
    extension.add_instance("userdown", "node2", admin_state_source="user")

    configuration["cluster"]["highest_used_port"] = _MIRROR_PORT + 10
    configuration["serial_no"] = configuration.get("serial_no", 1) + 1
    _PATH.write_text(json.dumps(configuration))


if __name__ == "__main__":
    main(sys.argv[1])
