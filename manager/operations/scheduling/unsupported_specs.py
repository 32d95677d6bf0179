"""The extra specs of a flavor that no host fulfils.

The table has the specs that any host fulfils, and those that our filters check. No host fulfils another spec of a
namespace that Nova reads, since Nova may choose hosts by it, now or in its next release. Nova ignores names of other
namespaces, and names without one, unless a host has an attribute of that name (`ComputeCapabilitiesFilter`).
"""

import re
from collections.abc import Mapping

_ANYTHING = ".*"
_NOT_TRUE = r"(?!(?i:\s*(1|t|true|on|y|yes)\s*)$).*"  # `strutils.bool_from_string`
# Patterns of harmless values by pattern of the name, with the place where Nova reads them. The first match counts.
_HARMLESS: Mapping[str, str] = {
    # Our filters check them.
    "trait:.*": _ANYTHING,
    "aggregate_instance_extra_specs:.*": _ANYTHING,
    "hw:cpu_policy": "(shared|dedicated)?",
    # The size of the request (`demand_of`), and amounts that Nova does not request (`ResourceRequest.strip_zeros`).
    "resources:(VCPU|MEMORY_MB|DISK_GB)": r"\d{1,9}",
    "resources[^:]*:.*": "0+",
    # The driver applies them on any host (`nova.virt.libvirt.driver`); no scheduler reads them.
    "(quota|hw_rng|hw_video|vmware):.*": _ANYTHING,
    "hw:(boot_menu|hide_hypervisor_id|pmu|vif_multiqueue_enabled|locked_memory|serial_port_count)": _ANYTHING,
    "hw:cpu_(max_)?(sockets|cores|threads)": _ANYTHING,
    "hw:redirected_usb_ports": r"(\d|1[0-5])?",
    "hw:usb_model": "(none|nec-xhci|qemu-xhci)?",
    "hw:viommu_model": "(intel|smmuv3|virtio|auto)?",
    "hw:watchdog_action": "(none|pause|poweroff|reset|disabled)?",
    # `virtio_sound_filter` requires a trait for `virtio`.
    "hw:sound_model": "(sb16|es1370|pcspk|ac97|ich6|ich9|usb)?",
    # Details of features that other specs switch on, which no host fulfils: `hw:tpm_version`, encryption, and `mixed`
    # or realtime processors (`nova.virt.hardware.get_*_constraint`).
    "hw:(tpm_(model|secret_security)|(mem|ephemeral)_encryption_(model|format)|cpu_realtime_mask)": _ANYTHING,
    "hw:(cpu_realtime|ephemeral_encryption|mem_encryption|virtio_packed_ring)": _NOT_TRUE,
    # `ResourceRequest._translate_*` requires traits for other values.
    "hw:cpu_thread_policy": "(prefer)?",
    "hw:emulator_threads_policy": "(share)?",
    "hw:pci_numa_affinity_policy": "(required|preferred|legacy)?",
    "os:secure_boot": "(disabled|optional)?",
    "hw:(numa_nodes|pmem|tpm_version|maxphysaddr_mode)": "",
    # `numa_fit_instance_to_host`: any host has small pages.
    "hw:mem_page_size": "(small|any)?",
    # `nova.scheduler.host_manager.HostState`, and the statistics of `nova.compute.stats`.
    r"__\w+__|_lock\w*|_update\w*": "(?!)",
    "aggregates|allocation_candidates|cell_uuid|consume_from_request|cpu_info|failed_builds|io_workload|stats": "(?!)",
    "(cpu|ram|disk)_allocation_ratio|disk_mb_used|(free|total_usable)_(ram|disk)_(mb|gb)|vcpus_(total|used)": "(?!)",
    "host(_ip)?|hypervisor_(hostname|type|version)|instances|limits|metrics|nodename|service|update|updated": "(?!)",
    "num_(instances|io_ops|(vm|task|os_type|proj)_.*)|numa_topology|pci_stats|supported_instances|uuid": "(?!)",
    # Without a namespace, or with one that Nova does not read.
    "[^:]*": _ANYTHING,
    "(?!(hw|os|accel|capabilities|pci_passthrough|resources[^:]*|trait[^:]*):).*": _ANYTHING,
}
_RULES = tuple((re.compile(name, re.DOTALL), re.compile(value, re.DOTALL)) for name, value in _HARMLESS.items())


def unsupported_specs(specs: Mapping[str, str]) -> tuple[str, ...]:
    """Return the extra specs that no host fulfils, each as `NAME=VALUE`, in order of names."""
    return tuple(f"{name}={value}" for name, value in sorted(specs.items()) if not _is_harmless(name, value))


def _is_harmless(name: str, value: str) -> bool:
    values = next((values for names, values in _RULES if names.fullmatch(name)), None)
    return values is not None and values.fullmatch(value) is not None
