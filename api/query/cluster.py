"""The fleet, or one cell, as one of Ganeti's clusters (contracts/ganeti-rapi, 8)."""

import platform
from importlib.metadata import version
from typing import Any

from fleetlight.resources.fields import Record
from fleetlight.views.query2.values import seconds_of

FLEET = "fleetlight"
"""The name of the whole fleet as one cluster."""
_PROTOCOL_VERSION = 2

_KEYS = """
    architecture beparams blacklisted_os candidate_pool_size compression_tools config_version ctime
    data_collector_interval default_hypervisor default_iallocator default_iallocator_params diskparams
    drbd_usermode_helper drbd_helper enabled_data_collectors enabled_disk_templates enabled_hypervisors
    enabled_user_shutdown export_version file_storage_dir gluster_storage_dir hidden_os hvparams install_image
    instance_communication_network ipolicy mac_prefix maintain_node_health master master_netdev master_netmask
    max_running_jobs max_tracked_jobs modify_ssh_setup mtime name ndparams nicparams os_api_version os_hvp osparams
    prealloc_wipe_disks primary_ip_version protocol_version reserved_lvs shared_file_storage_dir software_version
    ssh_key_bits ssh_key_type tags uid_pool use_external_mip_script uuid vcs_version volume_group_name vg_name
    zeroing_image
"""
_LISTS = """
    blacklisted_os compression_tools enabled_data_collectors enabled_disk_templates enabled_hypervisors hidden_os
    reserved_lvs tags uid_pool
"""


def cluster_info(name: str, uuid: str | None, configured: Record | None = None) -> dict[str, Any]:
    """Return all of Ganeti's keys; unknown values are null, or an empty list.

    configured: a cell's record of type CLUSTER (fleetlight.cells.model.ItemsAdapter), if it has one.
    """
    lists: dict[str, Any] = {key: [] for key in _LISTS.split()}
    return {
        **dict.fromkeys(_KEYS.split()),
        **lists,
        "architecture": [platform.architecture()[0], platform.machine()],
        "name": name,
        "uuid": uuid,
        "software_version": version("fleetlight"),
        "protocol_version": _PROTOCOL_VERSION,
        **({} if configured is None else _as_configured(configured)),
    }


def _as_configured(record: Record) -> dict[str, Any]:
    return {
        **{key: record[key] for key in _KEYS.split() if key in record},
        "ctime": seconds_of(record["ctime"]),
        "mtime": seconds_of(record["mtime"]),
        "default_hypervisor": record["enabled_hypervisors"][0],
        "drbd_helper": record.get("drbd_usermode_helper"),
        "vg_name": record.get("volume_group_name"),
    }
