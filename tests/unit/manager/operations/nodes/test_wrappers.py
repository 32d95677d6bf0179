"""The three old calls, made of a snapshot, answer what the agent itself answers to them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fleetlight.manager.agents.agent import Agent
from fleetlight.manager.agents.calls import LVM, storage_units
from fleetlight.manager.agents.drivers.simulated import HostSize
from fleetlight.manager.agents.errors import CallRefusedError
from fleetlight.manager.agents.wire import CallRequest
from fleetlight.manager.operations.nodes.cache import NodeStateCache
from fleetlight.manager.operations.nodes.model import AgentNode, NodeResult, failure
from fleetlight.manager.operations.nodes.rpc import NodeRpc
from fleetlight.manager.operations.nodes.wrappers import all_instances_info, instance_info, node_info
from tests.support.memory.memory_store import MemoryStore
from tests.support.played.agents import simulated_agent
from tests.support.played.played_nodes import PlayedNodes

N1, N2 = AgentNode("node1", "10.0.0.1"), AgentNode("node2", "10.0.0.2")
SPECS: Any = [("fake", {})]
UNITS: Any = storage_units(["xenvg", "vg9"])


class AgentsInProcess:
    """A client that calls agents as functions. calls: what was called."""

    def __init__(self, agents: dict[str, Agent]) -> None:
        self._agents = agents
        self.calls: list[str] = []

    def call(self, node: AgentNode, name: str, arguments: Any, *, timeout_s: float, **of_change: Any) -> NodeResult:
        self.calls.append(name)
        try:
            succeeded, payload = self._agents[node.name].call(name, CallRequest(arguments=arguments, **of_change))
        except CallRefusedError as error:
            return failure(node.name, name, str(error))
        return NodeResult(node.name, name, payload=payload) if succeeded else failure(node.name, name, payload)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[AgentsInProcess]:
    made = {name: simulated_agent(name, tmp_path / name, HostSize(8, 4096, 10_000)) for name in ("node1", "node2")}
    yield AgentsInProcess({name: agent for name, (agent, _, _) in made.items()})
    for _, _, database in made.values():
        database.close()


@pytest.fixture
def rpc(client: AgentsInProcess) -> Iterator[NodeRpc]:
    rpc = NodeRpc(client, NodeStateCache(MemoryStore(600)))
    for number, name in enumerate(["web", "db"]):
        guest = {"instance": name, "hypervisor": "fake", "memory": 1024 * (number + 1), "vcpus": 1}
        rpc.call([N1], "instance_start", guest)
    rpc.call([N2], "blockdev_create", {"volume_group": "xenvg", "name": "disk0", "size": 10})
    client.calls.clear()
    yield rpc
    rpc.close()


def without_time(payload: Any) -> Any:
    """A payload without the processor time, which goes on between two calls."""
    if isinstance(payload, dict):
        return {key: without_time(value) for key, value in payload.items() if key != "time"}
    return payload


def asked(rpc: NodeRpc, name: str, arguments: Any) -> dict[str, Any]:
    """What the nodes say to the old call itself."""
    return {node: without_time(result.payload) for node, result in rpc.call([N1, N2], name, arguments).items()}


@pytest.mark.parametrize("units", [None, [], UNITS], ids=["none", "no units", "units"])
@pytest.mark.parametrize("specs", [None, [], SPECS], ids=["none", "no hypervisors", "hypervisors"])
def test_node_info_is_what_the_node_says(rpc: NodeRpc, client: AgentsInProcess, units: Any, specs: Any) -> None:
    results = node_info(rpc, [N1, N2], units, specs)
    assert client.calls == ["node_snapshot"] * 2
    said = asked(rpc, "node_info", {"storage_units": units, "hv_specs": specs})
    assert {node: result.payload for node, result in results.items()} == said
    assert {result.call for result in results.values()} == {"node_info"}


def test_all_instances_info_is_what_the_node_says(rpc: NodeRpc) -> None:
    results = all_instances_info(rpc, [N1, N2], ["fake"], {})
    said = asked(rpc, "all_instances_info", {"hypervisor_list": ["fake"]})
    assert {node: without_time(result.payload) for node, result in results.items()} == said
    assert set(said["node1"]) == {"web", "db"}
    assert all(isinstance(guest["time"], float) for guest in results["node1"].payload.values())


@pytest.mark.parametrize("instance", ["web", "nobody"])
def test_instance_info_is_what_the_node_says(rpc: NodeRpc, instance: str) -> None:
    result = instance_info(rpc, N1, instance, "fake", {})
    said = rpc.call_one(N1, "instance_info", {"instance": instance, "hname": "fake"})
    assert without_time(result.payload) == without_time(said.payload)
    assert result.call == "instance_info"


def test_one_snapshot_serves_all_three(rpc: NodeRpc, client: AgentsInProcess) -> None:
    node_info(rpc, [N1], UNITS, SPECS)
    client.calls.clear()
    node_info(rpc, [N1], UNITS[:1], SPECS)
    all_instances_info(rpc, [N1], ["fake"], {})
    assert instance_info(rpc, N1, "nobody", "fake", {}).payload == {}
    assert client.calls == []


@pytest.mark.parametrize("options", [{"use_cache": False}, {"bypass": True}], ids=str)
def test_each_call_can_pass_the_cache_by(rpc: NodeRpc, client: AgentsInProcess, options: Any) -> None:
    calls: list[Callable[[], object]] = [
        lambda: node_info(rpc, [N1], UNITS, SPECS, **options),
        lambda: all_instances_info(rpc, [N1], ["fake"], {}, **options),
        lambda: instance_info(rpc, N1, "web", "fake", {}, **options),
    ]
    for call in [*calls, *calls]:
        call()
    assert client.calls == ["node_snapshot"] * 6


def test_units_may_differ_by_node(rpc: NodeRpc) -> None:
    results = node_info(rpc, [N1, N2], {"node1": UNITS[:1], "node2": []}, None)
    group = {"type": LVM, "name": "xenvg", "storage_free": 10_000, "storage_size": 10_000}
    assert [result.payload[1] for result in results.values()] == [[group], []]


def test_units_of_other_types_are_asked_of_the_node(rpc: NodeRpc, client: AgentsInProcess) -> None:
    units: Any = [("file", "/srv", []), *UNITS[:1], ("rados", "pool", [])]
    for _ in range(2):
        client.calls.clear()
        payload = node_info(rpc, [N1], units, None)["node1"].payload
        assert [(unit["type"], unit["storage_size"]) for unit in payload[1]] == [
            ("file", None),
            (LVM, 10_000),
            ("rados", None),
        ]
        assert client.calls[-1] == "node_info"
    assert client.calls == ["node_info"]


def test_instance_under_two_hypervisors_with_other_parameters_is_a_failure() -> None:
    nodes = PlayedNodes()

    def differ(payload: Any) -> Any:
        payload["hv"]["two"]["instances"]["web"]["memory"] += 1
        return payload

    rpc = NodeRpc(nodes, NodeStateCache(MemoryStore(600)))
    assert all_instances_info(rpc, [N1], ["one", "two"], {})["node1"].fail_msg is None
    nodes.change = differ
    result = all_instances_info(rpc, [N1], ["one", "two"], {}, bypass=True)["node1"]
    assert result.fail_msg == "Instance web is running twice with different parameters"


def test_what_fails_fails_under_the_name_of_the_call() -> None:
    offline = AgentNode("node1", "10.0.0.1", is_offline=True)
    rpc = NodeRpc(PlayedNodes(failing={"node2": "the hypervisor is away"}), NodeStateCache(MemoryStore(600)))
    results = node_info(rpc, [offline, N2], None, [("xen", {})])
    assert [(result.call, result.offline, result.fail_msg) for result in results.values()] == [
        ("node_info", True, "Node is marked offline"),
        ("node_info", False, "the hypervisor is away"),
    ]


def test_node_that_leaves_something_out_is_a_failure() -> None:
    nodes = PlayedNodes(change=lambda payload: {"hv": payload["hv"]})
    rpc = NodeRpc(nodes, NodeStateCache(MemoryStore(600)))
    result = node_info(rpc, [N1], None, SPECS)["node1"]
    assert result.fail_msg == "RPC layer error: the node did not send all that it was asked for"


@pytest.mark.parametrize("payload", [["boot", []], ["boot"], [], {}, None, "x"], ids=repr)
def test_node_that_says_nothing_of_a_unit_is_a_failure(payload: Any) -> None:
    class Nodes(PlayedNodes):
        def call(self, node: AgentNode, name: str, arguments: Any, **options: Any) -> NodeResult:
            if name == "node_info":
                return NodeResult(node.name, name, payload=payload)
            return super().call(node, name, arguments, **options)

    rpc = NodeRpc(Nodes(), NodeStateCache(MemoryStore(600)))
    result = node_info(rpc, [N1], [("file", "/srv", [])], None)["node1"]
    assert result.fail_msg == "RPC layer error: the node did not send all that it was asked for"
