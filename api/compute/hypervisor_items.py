"""What a hypervisor looks like, by microversion (contracts/nova-rest, 4.6)."""

from collections.abc import Sequence
from typing import Any

from api.compute.endpoint import ComputeRequest
from cells.nodes import ComputeNode
from query.uuids import number_of

_CPU_OBJECTS_SINCE = 28
_UUIDS_SINCE = 53
_WITHOUT_NUMBERS_SINCE = 88


def short_item(request: ComputeRequest, node: ComputeNode) -> dict[str, Any]:
    return {
        "id": number_of(node.uuid) if request.minor < _UUIDS_SINCE else node.uuid,
        "hypervisor_hostname": node.hypervisor_hostname,
        "state": "up" if node.service.is_up else "down",
        "status": "disabled" if node.service.disabled else "enabled",
    }


def full_item(request: ComputeRequest, node: ComputeNode) -> dict[str, Any]:
    service = node.service
    item = short_item(request, node) | {
        "hypervisor_type": node.hypervisor_type,
        "hypervisor_version": node.hypervisor_version,
        "host_ip": node.host_ip,
        "service": {
            "id": number_of(service.uuid) if request.minor < _UUIDS_SINCE else service.uuid,
            "host": service.host,
            "disabled_reason": service.disabled_reason,
        },
    }
    if request.minor >= _WITHOUT_NUMBERS_SINCE:
        return item | {"uptime": None}
    # No driver that there is says anything about processors.
    return item | _numbers(node) | {"cpu_info": "{}" if request.minor < _CPU_OBJECTS_SINCE else {}}


def statistics(nodes: Sequence[ComputeNode]) -> dict[str, int]:
    """The sums over all nodes."""
    numbers = [_numbers(node) for node in nodes]
    return {"count": len(nodes)} | {name: sum(each[name] for each in numbers) for name in _NUMBERS}


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
        0,  # jobs are those of the cell, not of a node
        node.instance_count,
        free.disk_gib,
    )
    return dict(zip(_NUMBERS, values, strict=True))
