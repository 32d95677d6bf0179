"""Nodes that a test plays: their state is a number, which each change of them counts up."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fleetlight.manager.agents.wire import INSTANCES_DATA, NODE_DATA
from fleetlight.manager.operations.nodes.model import AgentNode, NodeResult, failure


def hypervisor_data(version: int) -> dict[str, Any]:
    """What a hypervisor says in the state `version`."""
    guest = {"memory": 1024, "vcpus": 1, "state": 0, "time": float(version)}
    return {NODE_DATA: {"memory_free": version}, INSTANCES_DATA: {"web": guest}}


@dataclass
class PlayedNodes:
    """A client whose nodes answer at once. calls: of whom, what, with which arguments.

    versions: the state of each. failing: what is said instead of an answer. during: called in the middle of each call.
    """

    versions: dict[str, int] = field(default_factory=dict)
    failing: dict[str, str] = field(default_factory=dict)
    calls: list[tuple[str, str, Mapping[str, Any]]] = field(default_factory=list)
    during: Callable[[str, str], None] = lambda _node, _name: None
    volume_groups: Mapping[str, Any] = field(default_factory=lambda: {"xenvg": {"vg_size": 1000, "vg_free": 400}})
    change: Callable[[Any], Any] = lambda payload: payload

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
        self.calls.append((node.name, name, arguments))
        version = self.versions.get(node.name, 0)
        self.during(node.name, name)
        if node.name in self.failing:
            text = self.failing[node.name]
            return failure(node.name, name, text, is_timeout="within" in text)
        if name == "node_snapshot":
            return NodeResult(node.name, name, payload=self.change(self.snapshot(version, arguments["request"])))
        self.versions[node.name] = version + 1
        return NodeResult(node.name, name)

    def snapshot(self, version: int, request: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        if "hv" in request:
            found["hv"] = {name: hypervisor_data(version) for name, _ in request["hv"]}
        if "diskinfo" in request:
            missing = {"vg_size": None, "vg_free": None}
            found["diskinfo"] = {name: self.volume_groups.get(name, missing) for name in request["diskinfo"]}
        if "bootid" in request:
            found["bootid"] = f"boot {version}"
        return found

    def called(self) -> list[str]:
        """The nodes that were asked for snapshots, and that is forgotten."""
        found = [node for node, name, _ in self.calls if name == "node_snapshot"]
        self.calls.clear()
        return found


class ManualClock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s
