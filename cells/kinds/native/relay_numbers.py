"""The numbers that one relay gives to the changes of its cell, and the epoch that they belong to."""

from sqlalchemy import Connection, Engine, func, select, update

from fleetlight.cells.database.engines import writing
from fleetlight.cells.database.leases import ExclusiveLock
from fleetlight.cells.kinds.native.epochs import begin_epoch, current_epoch
from fleetlight.cells.tables import cell_state, changes

_WITHOUT_NUMBER = select(changes.c.id).where(changes.c.sequence.is_(None)).order_by(changes.c.id)
# Asked after every commit of a cell: making the statement would cost as much again.
_FIRST_WITHOUT_NUMBER = _WITHOUT_NUMBER.limit(1)
_LAST_SEQUENCE = select(cell_state.c.last_sequence)


class RelayReplacedError(Exception):
    """Another relay has taken over."""


class RelayNumbers:
    """lock: of the active relay. epoch: the newest that this relay has begun. last: the highest number it knows of."""

    def __init__(self, engine: Engine, lock: ExclusiveLock) -> None:
        self._engine = engine
        self._lock = lock
        self.epoch = ""
        self.last = 0

    def begin_epoch(self) -> None:
        """Even if the newest one is of this relay: a copy from before another one's may be back in its place."""
        with writing(self._engine) as connection:
            self.epoch = begin_epoch(connection)

    def give(self, most: int) -> int:
        """Give the next numbers to at most `most` changes, in id order; returns how many. Raises RelayReplacedError.

        Ids do not follow commit order, but those of one instance do, since its row was locked: a number may therefore
        be given to any change that is visible, and each instance's changes are numbered in the order of its revisions.
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
        """Whether an older copy of the database was put in its place meanwhile; if not, `last` is known afterwards."""
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
        """Raises RelayReplacedError when another relay may have begun the epoch that is not this one's."""
        if not self._lock.acquire():
            raise RelayReplacedError

    def _is_older(self, connection: Connection, last: int) -> bool:
        return last < self.last or current_epoch(connection) != self.epoch
