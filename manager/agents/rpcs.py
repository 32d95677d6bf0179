"""Every call of nodes, with its effect on the cached state of nodes.

This table alone decides that (contracts/ganeti-node-state-cache, 5). An unknown call counts as one that changes its
node: read-only calls must be declared.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Effect(StrEnum):
    """The effect that a call may have on the state of nodes."""

    READS = "reads"  # proven to be read-only
    CONFIGURES = "configures"  # writes files of the cluster's configuration, which no snapshot shows
    CHANGES = "changes"  # changes its node
    CHANGES_ALL = "changes all"  # changes other nodes, too


@dataclass(frozen=True, slots=True)
class Rpc:
    """A call. timeout_s: default time limit of the node."""

    effect: Effect
    timeout_s: float = 60.0


_FAST_S, _NORMAL_S, _SLOW_S, _HOURS_S = 60.0, 300.0, 900.0, 3600.0


def _all(effect: Effect, timeout_s: float, names: str) -> dict[str, Rpc]:
    return dict.fromkeys(names.split(), Rpc(effect, timeout_s))


RPCS: Mapping[str, Rpc] = {
    # The whole state at once, for the cache.
    **_all(Effect.READS, _FAST_S, "node_snapshot"),
    # Import and export.
    **_all(Effect.READS, _FAST_S, "impexp_status export_info export_list"),
    **_all(
        Effect.CHANGES_ALL,
        _NORMAL_S,
        "import_start export_start impexp_abort impexp_cleanup finalize_export export_remove",
    ),
    **_all(Effect.CONFIGURES, _FAST_S, "x509_cert_create x509_cert_remove"),
    # Operating systems and storage providers; validating one runs its script.
    **_all(Effect.READS, _FAST_S, "os_diagnose extstorage_diagnose"),
    **_all(Effect.CHANGES, _NORMAL_S, "os_validate os_export"),
    # Nodes.
    **_all(Effect.READS, _FAST_S, "node_has_ip_address node_info node_verify node_volumes"),
    **_all(Effect.CHANGES, _NORMAL_S, "node_powercycle node_configure_ovs node_ensure_daemon"),
    **_all(
        Effect.CONFIGURES,
        _FAST_S,
        "node_demote_from_mc node_crypto_tokens node_ssh_key_add node_ssh_key_remove node_ssh_keys_renew",
    ),
    **_all(Effect.CHANGES, _FAST_S, "file_storage_dir_create file_storage_dir_remove file_storage_dir_rename"),
    # Of all kinds.
    **_all(
        Effect.READS,
        _FAST_S,
        "lv_list vg_list bridges_exist drbd_helper hypervisor_validate_params get_watcher_pause get_file_info "
        "test_delay",
    ),
    **_all(Effect.CHANGES, _NORMAL_S, "restricted_command run_oob hooks_runner iallocator_runner"),
    **_all(Effect.CONFIGURES, _FAST_S, "etc_hosts_modify set_watcher_pause"),
    # Instances.
    **_all(
        Effect.READS,
        _FAST_S,
        "instance_info all_instances_info instance_list instance_migratable migration_info "
        "instance_get_migration_status hotplug_supported instance_console_info",
    ),
    **_all(
        Effect.CHANGES,
        _NORMAL_S,
        "instance_reboot instance_shutdown instance_balloon_memory instance_run_rename instance_start instance_os_add "
        "hotplug_device resize_disk",
    ),
    **_all(Effect.CONFIGURES, _FAST_S, "instance_metadata_modify"),
    **_all(
        Effect.CHANGES_ALL,
        _HOURS_S,
        "accept_instance instance_migrate instance_finalize_migration_dst instance_finalize_migration_src",
    ),
    # Work for which Ganeti has several calls, or none. One call each, so that none is left half done.
    **_all(
        Effect.CHANGES,
        _SLOW_S,
        "instance_create instance_remove instance_pause instance_unpause instance_suspend instance_rescue "
        "instance_unrescue instance_rebuild instance_snapshot",
    ),
    # Block devices.
    **_all(
        Effect.READS,
        _FAST_S,
        "bdev_sizes blockdev_getdimensions drbd_needs_activation blockdev_find blockdev_getmirrorstatus "
        "blockdev_getmirrorstatus_multi",
    ),
    **_all(
        Effect.CHANGES,
        _SLOW_S,
        "blockdev_create blockdev_convert blockdev_image blockdev_wipe blockdev_remove blockdev_pause_resume_sync "
        "blockdev_assemble blockdev_shutdown blockdev_addchildren blockdev_removechildren blockdev_close "
        "blockdev_open blockdev_grow blockdev_snapshot blockdev_rename blockdev_setinfo drbd_disconnect_net "
        "drbd_attach_net drbd_wait_sync",
    ),
    # Storage units.
    **_all(Effect.READS, _FAST_S, "storage_list"),
    **_all(Effect.CHANGES, _NORMAL_S, "storage_modify storage_execute"),
    # The queue of jobs, the master, and the files of the configuration.
    **_all(Effect.CONFIGURES, _FAST_S, "jobqueue_update jobqueue_purge jobqueue_rename jobqueue_set_drain_flag"),
    **_all(Effect.READS, _FAST_S, "master_node_name version node_verify_light"),
    **_all(Effect.CHANGES, _NORMAL_S, "node_leave_cluster"),
    **_all(
        Effect.CONFIGURES,
        _FAST_S,
        "node_start_master_daemons node_activate_master_ip node_stop_master node_deactivate_master_ip "
        "node_change_master_netmask upload_file upload_file_single write_ssconf_files",
    ),
}
"""The calls by name. Our agents answer those of fleetlight.manager.agents.calls."""

_UNDECLARED = Rpc(Effect.CHANGES, _NORMAL_S)


def rpc(name: str) -> Rpc:
    """Return the entry of a call; an unknown one counts as changing its node."""
    return RPCS.get(name, _UNDECLARED)


def effect_of(name: str, *, is_strict: bool = False) -> Effect:
    """Return the effect of a call; never CONFIGURES.

    is_strict: whether writing the configuration counts as changing the node, as in the source document. That would drop
    the cached state of master candidates at each step of a job, though it cannot change it.
    """
    effect = rpc(name).effect
    if effect is Effect.CONFIGURES:
        return Effect.CHANGES if is_strict else Effect.READS
    return effect
