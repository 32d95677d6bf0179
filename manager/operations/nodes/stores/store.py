"""The interface of stores of node state, each call one indivisible step (contracts/ganeti-node-state-cache, 6).

A generation is a text that no other time has; it is another one after each change. So an answer that a change overtook
is known by the generation that its fetch began with, also in a store that has forgotten everything in between.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol
from uuid import uuid4

MonotonicClock = Callable[[], float]
"""Seconds that only go forward."""
UNKNOWN_END_S = 60.0
"""So long after a change whose end is not known a node may still be changing."""


def new_name() -> str:
    return uuid4().hex


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """An entry. age_s: since its fetch was sent. is_expired: it is older than it may be, and serves nothing."""

    content: bytes
    age_s: float
    is_expired: bool = False


@dataclass(frozen=True, slots=True)
class Ticket:
    """What a fetch begins with. number: higher than that of every earlier fetch of the node.

    generation: None while a change is under way: what is seen then may be of before it, whenever it arrives.
    """

    generation: str | None
    number: int


@dataclass(frozen=True, slots=True)
class StateChange:
    """A change that is under way. nodes: whose state it changes; None: that of all.

    timeout_s: how long it takes at most, after which it counts as one whose end is not known.
    """

    nodes: Collection[str] | None
    timeout_s: float
    name: str = field(default_factory=new_name)


class Store(Protocol):
    """Calls come from any thread. Those of a server raise StoreUnreachableError."""

    def find(self, nodes: Collection[str]) -> Mapping[str, StoredEntry]:
        """The entries of those of the nodes that have one."""
        ...

    def begin_fetch(self, node: str) -> tuple[Ticket, bytes | None]:
        """Drop the entry of a node that is about to be asked; returns it too, expired or not."""
        ...

    def is_current(self, node: str, ticket: Ticket) -> bool:
        """Whether none was under way when a fetch began, and no change counted since."""
        ...

    def put(self, node: str, ticket: Ticket, content: bytes, age_s: float) -> bool:
        """Keep what a fetch brought, unless a change or a later fetch was faster; whether it was kept.

        age_s: time since the fetch was sent.
        """
        ...

    def begin_change(self, change: StateChange) -> None:
        """Before it is sent."""

    def end_change(self, change: StateChange, *, is_known: bool) -> None:
        """is_known: whether the node said how it ended."""

    def drop(self, nodes: Collection[str] | None) -> None:
        """Forget what is known of nodes, or of all (None), also what is being asked for now."""

    def close(self) -> None: ...


class NoStore:
    """Keeps nothing, for processes that share no server: they could not see each other's changes."""

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
