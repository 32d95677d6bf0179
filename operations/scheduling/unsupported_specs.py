"""Which extra specs of a flavor no host can fulfil.

They are those by which Nova's scheduler chooses hosts, as far as ours does not. What says nothing about a host is not
its matter, nor is a name without a namespace, which may be any text.
"""

import re
from collections.abc import Mapping

_NEVER = r"(?!)"
_NO = "0|f|false|off|n|no"
# By name: the values that any host fulfils, or a filter looks at. The first name that fits counts.
_FULFILLED: Mapping[str, str] = {
    "resources:(VCPU|MEMORY_MB|DISK_GB)": r"\d{1,9}",
    "resources[^:]*:.*": "0+",
    # Of the other groups of a request, which placement would take from one part of a host.
    "trait[^:]+:.*": _NEVER,
    "capabilities:.*": _NEVER,
    "hw:cpu_policy": "shared|dedicated",
    "hw:cpu_thread_policy": "prefer",
    "hw:emulator_threads_policy": "share",
    "hw:mem_page_size": "small|any",
    "hw:usb_model": "none",
    "hw:redirected_usb_ports": "0+",
    "hw:(cpu_realtime|ephemeral_encryption|locked_memory|mem_encryption|virtio_packed_ring)": _NO,
    r"hw:(numa_.*|cpu_dedicated_mask|pmem|tpm_(model|version)|viommu_model|sound_model)": _NEVER,
    "os:secure_boot": "disabled",
    "pci_passthrough:alias": _NEVER,
    "accel:device_profile": _NEVER,
}
_RULES = tuple((re.compile(name), re.compile(value, re.IGNORECASE)) for name, value in _FULFILLED.items())


def unsupported_specs(specs: Mapping[str, str]) -> tuple[str, ...]:
    """Those of a flavor that no host fulfils, each as `NAME=VALUE`, in the order of their names."""
    return tuple(f"{name}={value}" for name, value in sorted(specs.items()) if not _is_fulfilled(name, value))


def _is_fulfilled(name: str, value: str) -> bool:
    values = next((values for names, values in _RULES if names.fullmatch(name)), None)
    return values is None or values.fullmatch(value.strip()) is not None
