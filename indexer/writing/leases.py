"""Leases: they say which processes may work on what the index has of a cell.

`follow`   shared: any number of indexers follow a cell, and one of them gets its messages
`bulk`     one alone: a sync (or a rebuild, or a verification) of the cell, so that two never work against each other
`removal`  one alone, with no follower and no bulk work: no process writes a row of a cell that is being removed
`unfollowed`  one alone, with no follower: no process binds the queue of a cell while it is unbound
`rebuild`  one alone, of the whole index: only its holder changes the generations of the index, and pauses writing
`log`      one alone, of a database server: its holder reads the log of that for all cells that are there
`seal`     one alone, of the whole index: its holder checks whether another program has written to it
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from threading import Lock

from tenacity import RetryCallState, Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from fleetlight.cells.database.leases import Leases
from fleetlight.cells.model import Cell
from fleetlight.indexer.errors import LeaseHeldError, LeaseLostError, RebuildRunningError

_POLL_INTERVAL_S = 0.2
_REBUILD = "index-rebuild"
_SEAL = "index-seal"


class CellLeases:
    """The leases of one process on the cells of its fleet. Every call raises FleetUnreachableError."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases
        # The followers of several cells of one server ask for the lease of its log.
        self._taking = Lock()

    def follow(self, cell_uuid: str) -> bool:
        """Start to follow; False while the cell is being removed. Ask the registry after that, not before."""
        return self._leases.acquire(_follow(cell_uuid), shared=True)

    def is_following(self, cell_uuid: str) -> bool:
        """Whether the lease is held; False once it was lost, and the cell may have been removed since."""
        return self._leases.holds(_follow(cell_uuid))

    def followers(self, cell_uuids: Collection[str]) -> Mapping[str, int]:
        """How many processes follow each of some cells, this one included; see fleetlight.cells.database.leases for
        SQLite.
        """
        counts = self._leases.count([_follow(uuid) for uuid in cell_uuids])
        return {uuid: counts.get(_follow(uuid), 0) for uuid in cell_uuids}

    def follower_names(self, cell_uuids: Collection[str]) -> Mapping[str, Sequence[str]] | None:
        """The processes that follow each of some cells; None where that cannot be seen."""
        found = self._leases.holders([_follow(uuid) for uuid in cell_uuids])
        return None if found is None else {uuid: found.get(_follow(uuid), ()) for uuid in cell_uuids}

    def leave(self, cell_uuid: str) -> None:
        """End following; nothing may be written for the cell any more."""
        self._leases.release(_follow(cell_uuid))

    @contextmanager
    def bulk(self, cell: Cell, *, deadline_s: float = 0) -> Iterator[Callable[[], None]]:
        """Work on all rows of a cell, alone; yields a function to call between two batches.

        deadline_s: how long to wait for another process that does. Raises LeaseHeldError, naming it; the function
        raises LeaseLostError.
        """
        self._waiting(deadline_s)(self._take, cell, _bulk(cell.uuid))
        with self._taken(cell, _bulk(cell.uuid)) as confirm:
            yield confirm

    @contextmanager
    def removal(
        self, cell: Cell, *, deadline_s: float, on_wait: Callable[[LeaseHeldError], None]
    ) -> Iterator[Callable[[], None]]:
        """Remove a cell, with no follower; waits at most `deadline_s` for its followers to leave.

        on_wait: called once, before the wait. Raises LeaseHeldError; what is yielded is as in `bulk`.
        """
        self._take(cell, _bulk(cell.uuid))
        with (
            self._taken(cell, _bulk(cell.uuid)) as confirm_bulk,
            self.unfollowed(cell, deadline_s=deadline_s, on_wait=on_wait) as confirm_alone,
        ):

            def confirm() -> None:
                confirm_bulk()
                confirm_alone()

            yield confirm

    @contextmanager
    def unfollowed(
        self, cell: Cell, *, deadline_s: float, on_wait: Callable[[LeaseHeldError], None]
    ) -> Iterator[Callable[[], None]]:
        """Keep all processes from following a cell; as `removal`, but syncs go on."""
        waiting = self._waiting(deadline_s).copy(before_sleep=_once(on_wait))
        waiting(self._take, cell, _follow(cell.uuid))
        with self._taken(cell, _follow(cell.uuid)) as confirm:
            yield confirm

    @contextmanager
    def rebuild(self, *, deadline_s: float = 0) -> Iterator[Callable[[], None]]:
        """Work on the generations of the index, alone; yields a function to call now and then.

        deadline_s: how long to wait for another process that does: indexers do for a moment, to see that no other does.
        Raises RebuildRunningError, naming it; the function raises RebuildRunningError too.
        """
        self._waiting(deadline_s)(self._take_rebuild)

        def confirm() -> None:
            if not self._leases.holds(_REBUILD):
                raise RebuildRunningError("an unknown process: the connection to the fleet database was lost")

        try:
            yield confirm
        finally:
            self._leases.release(_REBUILD)

    def seal(self) -> bool:
        """Whether this process checks the seal of the index: it has that lease, or can take it now."""
        return self._leases.holds(_SEAL) or self._leases.acquire(_SEAL)

    def read_log(self, name: str) -> bool:
        """Whether this process reads the log of that server: it has that lease, or can take it now."""
        with self._taking:
            return self._leases.holds(_log(name)) or self._leases.acquire(_log(name))

    def leave_log(self, name: str) -> None:
        """Let another process read it."""
        self._leases.release(_log(name))

    def close(self) -> None:
        """Give everything back."""
        self._leases.close()

    def _waiting(self, deadline_s: float) -> Retrying:
        return Retrying(
            retry=retry_if_exception_type((LeaseHeldError, RebuildRunningError)),
            wait=wait_fixed(_POLL_INTERVAL_S),
            stop=stop_after_delay(deadline_s),
            reraise=True,
        )

    def _take(self, cell: Cell, name: str) -> None:
        if not self._leases.acquire(name):
            raise LeaseHeldError(cell.name, self._leases.holder(name))

    def _take_rebuild(self) -> None:
        if not self._leases.acquire(_REBUILD):
            raise RebuildRunningError(self._leases.holder(_REBUILD))

    @contextmanager
    def _taken(self, cell: Cell, name: str) -> Iterator[Callable[[], None]]:
        def confirm() -> None:
            if not self._leases.holds(name):
                raise LeaseLostError(cell.name)

        try:
            yield confirm
        finally:
            self._leases.release(name)


def _follow(cell_uuid: str) -> str:
    return f"index-follow-{cell_uuid}"


def _log(name: str) -> str:
    # An address may be longer than a name, or have characters that a file must not have.
    return f"index-log-{sha256(name.encode()).hexdigest()[:32]}"


def _bulk(cell_uuid: str) -> str:
    return f"index-bulk-{cell_uuid}"


def _once(on_wait: Callable[[LeaseHeldError], None]) -> Callable[[RetryCallState], None]:
    def before_sleep(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if state.attempt_number == 1 and isinstance(error, LeaseHeldError):
            on_wait(error)

    return before_sleep
