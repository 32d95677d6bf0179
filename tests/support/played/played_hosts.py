"""Hosts with agents that a test plays: what each says of itself and of its guests, and who asked it for what."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetlight.cells.model import Cell
from fleetlight.manager.agents.drivers.driver import RUNNING
from fleetlight.manager.agents.wire import CACHE_REQ_BOOTID, CACHE_REQ_DISKINFO, CACHE_REQ_HV, INSTANCES_DATA, NODE_DATA
from fleetlight.manager.operations.nodes.cache import NodeStateCache
from fleetlight.manager.operations.nodes.model import AgentNode, NodeResult, failure
from fleetlight.manager.operations.nodes.rpc import NodeRpc
from tests.support.memory.memory_store import MemoryStore

NODE = {
    "memory_total": 1000,
    "memory_dom0": 100,
    "memory_free": 700,
    "cpu_total": 16,
    "cpu_dom0": 2,
    "cpu_nodes": 1,
    "cpu_sockets": 4,
}


def guest(memory: int = 512, vcpus: int = 2, state: int = RUNNING) -> dict[str, Any]:
    return {"memory": memory, "vcpus": vcpus, "state": state, "time": 1.5}


@dataclass
class PlayedHosts:
    """A client (fleetlight.manager.operations.nodes.rpc.Client), and what calls every cell's hosts by it.

    nodes: what some say of their memory and processors. guests: by host and instance. failing: what is said instead of
    an answer. during: called in the middle of each snapshot. calls: of whom, and which flags it was asked for.
    All other calls succeed, and change nothing.
    """

    nodes: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    guests: dict[str, dict[str, Any]] = field(default_factory=dict)
    failing: dict[str, str] = field(default_factory=dict)
    during: Callable[[str, float], None] = lambda _node, _timeout_s: None
    calls: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    _rpcs: dict[str, NodeRpc] = field(default_factory=dict)

    def of(self, cell: Cell) -> NodeRpc:
        if cell.uuid not in self._rpcs:
            self._rpcs[cell.uuid] = NodeRpc(self, NodeStateCache(MemoryStore(600)))
        return self._rpcs[cell.uuid]

    def call(
        self,
        node: AgentNode,
        name: str,
        arguments: Mapping[str, Any],
        *,
        timeout_s: float,
        key: str | None = None,
        order: int | None = None,
    ) -> NodeResult:
        if name != "node_snapshot":
            return NodeResult(node.name, name)
        request = arguments["request"]
        self.calls.append((node.name, tuple(sorted(request))))
        self.during(node.name, timeout_s)
        if node.name in self.failing:
            return failure(node.name, name, self.failing[node.name])
        found: dict[str, Any] = {}
        if CACHE_REQ_HV in request:
            data = {NODE_DATA: self.nodes.get(node.name, NODE), INSTANCES_DATA: self.guests.get(node.name, {})}
            nothing: dict[str, Any] = {NODE_DATA: {}, INSTANCES_DATA: {}}
            found[CACHE_REQ_HV] = {name: data if name == "fake" else nothing for name, _ in request[CACHE_REQ_HV]}
        if CACHE_REQ_DISKINFO in request:
            found[CACHE_REQ_DISKINFO] = {"xenvg": {"vg_size": 5000, "vg_free": 3000}}
        if CACHE_REQ_BOOTID in request:
            found[CACHE_REQ_BOOTID] = f"boot of {node.name}"
        return NodeResult(node.name, name, payload=found)

    def called(self) -> set[str]:
        """The nodes that were called, and that is forgotten."""
        found = {node for node, _ in self.calls}
        self.calls.clear()
        return found

    def close(self) -> None:
        for rpc in self._rpcs.values():
            rpc.close()
