"""Which extra specs there are in the namespaces that Nova knows, and what each may say (2.86).

Simulated hosts read none of them; a flavor shall be refused here for what Nova would refuse it for. Namespaces of
which anything is taken (`capabilities`, `aggregate_instance_extra_specs`, those of vendors) are left out.
"""

import re
from collections.abc import Callable

from api.compute.protocol.parameters import FALSE_WORDS, TRUE_WORDS
from api.errors import BadRequestError

_Check = Callable[[str], bool]
_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_NAMESPACE = re.compile(
    r"(hw|hw_rng|hw_video|quota|os|resources[A-Za-z0-9_-]{0,64}|trait[A-Za-z0-9_-]{0,64}):.*", re.DOTALL
)


def _integer(least: int | None = None) -> _Check:
    return lambda text: _INTEGER.fullmatch(text) is not None and (least is None or int(text[:20]) >= least)


def _like(pattern: str) -> _Check:
    compiled = re.compile(pattern, re.ASCII)
    return lambda text: compiled.fullmatch(text) is not None


def _anything(_text: str) -> bool:
    return True


def _boolean(text: str) -> bool:
    return text.strip().lower() in TRUE_WORDS | FALSE_WORDS


_CPUS = _like(r"\^?\d+((-\d+)?(,\^?\d+(-\d+)?)?)*")
_HW: dict[str, _Check] = {
    **dict.fromkeys(
        (
            "boot_menu",
            "cpu_realtime",
            "ephemeral_encryption",
            "hide_hypervisor_id",
            "locked_memory",
            "mem_encryption",
            "pmu",
            "vif_multiqueue_enabled",
            "virtio_packed_ring",
        ),
        _boolean,
    ),
    **dict.fromkeys(("cpu_sockets", "cpu_cores", "cpu_threads", "numa_nodes", r"numa_mem\.\d+"), _integer(1)),
    **dict.fromkeys(("max_cpu_sockets", "max_cpu_cores", "max_cpu_threads"), _integer(1)),
    **dict.fromkeys(("cpu_realtime_mask", "cpu_dedicated_mask", r"numa_cpus\.\d+"), _CPUS),
    "cpu_policy": _like("dedicated|shared|mixed"),
    "cpu_thread_policy": _like("prefer|isolate|require"),
    "emulator_threads_policy": _like("isolate|share"),
    "ephemeral_encryption_format": _like("luks"),
    "maxphysaddr_bits": _integer(0),
    "maxphysaddr_mode": _like("emulate|passthrough"),
    "mem_encryption_model": _like("amd-sev|amd-sev-es"),
    "mem_page_size": _like(r"large|small|any|\d+([kKMGT]i?)?(b|bit|B)?"),
    "pci_numa_affinity_policy": _like("required|preferred|legacy|socket"),
    "pmem": _like("([a-zA-Z0-9_]+,?)+"),
    "serial_port_count": _integer(0),
    "tpm_model": _like("tpm-tis|tpm-crb"),
    "tpm_version": _like(r"1\.2|2\.0"),
    "viommu_model": _like("intel|smmuv3|virtio|auto"),
    "watchdog_action": _like("none|pause|poweroff|reset|disabled"),
    # Of these Nova got to know one after the other; what they may say is up to the driver.
    r"(firmware|input|sound|tpm_secret|usb|redirected_usb|video|virtio)_[a-z_]+": _anything,
}
_QUOTA: dict[str, _Check] = {
    "(cpu|memory|disk_io|vif)_(limit|reservation|shares_share)": _integer(),
    "(cpu|memory|disk_io|vif)_shares_level": _anything,
    "cpu_(shares|period|quota)": _integer(0),
    "disk_(read|write|total)_(bytes|iops)_sec(_max(_length)?)?": _integer(0),
    "vif_(inbound|outbound)_(average|peak|burst)": _integer(0),
}
_RESOURCE_CLASSES = "|".join(
    (
        "VCPU|PCPU|MEMORY_MB|DISK_GB|PCI_DEVICE|SRIOV_NET_VF|IPV4_ADDRESS|VGPU|VGPU_DISPLAY_HEAD|PGPU|FPGA",
        "NUMA_SOCKET|NUMA_CORE|NUMA_THREAD|NUMA_MEMORY_MB|MEM_ENCRYPTION_CONTEXT",
        "NET_BW_(EGR|IGR)_KILOBIT_PER_SEC|NET_PACKET_RATE_((EGR|IGR)_)?KILOPACKET_PER_SEC",
        "CUSTOM_[A-Z0-9_]+",
    )
)
_SPECS: tuple[tuple[re.Pattern[str], _Check], ...] = tuple(
    (re.compile(name, re.ASCII), check)
    for name, check in {
        **{f"hw:{name}": check for name, check in _HW.items()},
        **{f"quota:{name}": check for name, check in _QUOTA.items()},
        "hw_rng:allowed": _boolean,
        "hw_rng:(rate_bytes|rate_period)": _integer(0),
        "hw_video:ram_max_mb": _integer(0),
        "os:secure_boot": _like("disabled|required"),
        "hide_hypervisor_id": _boolean,
        "group_policy": _like("isolate|none"),
        f"resources[a-zA-Z0-9_-]{{0,64}}:({_RESOURCE_CLASSES})": _integer(),
        "trait[a-zA-Z0-9_-]{0,64}:[A-Z][A-Z0-9_]*": _like("required|forbidden"),
    }.items()
)


def check_extra_spec(name: str, value: str) -> None:
    """Raises BadRequestError for a name that is none in its namespace, and for a value that the name cannot have."""
    for pattern, accepts in _SPECS:
        if pattern.fullmatch(name):
            if not accepts(value):
                raise BadRequestError(f"Validation failed; extra spec '{name}' cannot have the value '{value}'.")
            return
    if _NAMESPACE.fullmatch(name):
        raise BadRequestError(f"Validation failed; extra spec '{name}' does not appear to be a valid extra spec.")
