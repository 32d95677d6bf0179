"""The subscription of one cell to one log."""

from collections.abc import Callable, Mapping, Sequence
from threading import Condition

from fleetlight.cells.errors import CommitLogError
from fleetlight.cells.kinds.nova_db.commit_log.touched import Touched
from fleetlight.cells.kinds.nova_db.one_server import Identity
from fleetlight.cells.model import LogPosition


class Subscription:
    """The subscription of one cell to one log. `take` and `wait` are for one thread.

    schemas: whose touched instances it receives. after: the position to continue from; None for the current one.
    is_continued: whether it continues from there; otherwise commits before its beginning are unknown.
    identity: of the server.
    """

    def __init__(
        self, schemas: Sequence[str], after: LogPosition | None, leave: Callable[["Subscription"], None]
    ) -> None:
        self.schemas = schemas
        self.after = after
        self.is_continued = False
        self.identity: Identity | None = None
        self._leave = leave
        self._changed = Condition()
        self._touched = Touched()
        self._position: LogPosition | None = None
        self._at = 0
        self._failure: CommitLogError | None = None

    def put(self, touched: Mapping[str, Touched], position: LogPosition, at: int) -> None:
        """Add the instances `touched`, by schema, by all commits since the last call up to a position.

        at: the moment before the position was queried, in microseconds.
        """
        with self._changed:
            for schema in self.schemas:
                if (of_schema := touched.get(schema)) is not None:
                    self._touched.merge(of_schema)
            self._position, self._at = position, at
            self._changed.notify_all()

    def fail(self, failure: CommitLogError) -> None:
        """End the subscription with an error, which `take` and `require_alive` raise."""
        with self._changed:
            self._failure = failure
            self._changed.notify_all()

    @property
    def is_alive(self) -> bool:
        return self._failure is None

    def require_alive(self) -> None:
        """Raises CommitLogError if the subscription has ended."""
        with self._changed:
            if self._failure is not None:
                raise self._failure

    def wait(self, longest_s: float) -> None:
        """Wait until `take` returns something, or raises; at most `longest_s`."""
        with self._changed:
            self._changed.wait_for(lambda: self._position is not None or self._failure is not None, longest_s)

    def take(self) -> tuple[Touched, LogPosition, int] | None:
        """The touched instances since the last call, with position and moment; None if there are none. Raises
        CommitLogError.
        """
        self.require_alive()
        with self._changed:
            if self._position is None:
                return None
            taken = self._touched, self._position, self._at
            self._touched, self._position = Touched(), None
            return taken

    def close(self) -> None:
        """End the subscription."""
        self._leave(self)
