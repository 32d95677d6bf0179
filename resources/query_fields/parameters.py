"""The parameters of backends, hypervisors and nodes, with the kinds of their values and titles.

Text parameters are of kind `other`, since an unset one may be null (contracts/ganeti-query, 2).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from fleetlight.resources.fields import Kind
from fleetlight.resources.query_fields.definitions import QueryField

BACKEND_PARAMETERS: Mapping[str, Kind] = {
    "maxmem": Kind.UNIT,
    "minmem": Kind.UNIT,
    "vcpus": Kind.NUMBER,
    "auto_balance": Kind.BOOL,
    "always_failover": Kind.BOOL,
    "spindle_use": Kind.NUMBER,
}
IN_FLAVOR: Mapping[str, str] = {"maxmem": "memory_mb", "vcpus": "vcpus"}
"""The backend parameters that an instance gets from its flavor, with their names there."""

_TRUE_OR_FALSE = """
    acpi pae serial_console spice_playback_compression spice_use_tls spice_use_vdagent use_bootloader use_chroot
    use_guest_agent use_localtime user_shutdown vhost_net viridian vnc_tls vnc_x509_verify vnet_hdr
"""
_NUMBERS = """
    cpu_cap cpu_cores cpu_sockets cpu_threads cpu_weight kvm_pci_reservations migration_downtime num_ttys serial_speed
    spice_ip_version startup_timeout virtio_net_queues
"""
_TEXTS = """
    blockdev_prefix boot_order bootloader_args bootloader_path cdrom2_image_path cdrom_disk_type cdrom_image_path
    cpu_mask cpu_type cpuid device_model devices disk_aio disk_cache disk_discard disk_type drop_capabilities
    extra_cgroups extra_config floppy_image_path init_script initrd_path kernel_args kernel_path keymap kvm_extra
    kvm_flag kvm_path machine_version mem_path migration_caps nic_type pci_pass reboot_behavior root_path
    scsi_controller_type security_domain security_model soundhw spice_bind spice_image_compression
    spice_jpeg_wan_compression spice_password_file spice_streaming_video spice_tls_ciphers
    spice_zlib_glz_wan_compression usb_devices usb_mouse vga vif_script vif_type vnc_bind_address vnc_password_file
    vnc_x509_path
"""

HYPERVISOR_PARAMETERS: Mapping[str, Kind] = (
    dict.fromkeys(_TRUE_OR_FALSE.split(), Kind.BOOL)
    | dict.fromkeys(_NUMBERS.split(), Kind.NUMBER)
    | dict.fromkeys(_TEXTS.split(), Kind.OTHER)
)

NODE_PARAMETERS: Mapping[str, Kind] = {
    "oob_program": Kind.OTHER,
    "spindle_count": Kind.NUMBER,
    "exclusive_storage": Kind.BOOL,
    "ovs": Kind.BOOL,
    "ovs_name": Kind.OTHER,
    "ovs_link": Kind.OTHER,
    "ssh_port": Kind.NUMBER,
    "cpu_speed": Kind.FLOAT,
}

NODE_PARAMETER_DEFAULTS: Mapping[str, Any] = {
    "oob_program": "",
    "spindle_count": 1,
    "exclusive_storage": False,
    "ovs": False,
    "ovs_name": "switch1",
    "ovs_link": "",
    "ssh_port": 22,
    "cpu_speed": 1,
}

# Parameters without a title here have their name as title.
_BACKEND_TITLES = {
    "maxmem": "ConfigMaxMem",
    "minmem": "ConfigMinMem",
    "vcpus": "ConfigVCPUs",
    "auto_balance": "Auto_balance",
}
_HYPERVISOR_TITLES = {
    "acpi": "ACPI",
    "boot_order": "Boot_order",
    "cdrom_image_path": "CDROM_image_path",
    "cpu_type": "cpu_type",
    "disk_type": "Disk_type",
    "initrd_path": "Initrd_path",
    "kernel_path": "Kernel_path",
    "nic_type": "NIC_type",
    "pae": "PAE",
    "pci_pass": "pci_pass",
    "vnc_bind_address": "VNC_bind_address",
}
_NODE_TITLES = {
    "oob_program": "OutOfBandProgram",
    "spindle_count": "SpindleCount",
    "exclusive_storage": "ExclusiveStorage",
    "ovs": "OpenvSwitch",
    "ovs_name": "OpenvSwitchName",
    "ovs_link": "OpenvSwitchLink",
}


def backend_fields() -> Iterator[QueryField]:
    """`be/NAME`: the backend parameters of an instance, defaults filled in."""
    return _fields("be", "Backend", BACKEND_PARAMETERS, _BACKEND_TITLES)


def hypervisor_fields() -> Iterator[QueryField]:
    """`hv/NAME`: the hypervisor parameters of an instance, defaults filled in."""
    return _fields("hv", "Hypervisor", HYPERVISOR_PARAMETERS, _HYPERVISOR_TITLES)


def node_parameter_fields() -> Iterator[QueryField]:
    """`ndp/NAME`: the parameters of a node, or of the nodes of a group, defaults filled in."""
    return _fields("ndp", "Node", NODE_PARAMETERS, _NODE_TITLES)


def node_parameter_values(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The values of these fields as floats where needed, since Ganeti writes whole numbers without a point."""
    found = {name: (parameters.get(name), kind) for name, kind in NODE_PARAMETERS.items()}
    return {
        f"ndp/{name}": float(value) if kind is Kind.FLOAT and type(value) is int else value
        for name, (value, kind) in found.items()
    }


def _fields(prefix: str, of: str, kinds: Mapping[str, Kind], titles: Mapping[str, str]) -> Iterator[QueryField]:
    for name, kind in kinds.items():
        full = f"{prefix}/{name}"
        yield QueryField(full, titles.get(name, full), kind, f"{of} parameter {name}, with its default filled in")
