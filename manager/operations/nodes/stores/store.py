"""The interface of stores of node state; each call is atomic (contracts/ganeti-node-state-cache, 6).

A generation is a unique text, which each change replaces. The store detects an answer that is older than a change by
the generation at the begin of its fetch, even after it has lost everything in between.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from uuid import uuid4

MonotonicClock = Callable[[], float]
"""Monotonic seconds."""
UNKNOWN_END_S = 60.0
"""How long a node may go on changing after a call whose outcome is unknown."""


def new_name() -> str:
    """Return a unique name of a change or generation."""
    return uuid4().hex


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry of a node. age_s: since its fetch was sent. is_expired: whether it is too old to be used."""

    content: bytes
    age_s: float
    is_expired: bool = False


@dataclass(frozen=True, slots=True)
class Ticket:
    """State of the store when a fetch begins. number: higher than that of every earlier fetch of the node.

    generation: None during a change, since the answer may then be older than the change.
    """

    generation: str | None
    number: int


@dataclass(frozen=True, slots=True)
class StateChange:
    """A running change. nodes: with changed state; None: all.

    timeout_s: longest duration, after which its outcome counts as unknown.
    """

    nodes: Collection[str] | None
    timeout_s: float
    name: str = field(default_factory=new_name)


class Store(Protocol):
    """A store, for calls from any thread. Those of a server raise StoreUnreachableError."""

    def find(self, nodes: Collection[str]) -> Mapping[str, StoredEntry]:
        """Return the entries of the nodes that have one."""
        ...

    def begin_fetch(self, node: str) -> tuple[Ticket, bytes | None]:
        """Drop and return the entry of a node, expired or not, before a query of the node."""
        ...

    def is_current(self, node: str, ticket: Ticket) -> bool:
        """Whether no change was running when a fetch began, and none has begun since."""
        ...

    def put(self, node: str, ticket: Ticket, content: bytes, age_s: float) -> bool:
        """Store the result of a fetch, unless a change or a later fetch was faster; returns whether it is stored.

        age_s: time since the fetch was sent.
        """
        ...

    def begin_change(self, change: StateChange) -> None:
        """Note a change before it is sent."""

    def end_change(self, change: StateChange, *, is_known: bool) -> None:
        """Note the end of a change. is_known: whether the node has reported its outcome."""

    def drop(self, nodes: Collection[str] | None) -> None:
        """Drop the entries of nodes (None: of all), and the results of running fetches."""

    def close(self) -> None: ...


class NoStore:
    """A store that keeps nothing, for processes without a shared server, which do not see each other's changes."""

    def find(self, nodes: Collection[str]) -> Mapping[str, StoredEntry]:
        return {}

    def begin_fetch(self, node: str) -> tuple[Ticket, bytes | None]:
        return Ticket(None, 0), None

    def is_current(self, node: str, ticket: Ticket) -> bool:
        return False

    def put(self, node: str, ticket: Ticket, content: bytes, age_s: float) -> bool:
        return False

    def begin_change(self, change: StateChange) -> None:
        """There is nothing to forget."""

    def end_change(self, change: StateChange, *, is_known: bool) -> None:
        """There is nothing to forget."""

    def drop(self, nodes: Collection[str] | None) -> None:
        """There is nothing to forget."""

    def close(self) -> None:
        """There is nothing to close."""
