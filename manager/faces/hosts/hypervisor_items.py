"""JSON forms of hypervisors, by microversion (contracts/nova-rest, 4.6)."""

from collections.abc import Sequence
from typing import Any

import msgspec

from fleetlight.api.http.shapes import INTEGER, TEXT, Key, ListOf, Shape, TypeSince, optional, or_null
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.cells.kinds.native.nodes import ComputeNode
from fleetlight.resources.fields import from_microseconds
from fleetlight.resources.uuids import number_of

_MINUTE_US = 60_000_000
_MINUTES_PER_DAY = 24 * 60
_CPU_OBJECTS_SINCE = 28
_UUIDS_SINCE = 53
_WITHOUT_NUMBERS_SINCE = 88
_NUMBERS = (
    "vcpus",
    "memory_mb",
    "local_gb",
    "vcpus_used",
    "memory_mb_used",
    "local_gb_used",
    "free_ram_mb",
    "free_disk_gb",
    "current_workload",
    "running_vms",
    "disk_available_least",
)
_ID = TypeSince({1: INTEGER, _UUIDS_SINCE: TEXT})
_SERVERS = ListOf(Shape({"uuid": TEXT, "name": or_null(TEXT)}))
_PROCESSORS = Shape(
    {
        **dict.fromkeys(("arch", "model", "vendor"), TEXT),
        "features": ListOf(TEXT),
        "topology": Shape(dict.fromkeys(("sockets", "cores", "threads"), INTEGER)),
    }
)
SHORT = Shape({"id": _ID, "hypervisor_hostname": TEXT, "state": TEXT, "status": TEXT, "servers": optional(_SERVERS)})
FULL = SHORT.with_keys(
    {
        "hypervisor_type": TEXT,
        "hypervisor_version": INTEGER,
        "host_ip": TEXT,
        "service": Shape({"id": _ID, "host": TEXT, "disabled_reason": or_null(TEXT)}),
        **dict.fromkeys(_NUMBERS, Key(INTEGER, until=_WITHOUT_NUMBERS_SINCE - 1)),
        "cpu_info": Key(TypeSince({1: TEXT, _CPU_OBJECTS_SINCE: _PROCESSORS}), until=_WITHOUT_NUMBERS_SINCE - 1),
        "uptime": Key(or_null(TEXT), since=_WITHOUT_NUMBERS_SINCE),
    }
)
WITH_UPTIME = SHORT.with_keys({"uptime": TEXT})
STATISTICS = Shape({"count": INTEGER, **dict.fromkeys(_NUMBERS, INTEGER)})


def short_item(request: ApiRequest, node: ComputeNode) -> dict[str, Any]:
    return SHORT.of(request.minor, _short_values(request, node))


def item_with_uptime(request: ApiRequest, node: ComputeNode, now: int) -> dict[str, Any]:
    return WITH_UPTIME.of(request.minor, _short_values(request, node) | {"uptime": uptime(node, now)})


def full_item(request: ApiRequest, node: ComputeNode, now: int) -> dict[str, Any]:
    """Show a hypervisor in full. now: microseconds since the epoch."""
    service = node.service
    processors = _processors(node)
    values = {
        **_short_values(request, node),
        "hypervisor_type": node.hypervisor_type,
        "hypervisor_version": node.hypervisor_version,
        "host_ip": node.host_ip,
        "service": {
            "id": number_of(service.uuid) if request.minor < _UUIDS_SINCE else service.uuid,
            "host": service.host,
            "disabled_reason": service.disabled_reason,
        },
        **_numbers(node),
        "cpu_info": msgspec.json.encode(processors).decode() if request.minor < _CPU_OBJECTS_SINCE else processors,
        "uptime": uptime(node, now) if node.service.is_up else None,
    }
    return FULL.of(request.minor, values)


def statistics(nodes: Sequence[ComputeNode]) -> dict[str, int]:
    """Sum up all nodes."""
    numbers = [_numbers(node) for node in nodes]
    return {"count": len(nodes)} | {name: sum(each[name] for each in numbers) for name in _NUMBERS}


def uptime(node: ComputeNode, now: int) -> str:
    """Format the uptime like the command `uptime`. A simulated host runs since it joined, without users or load."""
    minutes = (now - node.created_at) // _MINUTE_US
    days, hours = minutes // _MINUTES_PER_DAY, f"{minutes // 60 % 24:2}:{minutes % 60:02}"
    return (
        f" {from_microseconds(now):%H:%M:%S} up {days} day{'' if days == 1 else 's'}, {hours},  0 users,"
        "  load average: 0.00, 0.00, 0.00"
    )


def _processors(node: ComputeNode) -> dict[str, Any]:
    """Describe the processors of a simulated host: one, with all of its cores."""
    return {
        "arch": "x86_64",
        "model": node.hypervisor_type,
        "vendor": node.hypervisor_type,
        "features": [],
        "topology": {"sockets": 1, "cores": node.capacity.vcpus, "threads": 1},
    }


def _short_values(request: ApiRequest, node: ComputeNode) -> dict[str, Any]:
    return {
        "id": number_of(node.uuid) if request.minor < _UUIDS_SINCE else node.uuid,
        "hypervisor_hostname": node.hypervisor_hostname,
        "state": "up" if node.service.is_up else "down",
        "status": "disabled" if node.service.disabled else "enabled",
    }


def _numbers(node: ComputeNode) -> dict[str, int]:
    capacity, used, free = node.capacity, node.used, node.free
    values = (
        capacity.vcpus,
        capacity.memory_mib,
        capacity.disk_gib,
        used.vcpus,
        used.memory_mib,
        used.disk_gib,
        free.memory_mib,
        free.disk_gib,
        0,  # jobs belong to the cell, not to a node
        node.instance_count - node.reservation_count,
        free.disk_gib,
    )
    return dict(zip(_NUMBERS, values, strict=True))
