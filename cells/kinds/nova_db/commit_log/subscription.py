"""What one cell is told of one log."""

from collections.abc import Callable, Mapping, Sequence
from threading import Condition

from fleetlight.cells.errors import CommitLogError
from fleetlight.cells.kinds.nova_db.commit_log.touched import Touched
from fleetlight.cells.kinds.nova_db.one_server import Identity
from fleetlight.cells.model import LogPosition


class Subscription:
    """What one cell is told of one log. `take` and `wait` belong to one thread.

    schemas: whose rows it is told about. after: the position to go on from; None for the present one.
    is_continued: whether it does go on from there; otherwise nothing is known of what was committed before.
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
        """Nothing but what is `touched`, by schema, was committed up to a position since the last call.

        at: the moment before the server was asked for the position, microseconds.
        """
        with self._changed:
            for schema in self.schemas:
                if (of_schema := touched.get(schema)) is not None:
                    self._touched.merge(of_schema)
            self._position, self._at = position, at
            self._changed.notify_all()

    def fail(self, failure: CommitLogError) -> None:
        """Nothing more comes."""
        with self._changed:
            self._failure = failure
            self._changed.notify_all()

    @property
    def is_alive(self) -> bool:
        return self._failure is None

    def require_alive(self) -> None:
        """Raises CommitLogError if nothing more comes."""
        with self._changed:
            if self._failure is not None:
                raise self._failure

    def wait(self, longest_s: float) -> None:
        """Wait until there is something to take."""
        with self._changed:
            self._changed.wait_for(lambda: self._position is not None or self._failure is not None, longest_s)

    def take(self) -> tuple[Touched, LogPosition, int] | None:
        """What has come since the last call; None if nothing has. Raises CommitLogError."""
        self.require_alive()
        with self._changed:
            if self._position is None:
                return None
            taken = self._touched, self._position, self._at
            self._touched, self._position = Touched(), None
            return taken

    def close(self) -> None:
        """Be told nothing more."""
        self._leave(self)
