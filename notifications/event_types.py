"""Which events there are, and which payload each carries (contracts/nova-notifications, sections 5 and 8).

An event type is `<object>.<action>` or `<object>.<action>.<phase>`. The list is for producers that check what they
send: a reader takes any event type whose payload it knows, since new ones appear without notice.
"""

import re
from collections.abc import Iterable, Iterator, Mapping

PayloadName = tuple[str, str]
"""Namespace and name of a payload."""

INSTANCE_CREATE_END = "instance.create.end"
INSTANCE_UPDATE = "instance.update"
INSTANCE_POWER_ON_END = "instance.power_on.end"
INSTANCE_POWER_OFF_END = "instance.power_off.end"
INSTANCE_DELETE_END = "instance.delete.end"
INSTANCE_LIVE_MIGRATION_POST_DEST_END = "instance.live_migration_post_dest.end"
CELL_HEARTBEAT = "cell.heartbeat"
HYPERVISOR_CREATE = "hypervisor.create"
HYPERVISOR_UPDATE = "hypervisor.update"
HYPERVISOR_DELETE = "hypervisor.delete"
NODE_STATUS_UPDATE = "node_status.update"
INSTANCE_STATUS_UPDATE = "instance_status.update"

_FORM = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+){1,2}")
_START_END = ("start", "end")
_WITH_ERROR = (*_START_END, "error")

# (object and action, phases, payload); no phases: the event type is the object and action alone.
_NOVA: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("instance.create", _WITH_ERROR, "InstanceCreatePayload"),
    ("instance.delete", _START_END, "InstanceActionPayload"),
    ("instance.soft_delete", _START_END, "InstanceActionPayload"),
    ("instance.restore", _START_END, "InstanceActionPayload"),
    ("instance.update", (), "InstanceUpdatePayload"),
    ("instance.exists", (), "InstanceExistsPayload"),
    ("instance.shutdown", _START_END, "InstanceActionPayload"),
    ("instance.power_on", _START_END, "InstanceActionPayload"),
    ("instance.power_off", _START_END, "InstanceActionPayload"),
    ("instance.reboot", _WITH_ERROR, "InstanceActionPayload"),
    ("instance.pause", _START_END, "InstanceActionPayload"),
    ("instance.unpause", _START_END, "InstanceActionPayload"),
    ("instance.suspend", _START_END, "InstanceActionPayload"),
    ("instance.resume", _START_END, "InstanceActionPayload"),
    ("instance.rescue", _START_END, "InstanceActionRescuePayload"),
    ("instance.unrescue", _START_END, "InstanceActionPayload"),
    ("instance.rebuild", _WITH_ERROR, "InstanceActionRebuildPayload"),
    ("instance.rebuild_scheduled", (), "InstanceActionRebuildPayload"),
    ("instance.evacuate", (), "InstanceActionPayload"),
    ("instance.resize_prep", _START_END, "InstanceActionResizePrepPayload"),
    ("instance.resize", _WITH_ERROR, "InstanceActionPayload"),
    ("instance.resize_finish", _START_END, "InstanceActionPayload"),
    ("instance.resize_confirm", _START_END, "InstanceActionPayload"),
    ("instance.resize_revert", _START_END, "InstanceActionPayload"),
    ("instance.live_migration_pre", _START_END, "InstanceActionPayload"),
    ("instance.live_migration_post", _START_END, "InstanceActionPayload"),
    ("instance.live_migration_post_dest", _START_END, "InstanceActionPayload"),
    ("instance.live_migration_rollback", _START_END, "InstanceActionPayload"),
    ("instance.live_migration_rollback_dest", _START_END, "InstanceActionPayload"),
    ("instance.live_migration_abort", _START_END, "InstanceActionPayload"),
    ("instance.live_migration_force_complete", _START_END, "InstanceActionPayload"),
    ("instance.shelve", _START_END, "InstanceActionPayload"),
    ("instance.shelve_offload", _START_END, "InstanceActionPayload"),
    ("instance.unshelve", _START_END, "InstanceActionPayload"),
    ("instance.snapshot", _START_END, "InstanceActionSnapshotPayload"),
    ("instance.lock", (), "InstanceActionPayload"),
    ("instance.unlock", (), "InstanceActionPayload"),
    ("instance.interface_attach", _WITH_ERROR, "InstanceActionPayload"),
    ("instance.interface_detach", _START_END, "InstanceActionPayload"),
    ("instance.volume_attach", _WITH_ERROR, "InstanceActionVolumePayload"),
    ("instance.volume_detach", _START_END, "InstanceActionVolumePayload"),
    ("instance.volume_swap", _WITH_ERROR, "InstanceActionVolumeSwapPayload"),
    ("instance.share_attach", _WITH_ERROR, "InstanceActionSharePayload"),
    ("instance.share_detach", _WITH_ERROR, "InstanceActionSharePayload"),
    ("instance.trigger_crash_dump", _START_END, "InstanceActionPayload"),
    ("service.create", (), "ServiceStatusPayload"),
    ("service.update", (), "ServiceStatusPayload"),
    ("service.delete", (), "ServiceStatusPayload"),
    ("compute_task.build_instances", ("error",), "ComputeTaskPayload"),
    ("compute_task.migrate_server", ("error",), "ComputeTaskPayload"),
    ("compute_task.rebuild_server", ("error",), "ComputeTaskPayload"),
    ("scheduler.select_destinations", _START_END, "RequestSpecPayload"),
    ("compute.exception", (), "ExceptionPayload"),
    ("aggregate.create", _START_END, "AggregatePayload"),
    ("aggregate.delete", _START_END, "AggregatePayload"),
    ("aggregate.add_host", _START_END, "AggregatePayload"),
    ("aggregate.remove_host", _START_END, "AggregatePayload"),
    ("aggregate.update_metadata", _START_END, "AggregatePayload"),
    ("aggregate.update_prop", _START_END, "AggregatePayload"),
    ("aggregate.cache_images", _START_END, "AggregatePayload"),
    ("aggregate.cache_images", ("progress",), "AggregateCachePayload"),
    ("flavor.create", (), "FlavorPayload"),
    ("flavor.update", (), "FlavorPayload"),
    ("flavor.delete", (), "FlavorPayload"),
    ("keypair.create", _START_END, "KeypairPayload"),
    ("keypair.import", _START_END, "KeypairPayload"),
    ("keypair.delete", _START_END, "KeypairPayload"),
    ("server_group.create", (), "ServerGroupPayload"),
    ("server_group.delete", (), "ServerGroupPayload"),
    ("server_group.add_member", (), "ServerGroupPayload"),
    ("volume.usage", (), "VolumeUsagePayload"),
    ("libvirt.connect", ("error",), "LibvirtErrorPayload"),
    ("metrics.update", (), "MetricsPayload"),
)
# What older Novas have sent with these events: create until Ocata, snapshot until Pike, rebuild until Queens.
_OLDER_PAYLOAD = "InstanceActionPayload"
_ONCE_WITH_IT = {"instance.create", "instance.snapshot", "instance.rebuild"}
# Of instances that are reserved only, which no consumer of servers is to take for one. All carry our payload. Each is
# one transaction, so nothing is announced when it begins.
_RESERVATIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("reservation.create", ("end",)),
    ("reservation.update", ()),
    ("reservation.move", ("end",)),
    ("reservation.commit", ("error",)),
    ("reservation.delete", ("end",)),
    ("reservation.expire", ()),
)


def _all() -> Iterator[tuple[str, frozenset[PayloadName]]]:
    for base, phases, payload in _NOVA:
        names: frozenset[PayloadName] = frozenset({("nova", payload)})
        if base.startswith("instance."):
            # Any event about an instance may carry our complete payload instead.
            names |= {("fleetlight", "InstancePayload")}
        if base in _ONCE_WITH_IT:
            names |= {("nova", _OLDER_PAYLOAD)}
        for event_type in [f"{base}.{phase}" for phase in phases] or [base]:
            yield event_type, names
    for base, phases in _RESERVATIONS:
        for event_type in [f"{base}.{phase}" for phase in phases] or [base]:
            yield event_type, frozenset({("fleetlight", "InstancePayload")})
    yield CELL_HEARTBEAT, frozenset({("fleetlight", "CellHeartbeatPayload")})
    # Nova announces services and not their nodes, so these are events of our own.
    for event_type in (HYPERVISOR_CREATE, HYPERVISOR_UPDATE, HYPERVISOR_DELETE):
        yield event_type, frozenset({("fleetlight", "HypervisorPayload")})
    # Found by asking the hosts, and no change of an instance, hence not of `instance`.
    yield NODE_STATUS_UPDATE, frozenset({("fleetlight", "NodeStatusPayload")})
    yield INSTANCE_STATUS_UPDATE, frozenset({("fleetlight", "InstanceStatusPayload")})


PAYLOADS_OF_EVENT: Mapping[str, frozenset[PayloadName]] = dict(_all())
"""Event type -> payloads that it may carry."""


def is_well_formed(event_type: str) -> bool:
    """Whether `event_type` has two or three parts of lower-case words."""
    return _FORM.fullmatch(event_type) is not None


def expected_payloads(event_type: str) -> Iterable[PayloadName]:
    """The payloads that this event may carry; none when the event type is not known."""
    return sorted(PAYLOADS_OF_EVENT.get(event_type, ()))
