"""Checks of the values of hypervisor parameters, alone and together (contracts/ganeti-rapi, 9).

Only nodes can check whether a file exists, and which machine types their KVM has.
"""

import posixpath
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any

from fleetlight.manager.operations.opcodes.parameter_values import invalid, shown, wrong
from fleetlight.resources.query_fields.cluster_parameters import Parameters

_SERIAL_SPEEDS = """
    75 110 300 600 1200 1800 2400 4800 9600 14400 19200 28800 38400 57600 115200 230400 345600 460800
"""
_NEED_SPICE = """
    spice_ip_version spice_password_file spice_image_compression spice_jpeg_wan_compression
    spice_zlib_glz_wan_compression spice_streaming_video spice_use_tls
"""
_URL = re.compile(r"(https?|ftps?)://")


@dataclass(frozen=True, slots=True)
class Check:
    """A check of a parameter. right: describes valid values. may_be: whether a value of the parameter's type is valid.

    is_needed: whether the value must not be empty.
    """

    right: str
    may_be: Callable[[Any], bool]
    is_needed: bool = False


def _one_of(names: str, *, is_needed: bool = False) -> Check:
    known = names.split()
    return Check(f"one of {', '.join(known)}", known.__contains__, is_needed)


def _between(least: int, most: int) -> Check:
    return Check(f"a number from {least} to {most}", lambda number: least <= number <= most)


def _is_path(text: str) -> bool:
    return posixpath.isabs(text) and posixpath.normpath(text) == text


def _ip_version(text: str) -> int | None:
    try:
        return ip_address(text).version
    except ValueError:
        return None


def _is_mask(text: str) -> bool:
    """Whether a text has the form of processor numbers and ranges, separated by commas."""
    try:
        bounds = [[int(bound) for bound in each.split("-")] for each in text.split(",")]
    except ValueError:
        return False
    return all(len(each) <= 2 and each[0] <= each[-1] for each in bounds)


def _are_masks(text: str) -> bool:
    return all(each in {"", "all"} or _is_mask(each) for each in text.split(":"))


_PATH = Check("an absolute path without '..' and the like", _is_path)
_NEEDED_PATH = Check(_PATH.right, _is_path, is_needed=True)
_PATH_OR_URL = Check(
    f"{_PATH.right}, or a URL of http, https, ftp or ftps", lambda text: _is_path(text) or bool(_URL.match(text))
)
_NOT_NEGATIVE = Check("a number that is not negative", lambda number: number >= 0)
_MASKS = Check("for each processor a mask as 0-2,5 or the word all, with colons between", _are_masks)
_DISKS = "ide mtd paravirtual pflash scsi scsi-block scsi-cd scsi-generic scsi-hd sd"
_NICS_OF_HVM = "e1000 ne2k_isa ne2k_pci paravirtual rtl8139"
_PATHS_OF_KVM = """
    floppy_image_path initrd_path kernel_path mem_path spice_password_file vnc_password_file vnc_x509_path
"""

_OF_MIGRATION: Mapping[str, Check] = {
    "migration_mode": _one_of("live non-live", is_needed=True),
    "migration_port": _between(1, 65534),
}
_OF_XEN: Mapping[str, Check] = {
    **_OF_MIGRATION,
    "cpu_mask": _MASKS,
    "kernel_path": _NEEDED_PATH,
    "reboot_behavior": _one_of("reboot exit", is_needed=True),
    "vif_script": _PATH,
    "xen_cmd": _one_of("xl xm", is_needed=True),
}
CHECKS: Mapping[str, Mapping[str, Check]] = {
    "kvm": {
        **_OF_MIGRATION,
        **dict.fromkeys(_PATHS_OF_KVM.split(), _PATH),
        **dict.fromkeys(("cpu_cores", "cpu_sockets", "cpu_threads"), _NOT_NEGATIVE),
        "boot_order": _one_of("cdrom disk floppy network", is_needed=True),
        "cdrom_disk_type": _one_of(_DISKS),
        **dict.fromkeys(("cdrom_image_path", "cdrom2_image_path"), _PATH_OR_URL),
        "cpu_mask": _MASKS,
        "disk_aio": _one_of("native threads"),
        "disk_cache": _one_of("default none writeback writethrough", is_needed=True),
        "disk_discard": _one_of("default ignore unmap"),
        "disk_type": _one_of(_DISKS, is_needed=True),
        **dict.fromkeys(("migration_bandwidth", "migration_downtime"), _NOT_NEGATIVE),
        "kvm_flag": _one_of("disabled enabled"),
        "kvm_path": _NEEDED_PATH,
        "kvm_pci_reservations": _between(0, 32),
        "nic_type": _one_of(f"{_NICS_OF_HVM} i82551 i82557b i82559er pcnet", is_needed=True),
        "reboot_behavior": _one_of("reboot exit", is_needed=True),
        "scsi_controller_type": _one_of("lsi megasas virtio-scsi-pci", is_needed=True),
        "security_model": _one_of("none pool user", is_needed=True),
        "spice_image_compression": _one_of("auto_glz auto_lz glz lz off quic"),
        "spice_ip_version": Check("4, 6, or 0 for either", {0, 4, 6}.__contains__),
        "spice_streaming_video": _one_of("all filter off"),
        **dict.fromkeys(("spice_jpeg_wan_compression", "spice_zlib_glz_wan_compression"), _one_of("always auto never")),
        "usb_mouse": _one_of("mouse tablet"),
        "virtio_net_queues": _between(1, 8),
    },
    "xen-pvm": {
        **_OF_XEN,
        **dict.fromkeys(("bootloader_path", "initrd_path"), _PATH),
        "cpu_cap": _NOT_NEGATIVE,
        "cpu_weight": _between(1, 65535),
    },
    "xen-hvm": {
        **_OF_XEN,
        "boot_order": Check("some of the letters a, c, d and n", lambda text: set(text) <= set("acdn"), is_needed=True),
        "cdrom_image_path": _PATH,
        "cpu_weight": _between(1, 65534),
        "device_model": _NEEDED_PATH,
        "disk_type": _one_of("ioemu paravirtual", is_needed=True),
        "nic_type": _one_of(_NICS_OF_HVM, is_needed=True),
        "vif_type": _one_of("ioemu vif"),
        "vnc_bind_address": Check("an IPv4 address", lambda text: _ip_version(text) == 4),
        "vnc_password_file": _NEEDED_PATH,
    },
    "fake": {"migration_mode": _OF_MIGRATION["migration_mode"]},
    "chroot": {"init_script": _NEEDED_PATH},
    "lxc": {
        "cpu_mask": Check("a mask of processors as 0-2,5", _is_mask),
        **dict.fromkeys(("num_ttys", "startup_timeout"), _NOT_NEGATIVE),
    },
}
"""Checks by hypervisor and parameter; any other parameter may have each value of its type."""


def check_hypervisor_values(hypervisor: str, values: Parameters) -> None:
    """Raises PrerequisiteError for the first value that is invalid, alone or together with others.

    values: all parameters with their defaults; parameters that clusters alone have may be missing.
    """
    for name, check in CHECKS[hypervisor].items():
        value = values.get(name)
        if value is not None and (check.is_needed if value == "" else not check.may_be(value)):
            raise wrong(invalid(name, value, check.right))
    if hypervisor == "kvm" and (problem := next(_of_kvm_together(values), None)):
        raise wrong(problem)


def _of_kvm_together(values: Parameters) -> Iterator[str]:
    def says(name: str) -> str:
        return f"parameter '{name}' has the value {shown(values[name])}"

    needed = [
        ("cdrom_image_path", "boot_order", values["boot_order"] == "cdrom"),
        ("root_path", "kernel_path", values["kernel_path"]),
        ("vnc_x509_path", "vnc_x509_verify", values["vnc_x509_verify"]),
        *(("spice_bind", name, values[name]) for name in _NEED_SPICE.split()),
    ]
    for name, other, is_needed in needed:
        if is_needed and not values[name]:
            yield f"Parameter '{name}' has to be set while {says(other)}"
    if (values["security_model"] == "user") != bool(values["security_domain"]):
        yield f"A 'security_domain' goes with the model 'user': {says('security_model')}, {says('security_domain')}"
    if values["serial_console"] and str(values["serial_speed"]) not in _SERIAL_SPEEDS.split():
        yield invalid("serial_speed", values["serial_speed"], f"one of {', '.join(_SERIAL_SPEEDS.split())}")
    if (version := _ip_version(values["spice_bind"])) is not None and values["spice_ip_version"] not in {0, version}:
        yield f"Parameter 'spice_ip_version' has to be {version} or 0 while {says('spice_bind')}"
    if values["disk_aio"] == "native" and values["disk_cache"] != "none":
        yield f"Parameter 'disk_cache' has to be 'none', not {shown(values['disk_cache'])}, while {says('disk_aio')}"
