"""A cell whose hosts have simulated agents that are called as functions, and a worker that may be killed.

The connection is played: it can lose calls, and answers, at a place that a test names.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, select

from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.model import NO_REQUEST, Cell
from fleetlight.cells.settings import NodesSettings
from fleetlight.cells.tables import instances, job_locks
from fleetlight.manager.agents.agent import Agent
from fleetlight.manager.agents.drivers.simulated import BEHAVIOUR_FILE, HostSize, SimulatedDriver
from fleetlight.manager.agents.errors import CallRefusedError
from fleetlight.manager.agents.wire import CallRequest
from fleetlight.manager.operations.cell_worker import SimulatedHosts
from fleetlight.manager.operations.hosts.agent_addresses import AgentAddresses
from fleetlight.manager.operations.jobs.worker import Worker
from fleetlight.manager.operations.nodes.cache import NodeStateCache
from fleetlight.manager.operations.nodes.cell_hosts import CellHosts
from fleetlight.manager.operations.nodes.model import AgentNode, NodeResult, failure
from fleetlight.manager.operations.nodes.opening import NodeRpcs
from fleetlight.manager.operations.nodes.rpc import NodeRpc
from fleetlight.manager.operations.nodes.stores.store import Store
from fleetlight.manager.operations.opcodes.opcode import OpCode
from fleetlight.manager.operations.submitting import JobSubmission
from fleetlight.manager.operations.vocabulary import ALL_OPERATIONS
from tests.support.fleets.acting_cell import FLAVOR, REQUEST, ActingCell
from tests.support.memory.memory_store import MemoryStore
from tests.support.played.agents import simulated_agent
from tests.support.played.played_nodes import ManualClock

GIB = 1024
SIZE = HostSize(vcpus=64, memory_mib=64 * GIB, disk_mib=2000 * GIB)
# An instance with its disks on two hosts, as the remote API is asked for it.
MIRRORED: Mapping[str, Any] = {
    "instance_name": "web1",
    "mode": "create",
    "disk_template": "drbd",
    "disks": [{"size": 2048}],
    "nics": [{}],
    "hypervisor": "fake",
    "os_type": "debian-12",
    "pnode": "host1.example.org",
    "snode": "host2.example.org",
}


_TABLES = ("guests", "volumes", "done_calls", "begun_orders")


class PlayedConnection:
    """Calls agents by their nodes. before, behind: called around each call; they may raise, or say what fails."""

    def __init__(self, agents: dict[str, Agent]) -> None:
        self.agents = agents
        self.before: Callable[[str, str], str | None] = _not_lost
        self.behind: Callable[[str, str], str | None] = _not_lost
        self.made: list[tuple[str, str]] = []
        self.keys: list[str | None] = []

    def call(
        self,
        node: AgentNode,
        name: str,
        arguments: Any,
        *,
        timeout_s: float,
        key: str | None = None,
        order: int | None = None,
    ) -> NodeResult:
        if lost := self.before(node.name, name):
            return failure(node.name, name, lost)
        self.made.append((node.name, name))
        self.keys.append(key)
        try:
            answer = list(self.agents[node.name].call(name, CallRequest(arguments=arguments, key=key, order=order)))
        except CallRefusedError as error:
            answer = [False, str(error)]
        if lost := self.behind(node.name, name):
            return failure(node.name, name, lost, is_timeout=True)
        succeeded, payload = answer
        if succeeded:
            return NodeResult(node.name, name, data=answer, payload=payload)
        return failure(node.name, name, payload, answer)

    @contextmanager
    def losing(self, where: str, number: int, what: type[BaseException] | str) -> Iterator[None]:
        """Lose the call with a number, counted from now, once: `before` or `behind` the agent has carried it out.

        what: raised, or said instead of an answer.
        """
        count = 0

        def lose(_node: str, _name: str) -> str | None:
            nonlocal count
            count += 1
            if count - 1 != number:
                return None
            if isinstance(what, str):
                return what
            raise what

        setattr(self, where, lose)
        try:
            yield
        finally:
            self.before = self.behind = _not_lost


def _not_lost(_node: str, _name: str) -> str | None:
    return None


class PlayedRpcs(NodeRpcs):
    """Those of a process whose connection is played."""

    def __init__(self, connection: PlayedConnection, store: Store | None = None, retry_s: float = 60.0) -> None:
        super().__init__(NodesSettings(retry_s=retry_s))
        self._rpc = NodeRpc(connection, NodeStateCache(store or MemoryStore(600)))

    def of(self, cell: Cell) -> NodeRpc:
        return self._rpc


class HostsWithAgents:
    """Agents of some hosts of a cell, whose nodes are called as in tests.support.fleets.acting_cell."""

    def __init__(self, engine: Engine, cell: Cell, hosts: Sequence[str], folder: Path) -> None:
        self._engine, self._cell, self._folder = engine, cell, folder
        self.clock = ManualClock()
        self.drivers: dict[str, SimulatedDriver] = {}
        agents: dict[str, Agent] = {}
        self._databases = []
        addresses = AgentAddresses(engine, cell)
        for host in hosts:
            node = f"{host}.example.org"
            agents[node], self.drivers[host], database = simulated_agent(node, folder / host, SIZE)
            self._databases.append(database)
            addresses.set(host, "127.0.0.1:1811")
        self.connection = PlayedConnection(agents)
        self.rpcs = PlayedRpcs(self.connection)

    def hosts(self, store: Store | None = None) -> CellHosts:
        """What a new worker calls hosts by."""
        if store is not None:
            self.rpcs = PlayedRpcs(self.connection, store)
        return CellHosts(self._engine, self._cell, self.rpcs, SimulatedHosts(), clock=self.clock)

    def refuse(self, host: str, call: str, reason: str) -> None:
        """Let a host fail what it is called for."""
        (self._folder / host / BEHAVIOUR_FILE).write_text(json.dumps({call: {"failure": reason}}))

    def behave(self, host: str) -> None:
        (self._folder / host / BEHAVIOUR_FILE).unlink()

    def rows(self) -> list[dict[str, list[tuple[Any, ...]]]]:
        """All that each host has, by tables."""
        found = []
        for database in self._databases:
            with database.transaction() as connection:
                found.append({table: connection.execute(f"SELECT * FROM {table}").fetchall() for table in _TABLES})  # noqa: S608
        return found

    def restore(self, rows: list[dict[str, list[tuple[Any, ...]]]]) -> None:
        """Let every host be as it was."""
        for database, of_host in zip(self._databases, rows, strict=True):
            with database.transaction() as connection:
                for table, kept in of_host.items():
                    connection.execute(f"DELETE FROM {table}")  # noqa: S608
                    for row in kept:
                        places = ", ".join("?" * len(row))
                        connection.execute(f"INSERT INTO {table} VALUES ({places})", row)  # noqa: S608

    def guests(self) -> dict[str, list[str]]:
        """The hosts that run each guest."""
        found: dict[str, list[str]] = {}
        for host, driver in self.drivers.items():
            for guest in driver.hypervisor("fake").guests:
                found.setdefault(guest, []).append(host)
        return found

    def free_mib(self) -> dict[str, int]:
        """What is free on the disks of each host."""
        return {host: driver.volume_groups()["xenvg"].free for host, driver in self.drivers.items()}

    def memory_mib(self) -> dict[str, int]:
        """What of the memory of each host is in use, for guests that are on their way too."""
        return {
            host: SIZE.memory_mib - driver.hypervisor("fake").node["memory_free"]
            for host, driver in self.drivers.items()
        }

    def close(self) -> None:
        for database in self._databases:
            database.close()


HOSTS = ("host1", "host2", "host3")


class AgentCell(ActingCell):
    """host1 to host3 have agents, host4 is simulated."""

    def __init__(self, engine: Engine, fleet: Fleet, cell: Cell, folder: Path) -> None:
        super().__init__(engine, fleet, cell, hosts=(*HOSTS, "host4"))
        self.agents = HostsWithAgents(engine, cell, HOSTS, folder)
        self.restart_worker()

    def restart_worker(self, store: MemoryStore | None = None) -> None:
        self.worker = Worker(
            self.engine, self.fleet, self.cell, ALL_OPERATIONS, self.agents.hosts(store), node_rest_s=0
        )

    def submit(self, opcode: OpCode) -> None:
        JobSubmission(self.engine, self.cell).submit([opcode], NO_REQUEST)

    def made(self, **parameters: Any) -> str:
        """An instance that was made on host1."""
        [row] = self.acceptance.create(
            [{"flavor": FLAVOR, "project_id": "demo"}], {"host": "host1", **parameters}, REQUEST
        )
        self.work()
        return row.uuid

    def fault(self, uuid: str) -> str:
        with self.engine.connect() as connection:
            fault = connection.scalar(select(instances.c.fault).where(instances.c.uuid == uuid))
        assert fault is not None
        return str(fault["message"])

    def locks(self) -> int:
        with self.engine.connect() as connection:
            return len(connection.execute(select(job_locks)).all())

    def waits(self) -> bool:
        """Whether there is a job that no worker can go on with now."""
        return not self.worker.run_once() and self.count_live_jobs() > 0
