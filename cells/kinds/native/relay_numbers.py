"""Assigns the sequences of a cell's changes, in the epoch that one relay has begun."""

from sqlalchemy import Connection, Engine, func, select, update

from fleetlight.cells.database.engines import writing
from fleetlight.cells.database.leases import ExclusiveLock
from fleetlight.cells.kinds.native.epochs import begin_epoch, current_epoch
from fleetlight.cells.tables import cell_state, changes

_WITHOUT_NUMBER = select(changes.c.id).where(changes.c.sequence.is_(None)).order_by(changes.c.id)
# Run after every commit of a cell: compiling the statement would cost as much again.
_FIRST_WITHOUT_NUMBER = _WITHOUT_NUMBER.limit(1)
_LAST_SEQUENCE = select(cell_state.c.last_sequence)


class RelayReplacedError(Exception):
    """Another relay has taken over."""


class RelayNumbers:
    """The sequences of one relay. lock: of the active relay. epoch: the last that this relay has begun. last: the
    highest known sequence.
    """

    def __init__(self, engine: Engine, lock: ExclusiveLock) -> None:
        self._engine = engine
        self._lock = lock
        self.epoch = ""
        self.last = 0

    def begin_epoch(self) -> None:
        """Begin an epoch, even if this relay began the newest one: the database may be a copy from before another's."""
        with writing(self._engine) as connection:
            self.epoch = begin_epoch(connection)

    def give(self, most: int) -> int:
        """Assign the next sequences to at most `most` changes, in id order; returns their number.

        Ids do not follow the order of commits, but those of one instance do, since its row was locked. So any visible
        change may get a sequence, and the changes of an instance get theirs in the order of its revisions. Raises
        RelayReplacedError.
        """
        with self._engine.connect() as connection:
            if connection.execute(_FIRST_WITHOUT_NUMBER).first() is None:
                return 0
        first = _WITHOUT_NUMBER.limit(most).subquery()
        place = select(first.c.id, func.row_number().over(order_by=first.c.id).label("place")).subquery()
        with writing(self._engine) as connection:
            last = connection.execute(_LAST_SEQUENCE.with_for_update()).scalar_one()
            if self._is_older(connection, last):
                self._require_lock()
                self.epoch = begin_epoch(connection)
            numbered = connection.execute(
                update(changes).where(changes.c.id == place.c.id).values(sequence=last + place.c.place)
            ).rowcount
            connection.execute(update(cell_state).values(last_sequence=last + numbered))
        self.last = last + numbered
        return numbered

    def was_restored(self) -> bool:
        """Whether the database was replaced by an older copy meanwhile; if not, updates `last`."""
        with self._engine.connect() as connection:
            last = connection.execute(_LAST_SEQUENCE).scalar_one()
            if self._is_older(connection, last):
                return True
        self.last = last
        return False

    def begin_again(self) -> None:
        """Begin an epoch in an older copy of the database. Raises RelayReplacedError."""
        self._require_lock()
        self.begin_epoch()
        self.last = 0

    def _require_lock(self) -> None:
        """Raises RelayReplacedError if another relay may have begun an epoch."""
        if not self._lock.acquire():
            raise RelayReplacedError

    def _is_older(self, connection: Connection, last: int) -> bool:
        return last < self.last or current_epoch(connection) != self.epoch
