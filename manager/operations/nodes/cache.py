"""The cache of the state of nodes, by the rules of contracts/ganeti-node-state-cache, 4 to 7.

It calls no node: fleetlight.manager.operations.nodes.rpc does, and reports when a call begins and ends.
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
    """A node that is being asked. request: of what. sent_at: by the clock of the cache. ticket: None: store nothing."""

    node: str
    request: NodeStateRequest
    sent_at: float
    ticket: Ticket | None


@dataclass(slots=True)
class CallInProgress:
    """is_known: whether the node said how the call ended; its caller sets it."""

    is_known: bool = False


@dataclass(frozen=True, slots=True)
class _Entry:
    """What a store keeps of a node, as JSON. request: what the snapshot is the whole answer to."""

    request: msgspec.Raw
    snapshot: dict[str, Any]


class _OfNode(TypedDict):
    """What a hypervisor says, without the instances, which are passed over: there may be a thousand of them."""

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
    """store: where entries are. is_strict: see `effect_of`. clock: seconds that only grow."""

    store: Store
    counts: CacheCounts = field(default_factory=CacheCounts)
    is_strict: bool = False
    clock: MonotonicClock = time.monotonic

    def look_up(self, wanted: Mapping[str, NodeStateRequest]) -> Mapping[str, dict[str, Any]]:
        """By node exactly what is wanted, if all of it is there and young enough; the others have to be asked.

        The caller may do with it what it likes. A store that cannot be reached has nothing.
        """
        found = self._find(wanted)
        known = _parts_of(found, wanted)
        self.counts.hit(len(known))
        self.counts.missed(len(wanted) - len(known), expired=sum(each.is_expired for each in found.values()))
        return known

    def remembered(self, wanted: Mapping[str, NodeStateRequest]) -> Mapping[str, dict[str, Any]]:
        """As `look_up`, for callers that ask no node that is missing: it counts neither as hit nor as miss."""
        return _parts_of(self._find(wanted), wanted)

    def begin_fetch(self, node: str, request: NodeStateRequest) -> Fetch:
        """Before a node is asked: drop its entry. The fetch asks for what that had as well."""
        try:
            ticket, old = self.store.begin_fetch(node)
        except StoreUnreachableError as error:
            self._tell(error)
            return Fetch(node, request, self.clock(), None)
        entry = None if old is None else _lean_entry(old)
        wanted = request if entry is None else request.with_all_of(_answered_by(entry.request))
        return Fetch(node, wanted, self.clock(), ticket)

    def is_current(self, fetch: Fetch) -> bool:
        """Whether the node is unchanged since it was asked; what is not certain counts as a change."""
        try:
            return fetch.ticket is not None and self.store.is_current(fetch.node, fetch.ticket)
        except StoreUnreachableError as error:
            self._tell(error)
            return False

    def arrived(self, fetch: Fetch, snapshot: Snapshot) -> None:
        """Remember what a fetch has brought, unless the node was changed meanwhile."""
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
        """Around a call of nodes: what it may change is forgotten when it is sent and when it ends.

        Raises StoreUnreachableError, and the call must not be made: others would go on to show what was before.
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
        """Around an operation that may change several nodes in several calls. Raises StoreUnreachableError."""
        with self._changing(None, timeout_s, CallInProgress(is_known=True)):
            yield

    def forget(self, nodes: Collection[str] | None) -> None:
        """After a change of the configuration of nodes, or (None) of the cell. Raises StoreUnreachableError."""
        self.store.drop(nodes)
        self.counts.invalidated(is_of_all=nodes is None)

    def forget_changed(self, nodes: Collection[str]) -> None:
        """Nodes that are marked offline, and are not looked up as long as they are, or are configured otherwise now."""
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
                # The store keeps nothing of these nodes until it knows that the call cannot be under way any more.
                self._tell(error)

    def _tell(self, error: StoreUnreachableError) -> None:
        self.counts.unreachable()
        _log.warning("node_cache.unreachable", address=error.address, reason=error.reason)


def _parts_of(found: Mapping[str, StoredEntry], wanted: Mapping[str, NodeStateRequest]) -> dict[str, dict[str, Any]]:
    parts: dict[str, dict[str, Any]] = {}
    # Most nodes were asked for the same, and are wanted the same of.
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
    """None of what is no entry: other programs may write to the server too."""
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
    """What an entry is the whole answer to; nothing where it does not say so."""
    try:
        return NodeStateRequest.read(msgspec.json.decode(request, type=dict[str, Any]))
    except (RequestError, msgspec.MsgspecError):
        return NodeStateRequest()
