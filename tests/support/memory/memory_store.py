"""Node state inside of one process, as any store keeps it: what tests of the rules and of other stores go by."""

import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from threading import Lock

from fleetlight.manager.operations.nodes.stores.store import (
    UNKNOWN_END_S,
    MonotonicClock,
    StateChange,
    StoredEntry,
    Ticket,
    new_name,
)


@dataclass(slots=True)
class _Node:
    """generation: of its last change. changes: under way, by name, with the moment from which they do not count.

    entry: content, and the moment at which its fetch was sent.
    number: of the last fetch. stored_number: of that whose answer was kept last.
    """

    generation: str = field(default_factory=new_name)
    changes: dict[str, float] = field(default_factory=dict)
    entry: tuple[bytes, float] | None = None
    number: int = 0
    stored_number: int = 0


class MemoryStore:
    """ttl_s: how long an entry serves; 0: for ever. clock: seconds that only go forward."""

    def __init__(self, ttl_s: float, clock: MonotonicClock = time.monotonic) -> None:
        self._ttl_s = ttl_s
        self._clock = clock
        self._guard = Lock()
        self._nodes: dict[str, _Node] = {}
        # What concerns all nodes; it never has an entry.
        self._all = _Node()

    def find(self, nodes: Collection[str]) -> Mapping[str, StoredEntry]:
        with self._guard:
            found = {name: self._found(node) for name in nodes if (node := self._nodes.get(name)) is not None}
        return {name: each for name, each in found.items() if each is not None}

    def begin_fetch(self, node: str) -> tuple[Ticket, bytes | None]:
        with self._guard:
            found = self._node(node)
            entry, found.entry = found.entry, None
            found.number += 1
            generation = None if self._is_changing(found) else self._generation(found)
            return Ticket(generation, found.number), None if entry is None else entry[0]

    def is_current(self, node: str, ticket: Ticket) -> bool:
        with self._guard:
            return self._is_current(self._node(node), ticket)

    def put(self, node: str, ticket: Ticket, content: bytes, age_s: float) -> bool:
        with self._guard:
            found = self._node(node)
            if not self._is_current(found, ticket) or ticket.number < found.stored_number:
                return False
            found.entry = (content, self._clock() - age_s)
            found.stored_number = ticket.number
            return True

    def begin_change(self, change: StateChange) -> None:
        with self._guard:
            ends = self._clock() + change.timeout_s + UNKNOWN_END_S
            for each in self._of(change.nodes):
                each.changes[change.name] = ends
            self._forget(change.nodes)

    def end_change(self, change: StateChange, *, is_known: bool) -> None:
        with self._guard:
            for each in self._of(change.nodes):
                if is_known:
                    each.changes.pop(change.name, None)
                else:
                    each.changes[change.name] = self._clock() + UNKNOWN_END_S
            self._forget(change.nodes)

    def drop(self, nodes: Collection[str] | None) -> None:
        with self._guard:
            self._forget(nodes)

    def close(self) -> None:
        """There is nothing to close."""

    def _forget(self, nodes: Collection[str] | None) -> None:
        for each in self._of(nodes):
            each.generation = new_name()
            each.entry = None
        if nodes is None:
            for each in self._nodes.values():
                each.entry = None

    def _found(self, node: _Node) -> StoredEntry | None:
        if node.entry is None:
            return None
        content, fetched_at = node.entry
        age_s = self._clock() - fetched_at
        return StoredEntry(content, age_s, 0 < self._ttl_s < age_s)

    def _is_current(self, node: _Node, ticket: Ticket) -> bool:
        return ticket.generation == self._generation(node)

    def _is_changing(self, node: _Node) -> bool:
        now = self._clock()
        for each in (node, self._all):
            each.changes = {name: ends for name, ends in each.changes.items() if now < ends}
        return bool(node.changes or self._all.changes)

    def _generation(self, node: _Node) -> str:
        return f"{self._all.generation} {node.generation}"

    def _of(self, nodes: Collection[str] | None) -> list[_Node]:
        return [self._all] if nodes is None else [self._node(name) for name in nodes]

    def _node(self, name: str) -> _Node:
        found = self._nodes.get(name)
        if found is None:
            found = self._nodes[name] = _Node()
        return found
