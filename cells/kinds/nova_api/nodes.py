"""From what a compute API shows of hypervisors and services to records of nodes; pure (contracts/nova-rest, 4.6)."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

from cells.errors import UpstreamError
from cells.kinds.node_records import NodeSize, node_record
from query.sort import nice_key
from resources.fields import Record


def node_records(hypervisors: Sequence[Mapping[str, Any]], services: Sequence[Mapping[str, Any]]) -> Sequence[Record]:
    """A record of each hypervisor. Raises UpstreamError for what no compute API shows, or where it lacks some."""
    if any(service.get("status") == "UNKNOWN" for service in services):
        raise UpstreamError("the API lists no hypervisors of a cell of its own that is down")
    try:
        by_host = {service["host"]: service for service in services}
        return [_record(hypervisor, by_host) for hypervisor in hypervisors]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UpstreamError(f"a hypervisor is not shown as one is: {type(error).__name__}: {error}") from error


def _record(hypervisor: Mapping[str, Any], services: Mapping[str, Mapping[str, Any]]) -> Record:
    service = services.get(hypervisor["service"]["host"], {})
    servers = hypervisor.get("servers") or []
    record = node_record(
        name=_text(hypervisor["hypervisor_hostname"]),
        address=None if hypervisor.get("host_ip") is None else _text(hypervisor["host_ip"]),
        is_offline=bool(service.get("forced_down")),
        is_drained=hypervisor.get("status") == "disabled",
        size=NodeSize(
            *(_number(hypervisor.get(name)) for name in ("vcpus", "memory_mb", "memory_mb_used")),
            *(_number(hypervisor.get(name)) for name in ("local_gb", "local_gb_used")),
        ),
        instances=sorted((_text(server["name"]) for server in servers), key=nice_key),
        instance_count=len(servers),
    )
    return {**record, "uuid": str(UUID(_text(hypervisor["id"])))}


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:100]!r} is no text")
    return value


def _number(value: object) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise TypeError(f"{str(value)[:100]!r} is no whole number")
    return value
