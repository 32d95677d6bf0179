"""Converts hypervisors and services of a compute API to records of nodes; pure (contracts/nova-rest, 4.6)."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from uuid import UUID

from fleetlight.cells.errors import UpstreamError
from fleetlight.cells.kinds.node_records import node_record
from fleetlight.cells.kinds.nova_capacity import NovaInventory, nova_node_capacity
from fleetlight.cells.node_capacity import NodeCapacity
from fleetlight.query.sort import nice_key
from fleetlight.resources.fields import Record

_Items = Sequence[Mapping[str, Any]]
_T = TypeVar("_T")


def node_records(hypervisors: _Items, services: _Items) -> Sequence[Record]:
    """A record of each hypervisor. Raises UpstreamError if one is malformed, or a cell of the API's own is down."""
    return _read(_record, hypervisors, services)


def node_capacities(hypervisors: _Items, services: _Items) -> Sequence[NodeCapacity]:
    """The capacity of each hypervisor. Raises as `node_records`."""
    return _read(_capacity, hypervisors, services)


def _read(
    one: Callable[[Mapping[str, Any], Mapping[str, Mapping[str, Any]]], _T], hypervisors: _Items, services: _Items
) -> Sequence[_T]:
    if any(service.get("status") == "UNKNOWN" for service in services):
        raise UpstreamError("the API lists no hypervisors of a cell of its own that is down")
    try:
        by_host = {service["host"]: service for service in services}
        return [one(hypervisor, by_host) for hypervisor in hypervisors]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UpstreamError(f"a hypervisor is not shown as one is: {type(error).__name__}: {error}") from error


def _capacity(hypervisor: Mapping[str, Any], services: Mapping[str, Mapping[str, Any]]) -> NodeCapacity:
    service = services.get(hypervisor["service"]["host"], {})
    zone = service.get("zone")
    return nova_node_capacity(
        _text(hypervisor["hypervisor_hostname"]),
        _inventories(hypervisor),
        is_available=hypervisor.get("status") != "disabled" and not service.get("forced_down"),
        zone=None if zone is None else _text(zone),
    )


def _record(hypervisor: Mapping[str, Any], services: Mapping[str, Mapping[str, Any]]) -> Record:
    service = services.get(hypervisor["service"]["host"], {})
    servers = hypervisor.get("servers") or []
    record = node_record(
        name=_text(hypervisor["hypervisor_hostname"]),
        address=None if hypervisor.get("host_ip") is None else _text(hypervisor["host_ip"]),
        is_offline=bool(service.get("forced_down")),
        is_drained=hypervisor.get("status") == "disabled",
        inventories=_inventories(hypervisor),
        instances=sorted((_text(server["name"]) for server in servers), key=nice_key),
        instance_count=len(servers),
    )
    return {**record, "uuid": str(UUID(_text(hypervisor["id"])))}


def _inventories(hypervisor: Mapping[str, Any]) -> Sequence[NovaInventory]:
    names = ("vcpus", "memory_mb", "local_gb")
    return [NovaInventory(*(_number(hypervisor.get(each)) for each in (name, f"{name}_used"))) for name in names]


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:100]!r} is no text")
    return value


def _number(value: object) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise TypeError(f"{str(value)[:100]!r} is no whole number")
    return value
