"""All calls of a cell's nodes go through this module, so that the cache knows which calls change a node."""

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import Any, Protocol
from uuid import uuid4

import msgspec

from fleetlight.cells.daemon_threads import DaemonThreads
from fleetlight.manager.agents.rpcs import Effect, rpc
from fleetlight.manager.operations.nodes.cache import Fetch, NodeStateCache
from fleetlight.manager.operations.nodes.model import AgentNode, NodeResult, failure, offline
from fleetlight.manager.operations.nodes.requests import NodeStateRequest

SNAPSHOT = "node_snapshot"
# Concurrent calls. They mostly wait, and a hanging one occupies its thread no longer than its time limit.
_THREADS = 128

_encode = msgspec.json.encode
_decode = msgspec.json.decode


class Client(Protocol):
    """Makes one call of one node; see fleetlight.manager.operations.nodes.client."""

    def call(
        self,
        node: AgentNode,
        name: str,
        arguments: Mapping[str, Any],
        *,
        timeout_s: float,
        key: str | None = None,
        order: int | None = None,
    ) -> NodeResult: ...


@dataclass(frozen=True, slots=True)
class _Running:
    """A running fetch for whose answer other threads may wait: the result, and its payload as JSON."""

    fetch: Fetch
    answer: Future[tuple[NodeResult, bytes]] = field(default_factory=Future)


class NodeRpc:
    """Calls the nodes of one cell, for any number of threads. Calls block at most for their time limit."""

    def __init__(self, client: Client, cache: NodeStateCache) -> None:
        self._client = client
        self.cache = cache
        self._threads = DaemonThreads(_THREADS, "nodes")
        self._begins: defaultdict[str, Lock] = defaultdict(Lock)
        self._running: dict[str, _Running] = {}

    def close(self) -> None:
        self._threads.shutdown(wait=False)
        self.cache.store.close()

    def call(
        self,
        nodes: Sequence[AgentNode],
        name: str,
        arguments: Mapping[str, Any],
        *,
        timeout_s: float | None = None,
        key: str | None = None,
        order: int | None = None,
    ) -> dict[str, NodeResult]:
        """Call nodes concurrently; returns the results by node.

        timeout_s: of each node; by default that of the table of calls. key: of a changing call, equal for repetitions;
        by default a new one. order: see fleetlight.manager.agents.wire.CallRequest.
        Raises StoreUnreachableError for a changing call, before any node was called.
        """
        limit_s = rpc(name).timeout_s if timeout_s is None else timeout_s
        if rpc(name).effect is not Effect.READS and key is None:
            key = uuid4().hex
        asked = [node for node in nodes if not node.is_offline]
        results = {node.name: offline(node.name, name) for node in nodes if node.is_offline}
        with self.cache.calling(name, [node.name for node in asked], limit_s) as progress:
            calls = {
                node.name: partial(self._call, node, name, arguments, limit_s, key=key, order=order) for node in asked
            }
            results |= self._at_once(calls)
            progress.is_known = not any(result.is_timeout for result in results.values())
        return {node.name: results[node.name] for node in nodes}

    def call_one(
        self,
        node: AgentNode,
        name: str,
        arguments: Mapping[str, Any],
        *,
        timeout_s: float | None = None,
        key: str | None = None,
        order: int | None = None,
    ) -> NodeResult:
        """As `call`, for one node. Raises StoreUnreachableError."""
        return self.call([node], name, arguments, timeout_s=timeout_s, key=key, order=order)[node.name]

    def node_snapshot(
        self,
        nodes: Sequence[AgentNode],
        request: NodeStateRequest | Mapping[str, Any],
        *,
        use_cache: bool = True,
        bypass: bool = False,
        timeout_s: float | None = None,
    ) -> dict[str, NodeResult]:
        """The state of nodes; only those are called of which not all is remembered, all at once.

        request: the same for all; flags with their arguments are as good. use_cache: otherwise nothing is looked up,
        and nothing kept. bypass: call in any case, and keep the answers. timeout_s: of each node that is called.
        Raises RequestError.
        """
        wanted = request if isinstance(request, NodeStateRequest) else NodeStateRequest.read(request)
        return self.node_snapshots(
            dict.fromkeys(nodes, wanted), use_cache=use_cache, bypass=bypass, timeout_s=timeout_s
        )

    def node_snapshots(
        self,
        requests: Mapping[AgentNode, NodeStateRequest],
        *,
        use_cache: bool = True,
        bypass: bool = False,
        timeout_s: float | None = None,
    ) -> dict[str, NodeResult]:
        """As `node_snapshot`, with a request for each node."""
        limit_s = rpc(SNAPSHOT).timeout_s if timeout_s is None else timeout_s
        results: dict[str, NodeResult] = {}
        calls: dict[str, Callable[[], NodeResult]] = {}
        marked_offline = [node.name for node in requests if node.is_offline]
        if marked_offline and use_cache:
            self.cache.forget_changed(marked_offline)
        asked: dict[AgentNode, NodeStateRequest] = {}
        for node, wanted in requests.items():
            if node.is_offline:
                results[node.name] = offline(node.name, SNAPSHOT)
            elif wanted.is_empty:
                results[node.name] = NodeResult(node.name, SNAPSHOT, payload={})
            else:
                asked[node] = wanted
        known: Mapping[str, dict[str, Any]] = {}
        if use_cache and not bypass:
            known = self.cache.look_up({node.name: wanted for node, wanted in asked.items()})
        joined: dict[str, tuple[_Running, NodeStateRequest]] = {}
        for node, wanted in asked.items():
            if node.name in known:
                results[node.name] = NodeResult(node.name, SNAPSHOT, payload=known[node.name])
            elif use_cache and not bypass and (running := self._under_way(node.name, wanted)) is not None:
                joined[node.name] = running, wanted
            elif use_cache:
                calls[node.name] = partial(self._fetched, node, wanted, limit_s, bypass=bypass)
            else:
                calls[node.name] = partial(self._call, node, SNAPSHOT, _arguments(wanted), limit_s)
        ends_s = time.monotonic() + limit_s
        results |= self._within(calls, limit_s)
        for name, (running, wanted) in joined.items():
            results[name] = _waited_for(running, wanted, name, limit_s, ends_s)
        return {node.name: results[node.name] for node in requests}

    def remembered(self, nodes: Sequence[AgentNode], request: NodeStateRequest) -> dict[str, NodeResult]:
        """As `node_snapshot`, of the nodes of which all of it is remembered; none is called."""
        found = self.cache.remembered({node.name: request for node in nodes if not node.is_offline})
        return {name: NodeResult(name, SNAPSHOT, payload=known) for name, known in found.items()}

    def _fetched(self, node: AgentNode, wanted: NodeStateRequest, limit_s: float, *, bypass: bool) -> NodeResult:
        """What a node says, asked by us, or by another thread that asks for as much at this moment."""
        fetch: Fetch | None = None
        # No call is made inside: it only lets two that come at once not both be the first.
        with self._begins[node.name]:
            running = None if bypass else self._joinable(node.name, wanted)
            if running is None:
                fetch = self.cache.begin_fetch(node.name, wanted)
                running = self._running[node.name] = _Running(fetch)
        if bypass:
            self.cache.counts.bypassed()
        if fetch is None:
            return _waited_for(running, wanted, node.name, limit_s, time.monotonic() + limit_s)
        try:
            result = self._call(node, SNAPSHOT, _arguments(fetch.request), limit_s)
            if not result.has_failed:
                self.cache.arrived(fetch, result.payload)
            running.answer.set_result((result, _encode(result.payload)))
        except BaseException as error:
            running.answer.set_exception(error)
            raise
        finally:
            with self._begins[node.name]:
                if self._running.get(node.name) is running:
                    del self._running[node.name]
        return result if result.has_failed else replace(result, payload=wanted.part_of(result.payload))

    def _under_way(self, node: str, wanted: NodeStateRequest) -> _Running | None:
        """The call of another thread that brings what is wanted: to wait for it takes no thread of ours."""
        with self._begins[node]:
            return self._joinable(node, wanted)

    def _joinable(self, node: str, wanted: NodeStateRequest) -> _Running | None:
        """As `_under_way`, for a caller that holds the lock of the node."""
        running = self._running.get(node)
        if running is None or not running.fetch.request.covers(wanted) or not self.cache.is_current(running.fetch):
            return None
        return running

    def _call(
        self,
        node: AgentNode,
        name: str,
        arguments: Mapping[str, Any],
        timeout_s: float,
        *,
        key: str | None = None,
        order: int | None = None,
    ) -> NodeResult:
        result = self._client.call(node, name, arguments, timeout_s=timeout_s, key=key, order=order)
        self.cache.counts.called(node.name, has_failed=result.has_failed)
        if name == SNAPSHOT and not result.has_failed and not isinstance(result.payload, dict):
            return failure(node.name, name, "RPC layer error: a snapshot is no object", result.data)
        return result

    def _at_once(self, calls: Mapping[str, Callable[[], NodeResult]]) -> dict[str, NodeResult]:
        if len(calls) == 1:
            return {name: call() for name, call in calls.items()}
        running = {name: self._threads.submit(call) for name, call in calls.items()}
        return {name: answer.result() for name, answer in running.items()}

    def _within(self, calls: Mapping[str, Callable[[], NodeResult]], limit_s: float) -> dict[str, NodeResult]:
        """As `_at_once`; a node that has not answered by then has failed, also if it was not called yet.

        More nodes may be silent than there are threads, each of which one of them keeps until its time is over.
        """
        if len(calls) == 1:
            return self._at_once(calls)
        ends_s = time.monotonic() + limit_s
        running = {name: self._threads.submit(call) for name, call in calls.items()}
        results: dict[str, NodeResult] = {}
        for name, answer in running.items():
            try:
                results[name] = answer.result(max(0.0, ends_s - time.monotonic()))
            except TimeoutError:
                answer.cancel()
                results[name] = failure(name, SNAPSHOT, f"no answer within {limit_s:g} s", is_timeout=True)
        return results


def _arguments(request: NodeStateRequest) -> Mapping[str, Any]:
    return {"request": request.to_json()}


def _waited_for(running: _Running, wanted: NodeStateRequest, node: str, limit_s: float, ends_s: float) -> NodeResult:
    """The answer that another thread got; as bytes, so that each has its own copy.

    limit_s: how long the caller waits for everything, until `ends_s`.
    """
    try:
        result, payload = running.answer.result(max(0.0, ends_s - time.monotonic()))
    except TimeoutError:
        return failure(node, SNAPSHOT, f"no answer within {limit_s:g} s", is_timeout=True)
    return result if result.has_failed else replace(result, data=None, payload=wanted.part_of(_decode(payload)))
