"""Refresh of the state of a cell's nodes with agents, and comparison with the cell's rows.

It is the call of a step (fleetlight.manager.operations.jobs.nodes), made between two transactions and without locks.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Engine

from fleetlight.cells.kinds.native.agent_addresses import AgentAddress, read_agents
from fleetlight.cells.kinds.native.instance_rows import UNDECODABLE, dialect_of, fields_reader
from fleetlight.cells.kinds.native.items.cluster import read_parameters
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import instances
from fleetlight.manager.operations.jobs.errors import NodeAwayError
from fleetlight.manager.operations.jobs.nodes import NodeCall, Nodes
from fleetlight.manager.operations.nodes.differences import (
    NODE_DOWN,
    NODE_OFFLINE,
    NODE_UP,
    NodeStatus,
    Observation,
    read_known_instances,
)
from fleetlight.manager.operations.nodes.errors import NoCertificateError, StoreUnreachableError
from fleetlight.manager.operations.nodes.model import NodeResult
from fleetlight.manager.operations.nodes.observing import NodeObserver
from fleetlight.manager.operations.nodes.opening import NodeRpcs
from fleetlight.manager.operations.nodes.rpc import NodeRpc
from fleetlight.resources.fields import Record
from fleetlight.resources.query_fields.instance_status import ERRORS, OBSERVED_FIELDS, Seen, observed_status

REFRESH = "refresh"
"""The name of the call."""
ALL_NODES = "all nodes"
"""The host of this call, and of host_calls.FORGET for all nodes."""

# Short, since the worker's other jobs wait meanwhile; the next refresh asks a hanging node again.
_LIMIT_S = 10.0
_NO_AGENT = "has no agent"
_FIELDS = (*OBSERVED_FIELDS, "display_name", "project_id")


class RefreshingHosts:
    """Adds the call for all nodes to the calls of `hosts`.

    rpcs: this process's access to agents.
    """

    def __init__(self, engine: Engine, cell: Cell, rpcs: NodeRpcs, hosts: Nodes) -> None:
        self._engine = engine
        self._cell = cell
        self._rpcs = rpcs
        self._hosts = hosts

    def call(self, call: NodeCall, key: str) -> Any:
        if call.host != ALL_NODES:
            return self._hosts.call(call, key)
        return self._refresh(call) if call.name == REFRESH else self._forget()

    def _forget(self) -> None:
        """Drop the cached state of all nodes (contracts/ganeti-node-state-cache, 5). Raises NodeAwayError."""
        with self._engine.connect() as connection:
            has_agents = bool(read_agents(connection))
        if has_agents:
            try:
                self._rpc().cache.forget(None)
            except StoreUnreachableError as error:
                raise NodeAwayError(str(error)) from error

    def _refresh(self, call: NodeCall) -> Mapping[str, Any]:
        """Refresh, and return an Observation (operations.nodes.differences) as JSON. Raises NodeAwayError."""
        wanted: Sequence[str] = call.parameters["nodes"]
        with self._engine.connect() as connection:
            agents = {agent.node: agent for agent in read_agents(connection)}
            if not agents:
                return Observation([[name, False, _NO_AGENT] for name in wanted]).to_json()
            rpc = self._rpc()
            cluster = read_parameters(connection)
            # Read rows before asking nodes: a row with the same revision afterwards has not changed meanwhile.
            rows = list(_rows(connection, agents))
            known = read_known_instances(connection)
        observer = NodeObserver(rpc, agents.values(), cluster, timeout_s=_LIMIT_S)
        asked = [name for name in wanted or agents if name in agents]
        results = observer.refresh(asked, bypass=call.parameters["bypass"])
        told = [_told(name, results.get(name)) for name in wanted or asked if wanted or not agents[name].is_offline]
        nodes = {name: _status(result) for name, result in results.items()}
        judged = _judged(observer, results, agents, rows, known)
        return Observation(told, nodes, dict(judged), is_of_all=not wanted).to_json()

    def _rpc(self) -> NodeRpc:
        """Return the NodeRpc. Raises NodeAwayError without certificate, so that another worker carries the job out."""
        try:
            return self._rpcs.of(self._cell)
        except NoCertificateError as error:
            raise NodeAwayError(str(error)) from error


def _rows(connection: Connection, nodes: Collection[str]) -> Iterator[tuple[int, Record]]:
    """Yield revisions and records of the readable instances on these nodes."""
    reader = fields_reader(_FIELDS)
    statement = reader.statements[dialect_of(connection.engine)]
    of_nodes = statement.where(instances.c.node.in_(nodes), instances.c.deleted.is_(False))
    for revision, text, _ in connection.execute(of_nodes):
        try:
            yield revision, reader.record(text)
        except UNDECODABLE:
            continue  # lists report damaged rows


def _judged(
    observer: NodeObserver,
    results: Mapping[str, NodeResult],
    agents: Mapping[str, AgentAddress],
    rows: Sequence[tuple[int, Record]],
    known: Collection[str],
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield by uuid what is wrong with an instance, or no longer is; skips those whose node has not answered."""
    answered = {name for name, result in results.items() if not result.has_failed and agents[name].is_vm_capable}
    asked = [(revision, record) for revision, record in rows if record["node"] in answered]
    for (revision, record), seen in zip(asked, observer.seen([record for _, record in asked]), strict=True):
        if seen is None or seen.has_failed:
            continue
        status = _wrong(record, seen)
        if status is not None or record["uuid"] in known:
            yield (
                record["uuid"],
                {
                    "revision": revision,
                    "is_wrong": status is not None,
                    "status": observed_status(record, seen),
                    "node": record["node"],
                    "display_name": record["display_name"],
                    "project_id": record["project_id"],
                },
            )


def _wrong(record: Record, seen: Seen) -> str | None:
    status = observed_status(record, seen)
    return status if status in ERRORS else None


def _told(name: str, result: NodeResult | None) -> list[Any]:
    """Return `[node, ok, text]` for the result of the job."""
    if result is None:
        return [name, False, _NO_AGENT]
    return [name, not result.has_failed, result.fail_msg or ""]


def _status(result: NodeResult) -> tuple[NodeStatus, str | None]:
    if result.offline:
        return NODE_OFFLINE, None
    return (NODE_DOWN, result.fail_msg) if result.has_failed else (NODE_UP, None)
