"""The cache of the state of nodes, by the rules of contracts/ganeti-node-state-cache, 4 to 7.

It calls no node itself: fleetlight.manager.operations.nodes.rpc does, and reports the begin and end of calls.
"""

import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypedDict

import msgspec
import structlog

from fleetlight.manager.agents.rpcs import Effect, effect_of
from fleetlight.manager.agents.wire import Snapshot
from fleetlight.manager.operations.nodes.errors import RequestError, StoreUnreachableError
from fleetlight.manager.operations.nodes.metrics import CacheCounts
from fleetlight.manager.operations.nodes.requests import NodeStateRequest
from fleetlight.manager.operations.nodes.stores.store import MonotonicClock, StateChange, Store, StoredEntry, Ticket
from fleetlight.resources.malformed_json import MALFORMED_JSON

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Fetch:
    """A running query of a node. request: the query. sent_at: by the cache's clock. ticket: None: store nothing."""

    node: str
    request: NodeStateRequest
    sent_at: float
    ticket: Ticket | None


@dataclass(slots=True)
class CallInProgress:
    """A running call. is_known: whether the node has reported its outcome; the caller sets it."""

    is_known: bool = False


@dataclass(frozen=True, slots=True)
class _Entry:
    """A stored entry of a node, as JSON. request: the query that the snapshot answers in full."""

    request: msgspec.Raw
    snapshot: dict[str, Any]


class _OfNode(TypedDict):
    """The report of a hypervisor, decoded without its instances, of which there may be a thousand."""

    node: dict[str, Any]


class _LeanSnapshot(TypedDict, total=False):
    hv: dict[str, _OfNode]
    diskinfo: dict[str, Any]
    bootid: str


@dataclass(frozen=True, slots=True)
class _LeanEntry:
    request: msgspec.Raw
    snapshot: _LeanSnapshot


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Entry).decode
_decode_lean = msgspec.json.Decoder(_LeanEntry).decode


@dataclass(slots=True)
class NodeStateCache:
    """The cache. store: keeps the entries. is_strict: see `effect_of`. clock: monotonic seconds."""

    store: Store
    counts: CacheCounts = field(default_factory=CacheCounts)
    is_strict: bool = False
    clock: MonotonicClock = time.monotonic

    def look_up(self, wanted: Mapping[str, NodeStateRequest]) -> Mapping[str, dict[str, Any]]:
        """Return the wanted state by node, without nodes of which some is missing or too old.

        The caller owns the result. A store that cannot be reached counts as empty.
        """
        found = self._find(wanted)
        known = _parts_of(found, wanted)
        self.counts.hit(len(known))
        self.counts.missed(len(wanted) - len(known), expired=sum(each.is_expired for each in found.values()))
        return known

    def remembered(self, wanted: Mapping[str, NodeStateRequest]) -> Mapping[str, dict[str, Any]]:
        """As `look_up`, for callers that do not ask missing nodes; it counts neither hits nor misses."""
        return _parts_of(self._find(wanted), wanted)

    def begin_fetch(self, node: str, request: NodeStateRequest) -> Fetch:
        """Begin to query a node: drop its entry, and extend the query to everything that the entry had."""
        try:
            ticket, old = self.store.begin_fetch(node)
        except StoreUnreachableError as error:
            self._tell(error)
            return Fetch(node, request, self.clock(), None)
        entry = None if old is None else _lean_entry(old)
        wanted = request if entry is None else request.with_all_of(_answered_by(entry.request))
        return Fetch(node, wanted, self.clock(), ticket)

    def is_current(self, fetch: Fetch) -> bool:
        """Whether the node is known to be unchanged since the query began."""
        try:
            return fetch.ticket is not None and self.store.is_current(fetch.node, fetch.ticket)
        except StoreUnreachableError as error:
            self._tell(error)
            return False

    def arrived(self, fetch: Fetch, snapshot: Snapshot) -> None:
        """Store the result of a fetch, unless the node was changed meanwhile."""
        whole = fetch.request.answered_by(snapshot)
        if fetch.ticket is None or whole.is_empty:
            return
        content = _encode(_Entry(msgspec.Raw(_encode(whole.to_json())), whole.part_of(snapshot)))
        try:
            is_kept = self.store.put(fetch.node, fetch.ticket, content, self.clock() - fetch.sent_at)
        except StoreUnreachableError as error:
            self._tell(error)
            return
        self.counts.stored(is_kept=is_kept)

    @contextmanager
    def calling(self, name: str, nodes: Collection[str], timeout_s: float) -> Iterator[CallInProgress]:
        """Drop the state that a call may change, before and after the block that makes the call.

        Raises StoreUnreachableError; then the call must not be made, since others would still show the old state.
        """
        effect = effect_of(name, is_strict=self.is_strict)
        call = CallInProgress()
        if effect is Effect.READS:
            yield call
            return
        with self._changing(None if effect is Effect.CHANGES_ALL else nodes, timeout_s, call):
            yield call

    @contextmanager
    def changing_all(self, timeout_s: float) -> Iterator[None]:
        """As `calling`, for an operation that changes several nodes in several calls. Raises StoreUnreachableError."""
        with self._changing(None, timeout_s, CallInProgress(is_known=True)):
            yield

    def forget(self, nodes: Collection[str] | None) -> None:
        """Drop the state of nodes (None: of all) after a change of configuration. Raises StoreUnreachableError."""
        self.store.drop(nodes)
        self.counts.invalidated(is_of_all=nodes is None)

    def forget_changed(self, nodes: Collection[str]) -> None:
        """Drop the state of nodes that are marked offline, or have another configuration now."""
        try:
            self.forget(nodes)
        except StoreUnreachableError as error:
            self._tell(error)

    def _find(self, nodes: Collection[str]) -> Mapping[str, StoredEntry]:
        try:
            return self.store.find(nodes)
        except StoreUnreachableError as error:
            self._tell(error)
            return {}

    def _begin(self, nodes: Collection[str] | None, timeout_s: float) -> StateChange:
        change = StateChange(nodes, timeout_s)
        self.store.begin_change(change)
        self.counts.invalidated(is_of_all=nodes is None)
        return change

    @contextmanager
    def _changing(self, nodes: Collection[str] | None, timeout_s: float, call: CallInProgress) -> Iterator[None]:
        change = self._begin(nodes, timeout_s)
        try:
            yield
        finally:
            try:
                self.store.end_change(change, is_known=call.is_known)
            except StoreUnreachableError as error:
                # The store accepts nothing for these nodes until the call must have ended.
                self._tell(error)

    def _tell(self, error: StoreUnreachableError) -> None:
        self.counts.unreachable()
        _log.warning("node_cache.unreachable", address=error.address, reason=error.reason)


def _parts_of(found: Mapping[str, StoredEntry], wanted: Mapping[str, NodeStateRequest]) -> dict[str, dict[str, Any]]:
    parts: dict[str, dict[str, Any]] = {}
    # Cache the comparison, since most nodes have equal queries.
    covered: dict[tuple[bytes, int], bool] = {}
    for node, each in found.items():
        if each.is_expired:
            continue
        request = wanted[node]
        entry = _whole_entry(each.content) if request.with_instances else _lean_entry(each.content)
        if entry is None:
            continue
        key = bytes(entry.request), id(request)
        is_covered = covered.get(key)
        if is_covered is None:
            is_covered = covered[key] = _answered_by(entry.request).covers(request)
        if is_covered:
            parts[node] = request.part_of(entry.snapshot)
    return parts


def _whole_entry(content: bytes) -> _Entry | None:
    """Decode an entry; None if it is malformed, since other programs may write to the server, too."""
    try:
        return _decode(content)
    except MALFORMED_JSON:
        return None


def _lean_entry(content: bytes) -> _LeanEntry | None:
    """As `_whole_entry`."""
    try:
        return _decode_lean(content)
    except MALFORMED_JSON:
        return None


def _answered_by(request: msgspec.Raw) -> NodeStateRequest:
    """Return the query that an entry answers in full; an empty one if the entry is malformed."""
    try:
        return NodeStateRequest.read(msgspec.json.decode(request, type=dict[str, Any]))
    except (RequestError, msgspec.MsgspecError):
        return NodeStateRequest()
