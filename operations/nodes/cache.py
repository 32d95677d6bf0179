"""What is remembered of the state of nodes, by the rules of contracts/ganeti-node-state-cache, 4 to 7.

It calls nobody: operations.nodes.rpc does, and tells it when a call begins and ends.
"""

import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import structlog

from agents.rpcs import Effect, effect_of
from agents.wire import Snapshot
from operations.nodes.errors import StoreUnreachableError
from operations.nodes.metrics import CacheCounts
from operations.nodes.requests import Request
from operations.nodes.stores.memory import MonotonicClock
from operations.nodes.stores.store import Change, Found, Store, Ticket

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Fetch:
    """A node that is being asked. request: of what. sent_at: by the clock of the cache. ticket: None: store nothing."""

    node: str
    request: Request
    sent_at: float
    ticket: Ticket | None


@dataclass(slots=True)
class CallInProgress:
    """is_known: whether the node said how the call ended; whoever makes it says so."""

    is_known: bool = False


@dataclass(frozen=True, slots=True)
class _Entry:
    """What a store keeps of a node, as JSON. request: what the snapshot is the whole answer to."""

    request: dict[str, Any]
    snapshot: dict[str, Any]

    @property
    def answers(self) -> Request:
        return Request.read(self.request)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Entry).decode


@dataclass(slots=True)
class NodeStateCache:
    """store: where entries are. is_strict: see agents.rpcs.effect_of. clock: seconds that only go forward."""

    store: Store
    counts: CacheCounts = field(default_factory=CacheCounts)
    is_strict: bool = False
    clock: MonotonicClock = time.monotonic

    def look_up(self, node: str, request: Request) -> dict[str, Any] | None:
        """Exactly what is wanted, if all of it is there and young enough; else None, and the node has to be asked.

        The caller may do with it what it likes. A store that cannot be reached has nothing.
        """
        found = self._find(node)
        known = None if found is None else _part_of(found, request)
        if known is None:
            self.counts.missed(is_expired=found is not None and found.is_expired)
        else:
            self.counts.hit()
        return known

    def remembered(self, node: str, request: Request) -> dict[str, Any] | None:
        """As `look_up`, for who asks no node of which this is None: it counts neither as hit nor as miss."""
        found = self._find(node)
        return None if found is None else _part_of(found, request)

    def begin_fetch(self, node: str, request: Request) -> Fetch:
        """Before a node is asked: drop its entry. The fetch asks for what that had as well."""
        try:
            ticket, old = self.store.begin_fetch(node)
        except StoreUnreachableError as error:
            self._tell(error)
            return Fetch(node, request, self.clock(), None)
        wanted = request if old is None else request.with_all_of(_decode(old).answers)
        return Fetch(node, wanted, self.clock(), ticket)

    def is_current(self, fetch: Fetch) -> bool:
        """Whether nobody has changed the node since it was asked; in doubt somebody has."""
        try:
            return fetch.ticket is not None and self.store.is_current(fetch.node, fetch.ticket)
        except StoreUnreachableError as error:
            self._tell(error)
            return False

    def arrived(self, fetch: Fetch, snapshot: Snapshot) -> None:
        """Remember what a fetch has brought, unless somebody has changed the node meanwhile."""
        whole = fetch.request.answered_by(snapshot)
        if fetch.ticket is None or whole.is_empty:
            return
        content = _encode(_Entry(whole.to_json(), whole.part_of(snapshot)))
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

    def _find(self, node: str) -> Found | None:
        try:
            return self.store.find(node)
        except StoreUnreachableError as error:
            self._tell(error)
            return None

    def _begin(self, nodes: Collection[str] | None, timeout_s: float) -> Change:
        change = Change(nodes, timeout_s)
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


def _part_of(found: Found, request: Request) -> dict[str, Any] | None:
    if found.is_expired:
        return None
    entry = _decode(found.content)
    return request.part_of(entry.snapshot) if entry.answers.covers(request) else None
