"""The fields that a node reports itself, and the keys of its report (contracts/ganeti-node-state-cache, 3)."""

from collections.abc import Mapping

BOOT_ID = "bootid"
OF_HYPERVISOR: Mapping[str, str] = {
    "ctotal": "cpu_total",
    "cnos": "cpu_dom0",
    "cnodes": "cpu_nodes",
    "csockets": "cpu_sockets",
    "mtotal": "memory_total",
    "mnode": "memory_dom0",
    "mfree": "memory_free",
}
OF_STORAGE: Mapping[str, str] = {"dtotal": "vg_size", "dfree": "vg_free"}

LIVE_FIELDS = frozenset({BOOT_ID, *OF_HYPERVISOR, *OF_STORAGE})
