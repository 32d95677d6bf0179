"""`scripts/bench cache`: what the state of a node costs: three calls, one snapshot, and what is remembered.

The agent is a process of its own, with 1,000 instances, called over TLS on the loopback address. With the figures of
the source document a connection takes 100 ms, a partial call 33 ms and a snapshot 1.8 times that
(contracts/ganeti-node-state-cache, 1); without them everything takes what it takes.
"""

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from socket import socket
from typing import Any
from uuid import uuid4

from bench import live_lists
from bench.faults.proxy import TcpProxy
from bench.measure import Figure, at_most, figure, seconds
from fleetlight.manager.agents.certificates import Pair, Role, issue, new_authority
from fleetlight.manager.agents.database import AgentDatabase
from fleetlight.manager.agents.drivers.simulated import BEHAVIOUR_FILE, HostSize, SimulatedDriver
from fleetlight.manager.agents.tls import TlsFiles
from fleetlight.manager.operations.nodes.cache import NodeStateCache
from fleetlight.manager.operations.nodes.client import AgentClient
from fleetlight.manager.operations.nodes.model import AgentNode
from fleetlight.manager.operations.nodes.requests import NodeStateRequest
from fleetlight.manager.operations.nodes.rpc import NodeRpc
from fleetlight.manager.operations.nodes.stores.redis import RedisStore
from fleetlight.manager.operations.nodes.stores.store import Store
from scripts.servers.process import free_port
from tests.support.memory.memory_store import MemoryStore
from tests.support.waiting import wait_until

_INSTANCES = 1000
_TTL_S = 600.0
_SET_UP_S, _PARTIAL_S, _SNAPSHOT_S = 0.1, 0.033, 0.033 * 1.8
_BEHAVIOUR = f'{{"node_snapshot": {{"delay_s": {_SNAPSHOT_S}}}, "*": {{"delay_s": {_PARTIAL_S}}}}}'
_EVERYTHING = NodeStateRequest((("fake", {}),), ("xenvg",), boot_id=True)
_THREE_CALLS: Mapping[str, dict[str, Any]] = {
    "node_info": {"storage_units": [["lvm-vg", "xenvg", []]], "hv_specs": [["fake", {}]]},
    "instance_info": {"instance": "instance0", "hname": "fake"},
    "all_instances_info": {"hypervisor_list": ["fake"]},
}


def run(directory: Path, quick: bool) -> Iterator[Figure]:
    """quick: 20 runs instead of 200."""
    runs = 20 if quick else 200
    authority = new_authority("one", _now())
    files = {role: _files(directory, role, authority) for role in Role}
    folder = directory / "agent"
    _fill(folder)
    with _agent(folder, files[Role.AGENT]) as port:
        yield from _with_the_figures_of_the_document(folder, files[Role.WORKER], port, runs)
        (folder / BEHAVIOUR_FILE).unlink()
        yield from _as_it_is(files[Role.WORKER], port, runs)
    lists = directory / "lists"
    lists.mkdir()
    yield from live_lists.run(lists, min(runs, 50))


def _with_the_figures_of_the_document(folder: Path, files: TlsFiles, port: int, runs: int) -> Iterator[Figure]:
    (folder / BEHAVIOUR_FILE).write_text(_BEHAVIOUR)
    proxy = _SlowToConnect("127.0.0.1", port)
    node = AgentNode("node1", f"127.0.0.1:{proxy.port}")
    what = f"a connection takes 100 ms, a partial call 33, a snapshot 1.8 times that; {_INSTANCES} instances"
    try:
        three_s = _median(partial(_call, files, node, *_THREE_CALLS), runs)
        snapshot_s = _median(partial(_call, files, node, "node_snapshot"), runs)
    finally:
        proxy.close()
    yield figure("cache.document.three_calls", three_s * 1000, "ms", f"{what}, each on a new connection", runs=runs)
    yield figure("cache.document.snapshot", snapshot_s * 1000, "ms", f"{what}, on a new connection", runs=runs)
    handlers = (snapshot_s - _SET_UP_S) / (three_s / 3 - _SET_UP_S)
    yield figure("cache.document.handlers", handlers, "ratio", "a snapshot to a partial call, on the node", runs=runs)
    hit_s = yield from _hits("memory", MemoryStore(_TTL_S), files, AgentNode("node1", f"127.0.0.1:{port}"), runs)
    of = "a hit to a snapshot call"
    yield figure("cache.document.hit.cost", hit_s / snapshot_s, "ratio", of, runs=runs, goal=at_most(0.01))


def _as_it_is(files: TlsFiles, port: int, runs: int) -> Iterator[Figure]:
    node = AgentNode("node1", f"127.0.0.1:{port}")
    with closing(AgentClient(files)) as client:
        single_s = {name: _median(partial(_ask, client, node, name), runs) for name in _THREE_CALLS}
        snapshot_s = _median(lambda: _ask(client, node, "node_snapshot"), runs)
        opened = client.opened_connections
    new_s = _median(lambda: _call(files, node, "node_snapshot"), runs)
    what = f"{_INSTANCES} instances, loopback, nothing added"
    yield figure("cache.plain.three_calls", sum(single_s.values()) * 1000, "ms", f"{what}, one connection", runs=runs)
    yield figure("cache.plain.snapshot", snapshot_s * 1000, "ms", f"{what}, one connection", runs=runs)
    yield figure("cache.plain.snapshot.new_connection", new_s * 1000, "ms", f"{what}, with its handshake", runs=runs)
    combined = snapshot_s / max(single_s.values())
    of = f"{what}: a snapshot to the longest single call"
    yield figure("cache.plain.combined", combined, "ratio", of, runs=runs, goal=at_most(1.3))
    calls = f"connections that {4 * runs} calls have opened"
    yield figure("cache.plain.connections", opened, "connections", calls, runs=1, goal=at_most(1))
    if url := os.environ.get("FLEETLIGHT_TEST_REDIS_URL"):
        yield from _hits("redis", RedisStore(url, uuid4().hex, _TTL_S), files, node, runs)


def _hits(name: str, store: Store, files: TlsFiles, node: AgentNode, runs: int) -> Generator[Figure, None, float]:
    """What is remembered; returns the seconds of a hit."""
    with closing(AgentClient(files)) as client, closing(NodeRpc(client, NodeStateCache(store))) as rpc:
        rpc.node_snapshot([node], _EVERYTHING)
        opened = client.opened_connections
        hit_s = _median(lambda: rpc.node_snapshot([node], _EVERYTHING), runs)
        opened = client.opened_connections - opened
    what = f"everything about a node with {_INSTANCES} instances"
    yield figure(f"cache.{name}.hit", hit_s * 1000, "ms", what, runs=runs, goal=at_most(5))
    yield figure(f"cache.{name}.hit.connections", opened, "connections", "to the node", runs=1, goal=at_most(0))
    return hit_s


def _call(files: TlsFiles, node: AgentNode, *names: str) -> None:
    """Calls one after the other, each on a connection of its own."""
    for name in names:
        with closing(AgentClient(files)) as client:
            _ask(client, node, name)


def _ask(client: AgentClient, node: AgentNode, name: str) -> None:
    arguments = _THREE_CALLS.get(name) or {"request": _EVERYTHING.to_json()}
    result = client.call(node, name, arguments, timeout_s=60)
    assert not result.has_failed, result.fail_msg


def _median(action: Callable[[], object], runs: int) -> float:
    action()
    return statistics.median(seconds(action) for _ in range(runs))


class _SlowToConnect(TcpProxy):
    """Takes as long to connect as a handshake over a network does."""

    def _connect(self, client: socket) -> None:
        time.sleep(_SET_UP_S)
        super()._connect(client)


def _fill(folder: Path) -> None:
    """The instances of the host, as an agent would have left them there."""
    with closing(AgentDatabase(folder)) as database, database.transaction():
        driver = SimulatedDriver(database, folder, HostSize(memory_mib=_INSTANCES))
        for number in range(_INSTANCES):
            driver.start("fake", f"instance{number}", memory=1, vcpus=1)


@contextmanager
def _agent(folder: Path, files: TlsFiles) -> Iterator[int]:
    """`fleetlight node-agent` on the folder; gives its port."""
    port = free_port()
    command = [str(Path(sys.executable).with_name("fleetlight")), "node-agent", "node1", "--host", "127.0.0.1"]
    command += [
        "--port",
        str(port),
        "--folder",
        str(folder),
        "--memory",
        "1G",
        "--certificate",
        str(files.certificate),
    ]
    command += ["--key", str(files.key), "--trusted", str(files.trusted)]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stderr=log)
    try:
        wait_until(lambda: b"agent.ready" in (folder / "log").read_bytes() or process.poll() is not None)
        yield port
    finally:
        process.terminate()
        process.wait(30)


def _files(directory: Path, role: Role, authority: Pair) -> TlsFiles:
    name = {Role.AGENT: "node1", Role.WORKER: "worker1"}[role]
    files = TlsFiles(directory / f"{name}.pem", directory / f"{name}.key", directory / "authority.pem")
    pair = issue(authority, role, name, _now())
    for path, content in ((files.certificate, pair.certificate), (files.key, pair.key)):
        path.write_bytes(content)
    files.trusted.write_bytes(authority.certificate)
    return files


def _now() -> datetime:
    return datetime.now(UTC)
