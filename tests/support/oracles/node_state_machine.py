"""No read of the state of a node returns what was before a change that had ended when the read began.

Random interleavings of reads, changes, failures, time limits, ends of processes and time, over any kind of store. The
truth is a number for each node, which every change counts up; each step of a read and of a change is a rule of its own.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from fleetlight.manager.agents.wire import CACHE_REQ_BOOTID, CACHE_REQ_DISKINFO
from fleetlight.manager.operations.nodes.cache import Fetch, NodeStateCache
from fleetlight.manager.operations.nodes.errors import StoreUnreachableError
from fleetlight.manager.operations.nodes.requests import NodeStateRequest
from fleetlight.manager.operations.nodes.stores.store import UNKNOWN_END_S, StateChange, Store
from tests.support.played.played_nodes import ManualClock

NODES = ("node1", "node2")
TTL_S = 600.0
TIMEOUT_S = 300.0
REQUESTS = (
    NodeStateRequest(boot_id=True),
    NodeStateRequest(volume_groups=("vg",)),
    NodeStateRequest(volume_groups=("vg",), boot_id=True),
)

_some = st.integers(min_value=0, max_value=1_000_000)
_steps = st.sampled_from(["read"] * 5 + ["send"] * 2 + ["go on"] * 7 + ["change"] * 2 + ["wait", "happens"])
_WAITS = [0.5] * 6 + [30.0, 59.5, 60.0, 300.0, 599.5, 600.0]
_processes = st.integers(min_value=0, max_value=1)
# Mostly one, so that what happens meets.
_nodes = st.sampled_from([NODES[0]] * 4 + [NODES[1]])
_requests = st.sampled_from(REQUESTS)


@dataclass
class Reading:
    """A fetch under way. floors: what each of those that wait for it must not be behind. seen: what the node said."""

    process: int
    fetch: Fetch
    floors: list[int]
    seen: int | None = None


@dataclass
class Changing:
    """A change that was sent. late_until: how long a node may still carry it out when nobody waits for it any more."""

    process: int | None
    change: StateChange
    sent_at: float
    is_applied: bool = False
    late_until: float | None = None
    sent_to: Sequence[str] = field(default_factory=tuple)


class NodeStateMachine(RuleBasedStateMachine):
    """Two processes with one store. Subclasses say what store that is, and what may happen to it."""

    is_shared = False
    """Whether the store stays when a process ends."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.truth = dict.fromkeys(NODES, 0)
        self.floor = dict.fromkeys(NODES, 0)
        self.rests_at = 0.0  # before, the store may know of a change whose end it was not told
        self.readings: list[Reading] = []
        self.changes: list[Changing] = []
        self.stores = self.new_stores()
        self.caches = [NodeStateCache(store, clock=self.clock) for store in self.stores]

    def new_stores(self) -> Sequence[Store]:
        """One for each process."""
        raise NotImplementedError

    def is_reachable(self, _process: int) -> bool:
        return True

    # Reading.

    @rule(step=_steps, process=_processes, node=_nodes, request=_requests, pick=_some)
    def step(self, step: str, process: int, node: str, request: NodeStateRequest, pick: int) -> None:
        """One rule with weights: chosen evenly, steps that belong together would seldom meet."""
        match step:
            case "read":
                self.read(process, node, request)
            case "send":
                self.send_change(process, node, of_all=pick % 5 == 0)
            case "change" if change := self.send_change(process, node, of_all=pick % 5 == 0):
                self._apply(change)  # at once, in the middle of whatever is under way
                self._end(change)
            case "go on" if pending := self._pending():
                pending[pick % len(pending)]()
            case "go on":
                self.read(process, node, request)
            case "wait":
                self._let_pass(_WAITS[pick % len(_WAITS)])
            case _:
                self.something_happens(pick % 8, process, node, pick // 8)

    def read(self, process: int, node: str, request: NodeStateRequest) -> None:
        cache, floor = self.caches[process], self.floor[node]
        found = cache.look_up({node: request}).get(node)
        if found is not None:
            assert self.clock.now_s - self._check(found, request, floor) <= TTL_S
            return
        for reading in self.readings:
            is_ours = reading.process == process and reading.fetch.node == node
            if is_ours and reading.fetch.request.covers(request) and cache.is_current(reading.fetch):
                reading.floors.append(floor)
                return
        self.readings.append(Reading(process, cache.begin_fetch(node, request), [floor]))

    # What is under way goes on.

    def _pending(self) -> list[Callable[[], None]]:
        """What may happen next to what is under way."""
        found: list[Callable[[], None]] = []
        for reading in self.readings:
            found.append(partial(self._answer if reading.seen is None else self._arrive, reading))
        for change in self.changes:
            if not change.is_applied:
                found.append(partial(self._apply, change))
            if change.process is not None:
                found.append(partial(self._end, change))
        return found

    def _answer(self, reading: Reading) -> None:
        reading.seen = self.truth[reading.fetch.node]

    def _arrive(self, reading: Reading) -> None:
        self.readings.remove(reading)
        snapshot = self._snapshot(reading)
        self.caches[reading.process].arrived(reading.fetch, snapshot)
        for floor in reading.floors:
            self._check(reading.fetch.request.part_of(snapshot), reading.fetch.request, floor)

    def _apply(self, change: Changing) -> None:
        change.is_applied = True
        for node in change.sent_to:
            self.truth[node] += 1

    def _end(self, change: Changing) -> None:
        """The node has said how it ended."""
        assert change.process is not None
        try:
            self.stores[change.process].end_change(change.change, is_known=True)
        except StoreUnreachableError:
            self.rests_at = max(self.rests_at, change.sent_at + TIMEOUT_S + UNKNOWN_END_S)
        self.changes.remove(change)
        self._is_over(change)

    # What happens seldom.

    def something_happens(self, what: int, process: int, node: str, pick: int) -> None:
        match what:
            case 0:
                fetch = self.caches[process].begin_fetch(node, REQUESTS[0])
                self.readings.append(Reading(process, fetch, [self.floor[node]]))  # it passes the cache by
            case 1 if self.readings:
                del self.readings[pick % len(self.readings)]  # the node has failed
            case 2 if ours := [change for change in self.changes if change.process is not None]:
                self._end_unknown(ours[pick % len(ours)])
            case 3:
                self._configure(process, node)
            case 4:
                self._kill(process)
            case _:
                self._read_at_rest(process, node)

    def _configure(self, process: int, node: str) -> None:
        try:
            self.caches[process].forget([node])
        except StoreUnreachableError:
            return  # and it does not change
        self.truth[node] += 1
        self.floor[node] = self.truth[node]

    def _read_at_rest(self, process: int, node: str) -> None:
        """What was read when nothing changes is remembered, everywhere."""
        if self.changes or not self.is_reachable(process) or self.clock.now_s < self.rests_at:
            return
        request, cache = REQUESTS[2], self.caches[process]
        reading = Reading(process, cache.begin_fetch(node, request), [], self.truth[node])
        cache.arrived(reading.fetch, self._snapshot(reading))
        for each in range(len(self.caches)):
            if self.is_reachable(each):
                found = self.caches[each].look_up({node: request}).get(node)
                assert found is not None
                self._check(found, request, self.truth[node])

    def _kill(self, process: int) -> None:
        killed = [process] if self.is_shared else range(len(self.caches))
        self.readings = [reading for reading in self.readings if reading.process not in killed]
        for change in self.changes:
            if change.process in killed:
                change.process = None
                change.late_until = change.sent_at + TIMEOUT_S + UNKNOWN_END_S
        if not self.is_shared:
            # Nobody is left who remembers what was sent. Whoever goes on with a job sends it again first, so what is
            # late of it is followed by a change that ends.
            self._let_pass(TIMEOUT_S + UNKNOWN_END_S)
            self.stores = self.new_stores()
            self.caches = [NodeStateCache(store, clock=self.clock) for store in self.stores]

    # Changing, and time.

    def send_change(self, process: int, node: str, *, of_all: bool) -> Changing | None:
        change = StateChange(None if of_all else [node], TIMEOUT_S)
        try:
            self.stores[process].begin_change(change)
        except StoreUnreachableError:
            return None  # and it must not be sent
        changing = Changing(process, change, self.clock.now_s, sent_to=NODES if of_all else [node])
        self.changes.append(changing)
        return changing

    def _let_pass(self, seconds: float) -> None:
        """A change that nobody waits for is over at its time; who waits for one gives up at its time limit."""
        ends = self.clock.now_s + seconds
        for change in list(self.changes):
            if change.process is not None and change.sent_at + TIMEOUT_S <= ends:
                self.clock.now_s = max(self.clock.now_s, change.sent_at + TIMEOUT_S)
                self._end_unknown(change)
            if change.late_until is not None and change.late_until <= ends:
                self.changes.remove(change)
                self._is_over(change)
        self.clock.now_s = ends

    def _end_unknown(self, change: Changing) -> None:
        assert change.process is not None
        with suppress(StoreUnreachableError):
            self.stores[change.process].end_change(change.change, is_known=False)
        change.process, change.late_until = None, self.clock.now_s + UNKNOWN_END_S

    def _is_over(self, change: Changing) -> None:
        for node in change.sent_to:
            self.floor[node] = self.truth[node]

    def _snapshot(self, reading: Reading) -> dict[str, Any]:
        said = f"{reading.seen} {reading.fetch.sent_at}"
        found: dict[str, Any] = {}
        if reading.fetch.request.boot_id:
            found[CACHE_REQ_BOOTID] = said
        if reading.fetch.request.volume_groups is not None:
            found[CACHE_REQ_DISKINFO] = {"vg": said}
        return found

    def _check(self, found: dict[str, Any], request: NodeStateRequest, floor: int) -> float:
        """That an answer is good enough; returns when its fetch was sent."""
        said = [found[CACHE_REQ_BOOTID]] if request.boot_id else []
        said += [found[CACHE_REQ_DISKINFO]["vg"]] if request.volume_groups is not None else []
        assert len(set(said)) == 1, "parts of different moments"
        version, sent_at = str(said[0]).split()
        assert int(version) >= floor, f"read {version}, and {floor} had ended"
        return float(sent_at)
