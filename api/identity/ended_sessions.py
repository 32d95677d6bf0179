"""Sessions of browsers that were ended before they expired."""

from functools import partial
from typing import Protocol, runtime_checkable

from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.cells.fleet.ended_sessions import EndedSessions
from fleetlight.listing.sources import ask_fleet
from fleetlight.resources.clock import Clock

_MAX_REMEMBERED = 1000


class SessionEnds:
    """The ends of sessions in the fleet database, which each process checks with each request of a session.

    lifetime_us: no session is valid longer. While the fleet database does not answer, the process goes on accepting
    sessions that it has found valid, as lists go on with the registry read last.
    """

    def __init__(self, lifetime_us: int, clock: Clock) -> None:
        self._lifetime_us = lifetime_us
        self._clock = clock
        self._kept: EndedSessions | None = None
        self._timeout_s = 0.0
        self._counted: dict[str, None] = {}

    def keep_in(self, kept: EndedSessions, timeout_s: float) -> None:
        """Set the store; each process calls this before its first request. timeout_s: time limit of a query."""
        self._kept, self._timeout_s = kept, timeout_s

    async def add(self, user_id: str, session: str) -> None:
        """End a session. session: its key. Raises FleetUnreachableError."""
        self._counted.pop(session, None)
        add = partial(self._store.add, user_id, session, self._clock(), self._lifetime_us)
        await ask_fleet(add, self._timeout_s)

    async def has(self, user_id: str, session: str, begun_at: int) -> bool:
        """Whether a session that began at `begun_at` was ended. Raises FleetUnreachableError."""
        try:
            has_ended = await ask_fleet(partial(self._store.has, user_id, session, begun_at), self._timeout_s)
        except FleetUnreachableError:
            if session not in self._counted:
                raise
            return False
        self._counted.pop(session, None)
        if not has_ended:
            if len(self._counted) >= _MAX_REMEMBERED:
                del self._counted[next(iter(self._counted))]
            self._counted[session] = None
        return has_ended

    @property
    def _store(self) -> EndedSessions:
        assert self._kept is not None  # noqa: S101  # each application says where
        return self._kept


@runtime_checkable
class EndsSessions(Protocol):
    """A strategy that stores no sessions itself, and so needs SessionEnds."""

    @property
    def ends(self) -> SessionEnds: ...
