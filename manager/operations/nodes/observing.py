"""One observation of the nodes of a cell that have an agent, and of their instances.

It calls only the named nodes, concurrently, and none of them twice. It looks up the cached guests of other nodes
without calling these.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import structlog

from fleetlight.cells.kinds.native.agent_addresses import AgentAddress
from fleetlight.cells.model import Cell
from fleetlight.manager.agents.wire import CACHE_REQ_BOOTID, CACHE_REQ_DISKINFO, CACHE_REQ_HV, NODE_DATA
from fleetlight.manager.operations.nodes.errors import NoCertificateError
from fleetlight.manager.operations.nodes.model import NodeResult, failure
from fleetlight.manager.operations.nodes.opening import NodeRpcs, node_of
from fleetlight.manager.operations.nodes.requests import HypervisorSpec, NodeStateRequest
from fleetlight.manager.operations.nodes.rpc import NodeRpc
from fleetlight.manager.operations.nodes.wrappers import all_instances_info, instances_in, remembered_instances_info
from fleetlight.resources.fields import Record
from fleetlight.resources.query_fields.cluster_parameters import Parameters
from fleetlight.resources.query_fields.definitions import ResultStatus
from fleetlight.resources.query_fields.instance_status import Seen, may_shut_down, runs
from fleetlight.resources.query_fields.node_live import BOOT_ID, LIVE_FIELDS, OF_HYPERVISOR, OF_STORAGE

_log = structlog.get_logger(__name__)

Guest = Mapping[str, Any]
"""A node's report about an instance (contracts/ganeti-node-state-cache, 8)."""

# The status of values about room for instances, on a node that may have none.
_NOT_CAPABLE = ResultStatus.UNAVAILABLE


def observer_of(
    rpcs: NodeRpcs, cell: Cell, agents: Iterable[AgentAddress], cluster: Parameters, timeout_s: float
) -> "NodeObserver | None":
    """Make a NodeObserver; None, with a log event, if this process has no certificate for the agents."""
    try:
        return NodeObserver(rpcs.of(cell), agents, cluster, timeout_s=timeout_s)
    except NoCertificateError as error:
        _log_missing(cell.name, error.reason)
        return None


@lru_cache(maxsize=4096)
def _log_missing(cell: str, reason: str) -> None:
    """Log a missing certificate once for each cell, since every list meets it again."""
    _log.warning("nodes.cannot_be_asked", cell=cell, reason=reason)


class NodeObserver:
    """Asks the nodes of one cell for one answer. Calls block, and come one after the other.

    agents: of the cell. cluster: its configuration. timeout_s: time limit of a node, after which it counts as silent.
    """

    def __init__(
        self,
        rpc: NodeRpc,
        agents: Iterable[AgentAddress],
        cluster: Parameters,
        *,
        timeout_s: float,
        bypass: bool = False,
    ) -> None:
        self._rpc = rpc
        self._agents = {agent.node: agent for agent in agents}
        self._cluster = cluster
        self._timeout_s = timeout_s
        self._guests: dict[str, NodeResult] = {}
        self._running: dict[str, Guest] = {}
        self._remembered: Mapping[str, Mapping[str, Guest]] | None = None

    @property
    def nodes(self) -> Collection[str]:
        """Return the names of the nodes that can be asked."""
        return self._agents.keys()

    def refresh(self, nodes: Collection[str], *, bypass: bool) -> Mapping[str, NodeResult]:
        """Ask nodes for their whole state, and cache it; returns the results. bypass: ask even if it is cached.

        A node that may have no instances is only asked for its boot id.
        """
        hypervisors = self._hypervisors()
        everything = NodeStateRequest(tuple(hypervisors), self._groups(), boot_id=True)
        agents = [self._agents[name] for name in nodes]
        requests = {
            node_of(agent): everything if agent.is_vm_capable else NodeStateRequest(boot_id=True) for agent in agents
        }
        results = self._rpc.node_snapshots(requests, bypass=bypass, timeout_s=self._timeout_s)
        capable = {agent.node: results[agent.node] for agent in agents if agent.is_vm_capable}
        self._note(instances_in([name for name, _ in hypervisors], capable))
        return results

    def node_values(self, nodes: Collection[str], fields: Collection[str]) -> Mapping[str, Record]:
        """Return the values of LIVE_FIELDS by node, asking for those in `fields`; leaves out nodes without agent.

        A ResultStatus replaces the values of a node that is offline, or fails.
        """
        known = [self._agents[name] for name in nodes if name in self._agents]
        wanted = LIVE_FIELDS.intersection(fields)
        whole, bare = self._request(wanted), self._request(wanted & {BOOT_ID})
        requests = {node_of(agent): whole if agent.is_vm_capable else bare for agent in known}
        results = self._rpc.node_snapshots(requests, timeout_s=self._timeout_s)
        return {agent.node: _values(results[agent.node], agent, wanted) for agent in known}

    def seen(self, records: Sequence[Record]) -> Sequence[Seen | None]:
        """Return the reports of nodes about instances; None for an instance without node, or whose node has no agent.

        records: with OBSERVED_FIELDS.
        """
        places = [_place(record) for record in records]
        self._ask({place for place in places if place in self._agents})
        found = [
            None if place is None or place not in self._agents else self._seen_of(record, place)
            for place, record in zip(places, records, strict=True)
        ]
        missing = {
            record["uuid"]
            for record, seen in zip(records, found, strict=True)
            if seen is not None and not seen.is_offline and not runs(seen.guest)
        }
        elsewhere = self._elsewhere(missing)
        return [
            seen if seen is None or runs(seen.guest) else seen._replace(elsewhere=elsewhere.get(record["uuid"]))
            for record, seen in zip(records, found, strict=True)
        ]

    def _request(self, fields: Collection[str]) -> NodeStateRequest:
        """Make a request for the sources of these fields."""
        return NodeStateRequest(
            tuple(self._hypervisors()) if not OF_HYPERVISOR.keys().isdisjoint(fields) else None,
            self._groups() if not OF_STORAGE.keys().isdisjoint(fields) else None,
            BOOT_ID in fields,
            with_instances=False,
        )

    def _groups(self) -> tuple[str, ...]:
        group = self._cluster["volume_group_name"]
        return (group,) if group else ()

    def _ask(self, nodes: Collection[str]) -> None:
        """Ask these nodes for their guests, except nodes that were asked already."""
        agents = [self._agents[name] for name in sorted(nodes) if name not in self._guests]
        if not agents:
            return
        hypervisors = self._hypervisors()
        results = all_instances_info(
            self._rpc,
            [node_of(agent) for agent in agents],
            [name for name, _ in hypervisors],
            dict(hypervisors),
            timeout_s=self._timeout_s,
        )
        self._note(results)

    def _note(self, results: Mapping[str, NodeResult]) -> None:
        for name, result in results.items():
            self._guests[name] = _checked(result)
            self._running |= _running_guests(self._guests[name])

    def _elsewhere(self, uuids: Collection[str]) -> Mapping[str, Guest]:
        """Return the reports about instances by other nodes that run them, if these were asked or are cached."""
        if self._running.keys() >= set(uuids):
            return self._running
        if self._remembered is None:
            others = [node_of(agent) for name, agent in self._agents.items() if name not in self._guests]
            hypervisors = self._hypervisors()
            found = remembered_instances_info(self._rpc, others, [name for name, _ in hypervisors], dict(hypervisors))
            self._remembered = {name: _running_guests(_checked(result)) for name, result in found.items()}
        # A node that was asked meanwhile overrides its cached state.
        still = (guests for name, guests in self._remembered.items() if name not in self._guests)
        return {**{uuid: guest for guests in still for uuid, guest in guests.items()}, **self._running}

    def _seen_of(self, record: Record, node: str) -> Seen:
        result = self._guests[node]
        if result.offline:
            return Seen(is_offline=True)
        if result.has_failed:
            return Seen(has_failed=True)
        guest = result.payload.get(record["uuid"])
        return Seen(guest=guest, may_shut_down=may_shut_down(record, self._cluster))

    def _hypervisors(self) -> Sequence[HypervisorSpec]:
        parameters = self._cluster["hvparams"]
        return [(name, parameters.get(name) or {}) for name in self._cluster["enabled_hypervisors"]]


def _place(record: Record) -> str | None:
    """Return the node on which an instance should be; None for a reservation, or a deleted instance."""
    return None if record["forthcoming"] or record["deleted"] else record["node"]


def _checked(result: NodeResult) -> NodeResult:
    """Return the result, or a failure if a report about an instance is malformed."""
    if result.has_failed or all(isinstance(guest, dict) for guest in result.payload.values()):
        return result
    return failure(result.node, result.call, "RPC layer error: an instance is no object", result.data)


def _running_guests(result: NodeResult) -> Mapping[str, Guest]:
    if result.has_failed:
        return {}
    return {name: guest for name, guest in result.payload.items() if runs(guest)}


def _values(result: NodeResult, agent: AgentAddress, wanted: Collection[str]) -> Record:
    """Return the live fields of a node's record; fields that the answer lacks get a ResultStatus."""
    if result.offline:
        return dict.fromkeys(wanted, ResultStatus.OFFLINE)
    lacking = ResultStatus.NO_DATA if agent.is_vm_capable else _NOT_CAPABLE
    said: Record = {} if result.has_failed else result.payload
    of_hypervisor, of_group = _data_of_hypervisor(said.get(CACHE_REQ_HV)), _data_of_group(said.get(CACHE_REQ_DISKINFO))
    values: dict[str, Any] = {}
    for name in wanted:
        if name in OF_HYPERVISOR:
            value, otherwise = of_hypervisor.get(OF_HYPERVISOR[name]), lacking
        elif name in OF_STORAGE:
            value, otherwise = of_group.get(OF_STORAGE[name]), lacking
        else:
            value, otherwise = said.get(CACHE_REQ_BOOTID), ResultStatus.NO_DATA
        values[name] = otherwise if value is None else value
    return values


def _data_of_hypervisor(said: Mapping[str, Any] | None) -> Record:
    """Return the report of the first hypervisor that is enabled in the cell and present on the host."""
    for of_one in (said or {}).values():
        if of_one[NODE_DATA]:
            data: Record = of_one[NODE_DATA]
            return data
    return {}


def _data_of_group(said: Mapping[str, Any] | None) -> Record:
    """Return the report about the only volume group."""
    for of_one in (said or {}).values():
        if isinstance(of_one, dict):
            return of_one
    return {}
