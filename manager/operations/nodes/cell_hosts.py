"""The hosts of a native cell as its worker calls them: by their agents, or simulated if they have none.

The worker repeats a call with the same key until its outcome is known, or its time is over; meanwhile the job waits,
and others go on (docs/decisions/0022).
"""

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import structlog
from sqlalchemy import Engine

from fleetlight.cells.kinds.native.agent_addresses import AgentAddress
from fleetlight.cells.model import Cell
from fleetlight.manager.agents.rpcs import rpc as rpc_entry
from fleetlight.manager.operations.hosts.agent_addresses import AgentAddresses
from fleetlight.manager.operations.jobs.errors import NodeAwayError, NodeCallError
from fleetlight.manager.operations.jobs.nodes import NodeCall, Nodes
from fleetlight.manager.operations.nodes.errors import NodeError
from fleetlight.manager.operations.nodes.host_calls import FORGET, agent_calls, changes_several, needs_undo
from fleetlight.manager.operations.nodes.model import NodeResult
from fleetlight.manager.operations.nodes.opening import NodeRpcs, node_of
from fleetlight.manager.operations.nodes.rpc import NodeRpc
from fleetlight.manager.operations.nodes.stores.store import MonotonicClock

_log = structlog.get_logger(__name__)

# A longer call goes on, and the worker asks for it again later, since it has other jobs.
_ATTEMPT_S = 5.0
# Pauses between attempts at a silent host, since each may cost a connection timeout.
_FIRST_REST_S, _LONGEST_REST_S = 1.0, 30.0
# Limit on remembered calls, since other workers may have ended their jobs.
_REMEMBERED = 10_000


@dataclass(slots=True)
class _Attempts:
    """The attempts of a call. first_at: time of the first. rests_until: time of the next. rest_s: the last pause.

    reason: why the last attempt failed.
    """

    first_at: float
    rests_until: float = 0.0
    rest_s: float = 0.0
    reason: str | None = None


class CellHosts:
    """Calls hosts, from one thread at a time. simulated: carries out calls of hosts without agent.

    clock: monotonic seconds.
    """

    def __init__(
        self, engine: Engine, cell: Cell, rpcs: NodeRpcs, simulated: Nodes, *, clock: MonotonicClock = time.monotonic
    ) -> None:
        self._addresses = AgentAddresses(engine, cell)
        self._cell = cell
        self._rpcs = rpcs
        self._simulated = simulated
        self._clock = clock
        self._attempts: dict[str, _Attempts] = {}
        self._resting: dict[str, _Attempts] = {}

    def call(self, call: NodeCall, key: str) -> object:
        """Carry out a call, see Nodes.call. Raises NodeCallError, NodeAwayError, CellUnreachableError."""
        concerned = {call.host, *_others(call)}
        found = self._addresses.of(concerned)
        agents = {agent.node: agent for agent in found} | {agent.host: agent for agent in found}
        if not agents:
            return self._simulated.call(call, key)
        calls = agent_calls(call, agents)
        self._refuse_mixed(call, calls, agents)
        try:
            rpc = self._rpcs.of(self._cell)
            if call.name == FORGET:
                rpc.cache.forget([agent.node for agent in found])
            self._wait_for_resting(call, calls, agents, key)
            with self._of_several(rpc, call):
                for number, each in enumerate(calls):
                    self._make(rpc, call, each, agents[each.host], f"{key}/{number}")
        except NodeCallError:
            self._forget(key)
            raise
        except NodeError as error:
            # The jobs of this cell need it as much as the cell's database, and wait for it.
            self._tell_once(key, call, str(error))
            raise NodeAwayError(str(error)) from error
        self._forget(key)
        return None

    def _refuse_mixed(self, call: NodeCall, calls: Sequence[NodeCall], agents: Mapping[str, AgentAddress]) -> None:
        """Raise NodeCallError for calls that need agents on several hosts, if only some of them have one."""
        lacking = sorted({each.host for each in calls} - agents.keys())
        if lacking:
            [one, *_] = sorted({agent.host for agent in agents.values()})
            reason = f"host {lacking[0]} has no agent, and {one} has one"
            raise NodeCallError(call.host, call.name, reason)

    @contextmanager
    def _of_several(self, rpc: NodeRpc, call: NodeCall) -> Iterator[None]:
        if not changes_several(call):
            yield
            return
        with rpc.cache.changing_all(_ATTEMPT_S):
            yield

    def _wait_for_resting(
        self, call: NodeCall, calls: Sequence[NodeCall], agents: Mapping[str, AgentAddress], key: str
    ) -> None:
        """Raise NodeAwayError while a call rests; NodeCallError if its node was away for the whole time limit."""
        now = self._clock()
        for number, each in enumerate(calls):
            agent = agents[each.host]
            attempts = self._attempts.get(f"{key}/{number}")
            if attempts is not None and now < attempts.rests_until:
                raise NodeAwayError(f"{call.name} on {agent.node} is under way")
            resting = self._resting.get(agent.node)
            if resting is not None and now < resting.rests_until:
                # Each job has a time limit of its own, although only one of them tries the node.
                first_at = self._attempts.setdefault(f"{key}/{number}", _Attempts(now)).first_at
                if now - first_at >= self._rpcs.retry_s:
                    raise self._failure(call, each, agent, resting.reason, is_certain=False)
                raise NodeAwayError(f"{agent.node} is not called again yet")

    def _make(self, rpc: NodeRpc, call: NodeCall, each: NodeCall, agent: AgentAddress, key: str) -> None:
        """Make one call of one agent. Raises NodeCallError if it fails, and NodeAwayError if its outcome is unknown."""
        now = self._clock()
        limit_s = min(_ATTEMPT_S, rpc_entry(each.name).timeout_s)
        result = rpc.call_one(
            node_of(agent), each.name, each.parameters, timeout_s=limit_s, key=key, order=call.order or None
        )
        if not result.has_failed:
            self._resting.pop(agent.node, None)
            return
        if result.offline or _is_answer(result):
            self._resting.pop(agent.node, None)
            raise self._failure(call, each, agent, result.fail_msg, is_certain=_is_answer(result))
        attempts = self._attempts.setdefault(key, _Attempts(now))
        self._rest(agent.node, attempts, result)
        # A running call may take as long as the table of calls allows.
        retried_for_s = rpc_entry(each.name).timeout_s if result.is_timeout else self._rpcs.retry_s
        if self._clock() - attempts.first_at >= retried_for_s:
            raise self._failure(call, each, agent, result.fail_msg, is_certain=False)
        self._tell_once(key, call, f"{agent.node}: {result.fail_msg}")
        raise NodeAwayError(f"{call.name} on {agent.node}: {result.fail_msg}")

    def _rest(self, node: str, attempts: _Attempts, result: NodeResult) -> None:
        """Let a node rest, with increasing pauses; or only the call, if the node answers."""
        resting = attempts if result.is_under_way else self._resting.setdefault(node, _Attempts(attempts.first_at))
        resting.rest_s = _FIRST_REST_S if result.is_under_way else min(resting.rest_s * 2, _LONGEST_REST_S)
        resting.rest_s = max(resting.rest_s, _FIRST_REST_S)
        resting.reason = result.fail_msg
        resting.rests_until = self._clock() + min(resting.rest_s, self._rpcs.retry_s)

    def _failure(
        self, call: NodeCall, each: NodeCall, agent: AgentAddress, said: str | None, *, is_certain: bool
    ) -> NodeCallError:
        reason = f"{each.name} failed on node {agent.node}: {said}"
        return NodeCallError(call.host, call.name, reason, needs_undo=needs_undo(call), is_certain=is_certain)

    def _tell_once(self, key: str, call: NodeCall, reason: str) -> None:
        told = f"{key} {reason}"
        if told not in self._attempts:
            self._attempts[told] = _Attempts(self._clock())
            _log.warning("worker.node_waited_for", cell=self._cell.name, call=call.name, host=call.host, reason=reason)

    def _forget(self, key: str) -> None:
        if len(self._attempts) > _REMEMBERED:
            self._attempts.clear()
        for each in [each for each in self._attempts if each.startswith((f"{key}/", f"{key} "))]:
            del self._attempts[each]


def _others(call: NodeCall) -> Collection[str]:
    """Return the further hosts that a call concerns."""
    target = call.parameters.get("target_host")
    others: Sequence[str] = call.parameters.get("other_hosts", ())
    return others if target is None else [*others, target]


def _is_answer(result: NodeResult) -> bool:
    """Whether the node itself has answered that the call failed."""
    match result.data:
        case [False, str()]:
            return True
        case _:
            return False
