"""The extra specs of the namespaces that Nova knows, and their permitted values (2.86).

They are those of Nova with microversion 2.104 (a test compares them), so that the API refuses exactly the flavors that
Nova refuses. Specs that no host can fulfil are refused by the scheduler
(fleetlight.manager.operations.scheduling.unsupported_specs).
"""

import re
from collections.abc import Callable, Mapping

from fleetlight.api.compute.protocol.parameters import FALSE_WORDS, TRUE_WORDS
from fleetlight.api.http.errors import BadRequestError

_Check = Callable[[str], bool]
_GROUP = "[a-zA-Z0-9_-]{0,64}"


def _integer(least: int | None = None, most: int | None = None) -> _Check:
    def accepts(text: str) -> bool:
        try:
            number = int(text)
        except ValueError:
            return False
        return (least is None or least <= number) and (most is None or number <= most)

    return accepts


def _like(pattern: str) -> _Check:
    compiled = re.compile(pattern)
    return lambda text: compiled.fullmatch(text) is not None


def _one_of(words: str) -> _Check:
    known = frozenset(words.split())
    return lambda text: text in known


def _anything(_text: str) -> bool:
    return True


def _boolean(text: str) -> bool:
    return text.strip().lower() in TRUE_WORDS | FALSE_WORDS


def _all(names: str, check: _Check) -> dict[str, _Check]:
    return dict.fromkeys(names.split(), check)


_CPUS = _like(r"\^?\d+((-\d+)?(,\^?\d+(-\d+)?)?)*")
_HW = {
    **_all("boot_menu cpu_realtime ephemeral_encryption hide_hypervisor_id locked_memory mem_encryption", _boolean),
    **_all("pmu vif_multiqueue_enabled virtio_packed_ring", _boolean),
    **_all("cpu_sockets cpu_cores cpu_threads cpu_max_sockets cpu_max_cores cpu_max_threads", _integer(1)),
    **_all(r"numa_nodes numa_mem.\d+", _integer(1)),
    **_all(r"cpu_realtime_mask cpu_dedicated_mask numa_cpus.\d+", _CPUS),
    "cpu_policy": _one_of("dedicated shared mixed"),
    "cpu_thread_policy": _one_of("prefer isolate require"),
    "emulator_threads_policy": _one_of("isolate share"),
    "ephemeral_encryption_format": _one_of("plain luks luksv2"),
    "mem_encryption_model": _one_of("amd-sev amd-sev-es amd-sev-snp intel-tdx"),
    "mem_page_size": _like(r"large|small|any|\d+([kKMGT]i?)?(b|bit|B)?"),
    "pci_numa_affinity_policy": _one_of("required preferred legacy socket"),
    # A list of names, in a pattern without costly backtracking.
    "pmem": _like("[a-zA-Z0-9_]+(,[a-zA-Z0-9_]+)*,?"),
    "redirected_usb_ports": _integer(0, 15),
    "serial_port_count": _integer(0),
    "sound_model": _one_of("sb16 es1370 pcspk ac97 ich6 ich9 usb virtio"),
    "tpm_model": _one_of("tpm-tis tpm-crb"),
    "tpm_secret_security": _one_of("user host deployment"),
    "tpm_version": _one_of("1.2 2.0"),
    "usb_model": _one_of("none nec-xhci qemu-xhci"),
    "viommu_model": _one_of("intel smmuv3 virtio auto"),
    "watchdog_action": _one_of("none pause poweroff reset disabled"),
}
_QUOTA = {
    "(cpu|memory|disk_io|vif)_(limit|shares_share)": _integer(0),
    "(cpu|memory|disk_io|vif)_reservation": _integer(),
    "(cpu|memory|disk_io|vif)_shares_level": _one_of("custom high normal low"),
    "cpu_(shares|period)": _integer(0),
    "cpu_quota": _integer(),
    "disk_(read|write|total)_(bytes|iops)_sec": _integer(0),
    "vif_(inbound|outbound)_(average|peak|burst)": _integer(0),
}
_CAPABILITIES = _all(
    """
    aggregates cell_uuid cpu_allocation_ratio current_workload disk_allocation_ratio disk_available_least disk_mb_used
    failed_builds free_disk_gb free_disk_mb free_ram_mb host host_ip hypervisor_hostname hypervisor_type
    hypervisor_version id local_gb local_gb_used mapped memory_mb memory_mb_used num_instances num_io_ops
    ram_allocation_ratio running_vms service_id total_usable_disk_gb total_usable_ram_mb updated uuid vcpus vcpus_total
    vcpus_used
    """,
    _anything,
) | {
    # Their values have parts.
    rf"({name})(:\w+)*": _anything
    for name in (
        "cpu_info|instances|limits|metrics|nodename|numa_topology|pci_device_pools|pci_stats|stats",
        "supported_hv_specs|supported_instances",
    )
}
_RESOURCE_CLASSES = "|".join(
    (
        "VCPU|PCPU|MEMORY_MB|DISK_GB|PCI_DEVICE|SRIOV_NET_VF|IPV4_ADDRESS|VGPU|VGPU_DISPLAY_HEAD|PGPU|FPGA",
        "NUMA_SOCKET|NUMA_CORE|NUMA_THREAD|NUMA_MEMORY_MB|MEM_ENCRYPTION_CONTEXT",
        "NET_BW_(EGR|IGR)_KILOBIT_PER_SEC|NET_PACKET_RATE_((EGR|IGR)_)?KILOPACKET_PER_SEC",
        "CUSTOM_[A-Z0-9_]+",
    )
)
# By namespace. A name without a namespace may have any value, but for two names.
_KNOWN: Mapping[str, Mapping[str, _Check]] = {
    "hw": _HW,
    "quota": _QUOTA,
    "capabilities": _CAPABILITIES,
    "hw_rng": {"allowed": _boolean, "rate_bytes|rate_period": _integer(0)},
    "hw_video": {"ram_max_mb": _integer(0)},
    "os": {"secure_boot": _one_of("disabled required")},
    "accel": {"device_profile": _anything},
    "vmware": {"hw_version|storage_policy": _anything},
    "pci_passthrough": {"alias": _like(r"[^:]+:\d+(\s*,\s*[^:]+:\d+)*")},
    "aggregate_instance_extra_specs": {".+": _anything},
    f"resources{_GROUP}": {_RESOURCE_CLASSES: _integer()},
    # Nova knows the traits of its os-traits library; each version of that adds some.
    f"trait{_GROUP}": {"[A-Z][A-Z0-9_]*": _one_of("required forbidden")},
}
_NAMESPACES = tuple(
    (re.compile(namespace), tuple((re.compile(name), check) for name, check in known.items()))
    for namespace, known in _KNOWN.items()
)
_WITHOUT_NAMESPACE = {"hide_hypervisor_id": _boolean, "group_policy": _one_of("isolate none")}


def check_extra_spec(name: str, value: str) -> None:
    """Raise BadRequestError for a name that its namespace does not have, and for a value that the name cannot have."""
    namespace, colon, rest = name.partition(":")
    check = _check_in(namespace, rest) if colon else _WITHOUT_NAMESPACE.get(name, _anything)
    if check is None:
        raise BadRequestError(f"Validation failed; extra spec '{name}' does not appear to be a valid extra spec.")
    if not check(value):
        raise BadRequestError(f"Validation failed; extra spec '{name}' cannot have the value '{value}'.")


def _check_in(namespace: str, name: str) -> _Check | None:
    """Return the check of a name's values; None for an unknown name in a known namespace."""
    for pattern, names in _NAMESPACES:
        if pattern.fullmatch(namespace):
            return next((check for known, check in names if known.fullmatch(name)), None)
    return _anything
