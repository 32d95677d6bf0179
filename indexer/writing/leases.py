"""Leases: they decide which processes may work on the documents of a cell, or on the whole index.

`follow`   shared: any number of indexers follow a cell, and one of them gets its messages
`bulk`     exclusive: a sync, rebuild or verification of a cell, so that two never work against each other
`removal`  exclusive, without followers and bulk work: no process writes a row of a cell that is being removed
`unfollowed`  exclusive, without followers: no process binds the queue of a cell while another removes it
`rebuild`  exclusive, for the whole index: only its holder changes the generations of the index, and pauses writes
`log`      exclusive, for a database server: its holder reads the commit log for all cells on that server
`seal`     exclusive, for the whole index: its holder checks whether another program has written to the index
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
        # The followers of several cells on one server take the lease of its log.
        self._taking = Lock()

    def follow(self, cell_uuid: str) -> bool:
        """Take the lease of a follower; False while the cell is being removed. Read the registry afterwards."""
        return self._leases.acquire(_follow(cell_uuid), shared=True)

    def is_following(self, cell_uuid: str) -> bool:
        """Whether this process still holds the lease of a follower; if it was lost, the cell may have been removed."""
        return self._leases.holds(_follow(cell_uuid))

    def followers(self, cell_uuids: Collection[str]) -> Mapping[str, int]:
        """The number of processes that follow each of some cells, including this one (on SQLite
        fleetlight.cells.database.leases has the limits).
        """
        counts = self._leases.count([_follow(uuid) for uuid in cell_uuids])
        return {uuid: counts.get(_follow(uuid), 0) for uuid in cell_uuids}

    def follower_names(self, cell_uuids: Collection[str]) -> Mapping[str, Sequence[str]] | None:
        """The names of the processes that follow each of some cells; None if the database does not show them."""
        found = self._leases.holders([_follow(uuid) for uuid in cell_uuids])
        return None if found is None else {uuid: found.get(_follow(uuid), ()) for uuid in cell_uuids}

    def leave(self, cell_uuid: str) -> None:
        """Release the lease of a follower, which must not write for the cell any more."""
        self._leases.release(_follow(cell_uuid))

    @contextmanager
    def bulk(self, cell: Cell, *, deadline_s: float = 0) -> Iterator[Callable[[], None]]:
        """Hold the lease for work on all rows of a cell; yields a function to call between two batches.

        deadline_s: how long to wait for another holder. Raises LeaseHeldError with its name; the function raises
        LeaseLostError.
        """
        self._waiting(deadline_s)(self._take, cell, _bulk(cell.uuid))
        with self._taken(cell, _bulk(cell.uuid)) as confirm:
            yield confirm

    @contextmanager
    def removal(
        self, cell: Cell, *, deadline_s: float, on_wait: Callable[[LeaseHeldError], None]
    ) -> Iterator[Callable[[], None]]:
        """Hold the leases to remove a cell; waits at most `deadline_s` for its followers to leave.

        on_wait: called once, before the wait. Yields a function and raises as `bulk`.
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
        """Keep all processes from following a cell; as `removal`, but syncs continue. Raises LeaseHeldError."""
        waiting = self._waiting(deadline_s).copy(before_sleep=_once(on_wait))
        waiting(self._take, cell, _follow(cell.uuid))
        with self._taken(cell, _follow(cell.uuid)) as confirm:
            yield confirm

    @contextmanager
    def rebuild(self, *, deadline_s: float = 0) -> Iterator[Callable[[], None]]:
        """Hold the lease on the generations of the index; yields a function to call now and then.

        deadline_s: how long to wait for another holder; indexers hold it for moments, to lift a block of writes. Raises
        RebuildRunningError with the name of the holder; the function raises it if the lease was lost.
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
        """Whether this process holds the lease of the sealer, or could take it now."""
        return self._leases.holds(_SEAL) or self._leases.acquire(_SEAL)

    def read_log(self, name: str) -> bool:
        """Whether this process holds the lease on the log of a server, or could take it now."""
        with self._taking:
            return self._leases.holds(_log(name)) or self._leases.acquire(_log(name))

    def leave_log(self, name: str) -> None:
        """Release the lease on the log of a server."""
        self._leases.release(_log(name))

    def close(self) -> None:
        """Release all leases."""
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
    # An address may be too long for the name of a lease, or have characters that a file name must not have.
    return f"index-log-{sha256(name.encode()).hexdigest()[:32]}"


def _bulk(cell_uuid: str) -> str:
    return f"index-bulk-{cell_uuid}"


def _once(on_wait: Callable[[LeaseHeldError], None]) -> Callable[[RetryCallState], None]:
    def before_sleep(state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if state.attempt_number == 1 and isinstance(error, LeaseHeldError):
            on_wait(error)

    return before_sleep
