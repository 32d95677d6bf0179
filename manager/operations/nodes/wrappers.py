"""The three calls that ask a node for parts of its state, in their old shapes, made of the one that brings all of it.

Shapes: contracts/ganeti-node-state-cache, 8.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from fleetlight.manager.agents.calls import LVM
from fleetlight.manager.agents.wire import (
    CACHE_REQ_BOOTID,
    CACHE_REQ_DISKINFO,
    CACHE_REQ_HV,
    INSTANCES_DATA,
    NODE_DATA,
    Snapshot,
)
from fleetlight.manager.operations.nodes.model import AgentNode, NodeResult, failure
from fleetlight.manager.operations.nodes.requests import HypervisorSpec, NodeStateRequest
from fleetlight.manager.operations.nodes.rpc import NodeRpc

StorageUnit = tuple[str, str, Sequence[Any]]
"""Type, name and parameters."""
StorageUnits = Sequence[StorageUnit] | Mapping[str, Sequence[StorageUnit]]

_INCOMPLETE = "RPC layer error: the node did not send all that it was asked for"


class _CallFailedError(Exception):
    """The whole call has failed; the text says why."""


def node_info(
    rpc: NodeRpc,
    nodes: Sequence[AgentNode],
    storage_units: StorageUnits | None,
    hv_specs: Sequence[HypervisorSpec] | None,
    *,
    use_cache: bool = True,
    bypass: bool = False,
) -> dict[str, NodeResult]:
    """The payload is `[boot id, storage units or None, data of hypervisors or None]`, in the order of the request.

    storage_units: the same for all nodes, or by node.
    """
    units = {node: _units_of(node, storage_units) for node in nodes}
    requests = {
        node: NodeStateRequest(
            None if hv_specs is None else tuple(hv_specs),
            None if asked is None else tuple(name for kind, name, _ in asked if kind == LVM),
            boot_id=True,
            with_instances=False,
        )
        for node, asked in units.items()
    }
    results = rpc.node_snapshots(requests, use_cache=use_cache, bypass=bypass)
    return {
        node.name: _adapted("node_info", results[node.name], partial(_node_info, rpc, node, asked, hv_specs))
        for node, asked in units.items()
    }


def instance_info(
    rpc: NodeRpc,
    node: AgentNode,
    instance: str,
    hname: str,
    hvparams: Mapping[str, Any],
    *,
    use_cache: bool = True,
    bypass: bool = False,
) -> NodeResult:
    """The payload is `{"memory", "vcpus", "state", "time"}`, or `{}` of an instance that is not there."""
    request = NodeStateRequest(hypervisors=((hname, hvparams),))
    result = rpc.node_snapshot([node], request, use_cache=use_cache, bypass=bypass)[node.name]
    return _adapted("instance_info", result, lambda found: _instances(found, hname).get(instance, {}))


def all_instances_info(
    rpc: NodeRpc,
    nodes: Sequence[AgentNode],
    hypervisor_list: Sequence[str],
    all_hvparams: Mapping[str, Mapping[str, Any]],
    *,
    use_cache: bool = True,
    bypass: bool = False,
    timeout_s: float | None = None,
) -> dict[str, NodeResult]:
    """The payload is what `instance_info` has, by the name of the instance."""
    request = _of_instances(hypervisor_list, all_hvparams)
    results = rpc.node_snapshot(nodes, request, use_cache=use_cache, bypass=bypass, timeout_s=timeout_s)
    return instances_in(hypervisor_list, results)


def remembered_instances_info(
    rpc: NodeRpc,
    nodes: Sequence[AgentNode],
    hypervisor_list: Sequence[str],
    all_hvparams: Mapping[str, Mapping[str, Any]],
) -> dict[str, NodeResult]:
    """As `all_instances_info`, of the nodes of which it is remembered; none is called."""
    results = rpc.remembered(nodes, _of_instances(hypervisor_list, all_hvparams))
    return instances_in(hypervisor_list, results)


def _of_instances(hypervisors: Sequence[str], parameters: Mapping[str, Mapping[str, Any]]) -> NodeStateRequest:
    return NodeStateRequest(hypervisors=tuple((name, parameters.get(name, {})) for name in hypervisors))


def instances_in(hypervisors: Sequence[str], results: Mapping[str, NodeResult]) -> dict[str, NodeResult]:
    """As `all_instances_info`, of snapshots that have these hypervisors."""
    merged = partial(_all_instances, hypervisors)
    return {name: _adapted("all_instances_info", result, merged) for name, result in results.items()}


def _adapted(call: str, result: NodeResult, payload: Callable[[Snapshot], Any]) -> NodeResult:
    """A result of the old call `call`, whose payload is made of a snapshot."""
    if result.has_failed:
        return replace(result, call=call)
    try:
        return replace(result, call=call, payload=payload(result.payload))
    except _CallFailedError as error:
        return failure(result.node, call, str(error))
    except (LookupError, TypeError, AttributeError, StopIteration):
        return failure(result.node, call, _INCOMPLETE, result.data)


def _node_info(
    rpc: NodeRpc,
    node: AgentNode,
    units: Sequence[StorageUnit] | None,
    hv_specs: Sequence[HypervisorSpec] | None,
    found: Snapshot,
) -> list[Any]:
    hypervisors = None if hv_specs is None else [found[CACHE_REQ_HV][name][NODE_DATA] for name, _ in hv_specs]
    storage = None if units is None else _storage(rpc, node, units, found)
    return [found[CACHE_REQ_BOOTID], storage, hypervisors]


def _storage(rpc: NodeRpc, node: AgentNode, units: Sequence[StorageUnit], found: Snapshot) -> list[dict[str, Any]]:
    """Volume groups by the snapshot; of units of other types, which it never has, the node itself is asked."""
    others = [unit for unit in units if unit[0] != LVM]
    asked: list[dict[str, Any]] = []
    if others:
        result = rpc.call_one(node, "node_info", {"storage_units": others, "hv_specs": None})
        if result.has_failed:
            raise _CallFailedError(result.fail_msg)
        asked = result.payload[1]
    answers = iter(asked)
    return [
        _unit(kind, name, found[CACHE_REQ_DISKINFO][name], "vg_free", "vg_size")
        if kind == LVM
        else _unit(kind, name, next(answers), "storage_free", "storage_size")
        for kind, name, _ in units
    ]


def _unit(kind: str, name: str, sizes: Mapping[str, Any], free: str, size: str) -> dict[str, Any]:
    return {"type": kind, "name": name, "storage_free": sizes[free], "storage_size": sizes[size]}


def _all_instances(hypervisors: Sequence[str], found: Snapshot) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for hypervisor in hypervisors:
        for name, guest in _instances(found, hypervisor).items():
            other = merged.get(name)
            if other is not None and any(other[key] != guest[key] for key in ("memory", "vcpus")):
                raise _CallFailedError(f"Instance {name} is running twice with different parameters")
            merged[name] = guest
    return merged


def _instances(found: Snapshot, hypervisor: str) -> dict[str, Any]:
    instances: dict[str, Any] = found[CACHE_REQ_HV][hypervisor][INSTANCES_DATA]
    return instances


def _units_of(node: AgentNode, units: StorageUnits | None) -> Sequence[StorageUnit] | None:
    return units.get(node.name) if isinstance(units, Mapping) else units
