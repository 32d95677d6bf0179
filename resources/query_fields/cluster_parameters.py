"""The configuration of a cluster: the defaults, and functions that fill in parameters that are not set on an item.

The names are those of Ganeti's `/2/info` (contracts/ganeti-rapi, 8).
"""

from collections.abc import Mapping
from typing import Any

from fleetlight.resources.query_fields.parameters import NODE_PARAMETER_DEFAULTS

Parameters = Mapping[str, Any]

CLUSTER = "cluster"
"""The type of the one item with the configuration of a cell."""
DEFAULT = "default"
"""The one key of `beparams` and `nicparams` of a cluster."""
HYPERVISOR_GLOBALS = frozenset({"migration_port", "migration_mode", "migration_bandwidth", "xen_cmd"})
"""Parameters of a hypervisor that are the same for all its instances, and are not shown as theirs."""
DISK_TEMPLATES = ("diskless", "file", "sharedfile", "plain", "blockdev", "drbd", "rbd", "ext", "gluster")

BACKEND_DEFAULTS: Parameters = {
    "minmem": 128,
    "maxmem": 128,
    "vcpus": 1,
    "auto_balance": True,
    "always_failover": False,
    "spindle_use": 1,
}
NIC_DEFAULTS: Parameters = {"mode": "bridged", "link": "br0", "vlan": ""}

_EMPTY_OF_KVM = """
    cdrom2_image_path cdrom_disk_type cdrom_image_path cpu_type floppy_image_path initrd_path keymap kvm_extra kvm_flag
    machine_version mem_path migration_caps security_domain soundhw spice_bind spice_image_compression
    spice_jpeg_wan_compression spice_password_file spice_streaming_video spice_zlib_glz_wan_compression usb_devices
    usb_mouse vga vnc_bind_address vnc_password_file vnc_x509_path
"""
_OFF_IN_KVM = """
    spice_use_tls use_chroot use_guest_agent use_localtime user_shutdown vhost_net vnc_tls vnc_x509_verify
"""
_OF_XEN: Parameters = {
    "blockdev_prefix": "sd",
    "cpu_cap": 0,
    "cpu_mask": "all",
    "cpu_weight": 256,
    "cpuid": "",
    "migration_mode": "live",
    "migration_port": 8002,
    "reboot_behavior": "reboot",
    "soundhw": "",
    "vif_script": "",
    "xen_cmd": "xm",
}
_DEVICES_OF_LXC = ("1:3", "1:5", "1:7", "1:8", "1:9", "1:10", "5:0", "5:1", "5:2", "136:*")
HYPERVISOR_DEFAULTS: Mapping[str, Parameters] = {
    "kvm": {
        **dict.fromkeys(_EMPTY_OF_KVM.split(), ""),
        **dict.fromkeys(_OFF_IN_KVM.split(), False),
        "acpi": True,
        "boot_order": "disk",
        "cpu_cores": 0,
        "cpu_mask": "all",
        "cpu_sockets": 0,
        "cpu_threads": 0,
        "disk_aio": "threads",
        "disk_cache": "default",
        "disk_discard": "default",
        "disk_type": "paravirtual",
        "kernel_args": "ro",
        "kernel_path": "/boot/vmlinuz-3-kvmU",
        "kvm_path": "/usr/bin/kvm",
        "kvm_pci_reservations": 12,
        "migration_bandwidth": 32,
        "migration_downtime": 30,
        "migration_mode": "live",
        "migration_port": 8102,
        "nic_type": "paravirtual",
        "reboot_behavior": "reboot",
        "root_path": "/dev/vda1",
        "scsi_controller_type": "lsi",
        "security_model": "none",
        "serial_console": True,
        "serial_speed": 38400,
        "spice_ip_version": 0,
        "spice_playback_compression": True,
        "spice_tls_ciphers": "HIGH:-DES:-3DES:-EXPORT:-DH",
        "spice_use_vdagent": True,
        "virtio_net_queues": 1,
        "vnet_hdr": True,
    },
    "xen-pvm": {
        **_OF_XEN,
        "bootloader_args": "",
        "bootloader_path": "",
        "initrd_path": "",
        "kernel_args": "ro",
        "kernel_path": "/boot/vmlinuz-3-xenU",
        "root_path": "/dev/xvda1",
        "use_bootloader": False,
    },
    "xen-hvm": {
        **_OF_XEN,
        "acpi": True,
        "blockdev_prefix": "hd",
        "boot_order": "cd",
        "cdrom_image_path": "",
        "device_model": "/usr/lib/xen/bin/qemu-dm",
        "disk_type": "paravirtual",
        "kernel_path": "/usr/lib/xen/boot/hvmloader",
        "migration_mode": "non-live",
        "nic_type": "rtl8139",
        "pae": True,
        "pci_pass": "",
        "use_localtime": False,
        "vif_type": "ioemu",
        "viridian": False,
        "vnc_bind_address": "0.0.0.0",  # noqa: S104  # of a guest; nothing here listens on it
        "vnc_password_file": "/etc/ganeti/vnc-cluster-password",
    },
    "fake": {"migration_mode": "live"},
    "chroot": {"init_script": "/ganeti-chroot"},
    "lxc": {
        "cpu_mask": "",
        "devices": ",".join(f"c {device} rw" for device in _DEVICES_OF_LXC),
        "drop_capabilities": "mac_override,sys_boot,sys_module,sys_time,sys_admin",
        "extra_cgroups": "",
        "extra_config": "",
        "num_ttys": 6,
        "startup_timeout": 30,
    },
}
DISK_DEFAULTS: Mapping[str, Parameters] = {
    "blockdev": {},
    "diskless": {},
    "drbd": {
        "c-delay-target": 1,
        "c-fill-target": 0,
        "c-max-rate": 61440,
        "c-min-rate": 4096,
        "c-plan-ahead": 20,
        "data-stripes": 1,
        "disk-barriers": "n",
        "disk-custom": "",
        "dynamic-resync": False,
        "meta-barriers": False,
        "meta-stripes": 1,
        "metavg": "xenvg",
        "net-custom": "",
        "protocol": "C",
        "resync-rate": 61440,
    },
    "ext": {"access": "kernelspace"},
    "file": {},
    "gluster": {"access": "kernelspace", "host": "127.0.0.1", "port": 24007, "volume": "gv0"},
    "plain": {"stripes": 1},
    "rbd": {"access": "kernelspace", "pool": "rbd"},
    "sharedfile": {},
}
_SMALLEST: Parameters = {
    "memory-size": 128,
    "disk-size": 1024,
    "disk-count": 1,
    "cpu-count": 1,
    "nic-count": 1,
    "spindle-use": 1,
}
_LARGEST: Parameters = {
    "memory-size": 32768,
    "disk-size": 1048576,
    "disk-count": 16,
    "cpu-count": 8,
    "nic-count": 8,
    "spindle-use": 12,
}
POLICY_DEFAULTS: Parameters = {
    "minmax": [{"min": _SMALLEST, "max": _LARGEST}],
    "std": _SMALLEST,
    "spindle-ratio": 32,
    "vcpu-ratio": 4,
    "disk-templates": list(DISK_TEMPLATES),
}

_COLLECTORS = ("cpu-avg-load", "diskstats", "drbd", "inst-status-xen", "lv", "xen-cpu-avg-load")
CLUSTER_DEFAULTS: Parameters = {
    "beparams": {DEFAULT: BACKEND_DEFAULTS},
    "blacklisted_os": [],
    "candidate_pool_size": 10,
    "compression_tools": ["gzip", "gzip-fast", "gzip-slow"],
    "data_collector_interval": dict.fromkeys(_COLLECTORS, 5_000_000),
    "default_iallocator": "hail",
    "default_iallocator_params": {},
    "diskparams": DISK_DEFAULTS,
    "drbd_usermode_helper": None,
    "enabled_data_collectors": dict.fromkeys(_COLLECTORS, True),
    "enabled_disk_templates": ["plain", "drbd", "file", "sharedfile", "diskless"],
    "enabled_hypervisors": ["kvm", "fake"],
    "enabled_user_shutdown": False,
    "file_storage_dir": "/srv/ganeti/file-storage",
    "gluster_storage_dir": "/var/run/ganeti/gluster",
    "hidden_os": [],
    "hvparams": HYPERVISOR_DEFAULTS,
    "install_image": "",
    "instance_communication_network": "",
    "ipolicy": POLICY_DEFAULTS,
    "mac_prefix": "aa:00:00",
    "maintain_node_health": False,
    "master_netdev": "br0",
    "master_netmask": 32,
    "max_running_jobs": 20,
    "max_tracked_jobs": 25,
    "modify_ssh_setup": False,
    "ndparams": NODE_PARAMETER_DEFAULTS,
    "nicparams": {DEFAULT: NIC_DEFAULTS},
    "os_hvp": {},
    "osparams": {},
    "prealloc_wipe_disks": False,
    "primary_ip_version": 4,
    "reserved_lvs": [],
    "shared_file_storage_dir": "/srv/ganeti/shared-file-storage",
    "ssh_key_bits": 2048,
    "ssh_key_type": "rsa",
    "uid_pool": [],
    "use_external_mip_script": False,
    "volume_group_name": "xenvg",
    "zeroing_image": "",
}
"""The default of each parameter of a cluster."""

# Set values of these are merged into the defaults key by key, on so many levels; all others replace the default.
_LEVELS = {"beparams": 2, "diskparams": 2, "hvparams": 2, "nicparams": 2, "ndparams": 1, "ipolicy": 1}


def filled_cluster(is_set: Parameters) -> Parameters:
    """All parameters of a cluster: `is_set` over the defaults. A set value of a wrong type is ignored."""
    return {name: _filled(name, default, is_set.get(name)) for name, default in CLUSTER_DEFAULTS.items()}


def filled(defaults: Parameters, own: Parameters, levels: int = 1) -> Parameters:
    """`own` merged over `defaults`; with two levels, each of their members is merged as well."""
    if levels == 1:
        return {**defaults, **own}
    names = [*defaults, *(name for name in own if name not in defaults)]
    return {name: filled(defaults.get(name, {}), _object(own.get(name)), levels - 1) for name in names}


def hypervisor_parameters(cluster: Parameters, hypervisor: str, system: str | None, own: Parameters) -> Parameters:
    """The parameters of an instance with this hypervisor and operating system, and its `own` ones.

    cluster: from `filled_cluster`. Parameters of the operating system override those of the hypervisor alone.
    """
    of_system = _object(_object(cluster["os_hvp"].get(system)).get(hypervisor))
    of_hypervisor = _object(cluster["hvparams"].get(hypervisor))
    everything = {**of_hypervisor, **of_system, **own}
    return {name: value for name, value in everything.items() if name not in HYPERVISOR_GLOBALS}


def system_parameters(cluster: Parameters, system: str | None, own: Parameters) -> Parameters:
    """The parameters of an instance's operating system: by name, overridden by its variant, and by the instance."""
    if system is None:
        return own
    of_all = cluster["osparams"]
    name, _, variant = system.partition("+")
    of_variant = _object(of_all.get(system)) if variant else {}
    return {**_object(of_all.get(name)), **of_variant, **own}


def _filled(name: str, default: Any, is_set: Any) -> Any:
    if is_set is None or (default is not None and not isinstance(is_set, type(default))):
        return default
    return filled(default, is_set, _LEVELS[name]) if name in _LEVELS else is_set


def _object(value: Any) -> Parameters:
    return value if isinstance(value, Mapping) else {}
