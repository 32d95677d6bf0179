"""The store that keeps nothing, for processes that share no server: they could not see each other's changes."""

from collections.abc import Collection, Mapping

from fleetlight.operations.nodes.stores.store import StateChange, StoredEntry, Ticket

_TICKET = Ticket(None, 0)


class NoStore:
    """Keeps nothing, so each node is asked each time."""

    def find(self, nodes: Collection[str]) -> Mapping[str, StoredEntry]:
        return {}

    def begin_fetch(self, node: str) -> tuple[Ticket, bytes | None]:
        return _TICKET, None

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
