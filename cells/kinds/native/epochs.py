"""Epochs: the histories that the numbers of a cell's changes belong to.

A database that was restored from a backup gives the same numbers to other changes. So what begins to number, a relay
that takes over, begins a new epoch and writes down what had been numbered before it. The epoch travels with
each message. After a restore the one that indexers know ends where the new one begins, or is not there at all: whatever
it numbered beyond that never happened (docs/decisions/0001).
"""

from uuid import uuid4

from sqlalchemy import Connection, delete, func, insert, select

from fleetlight.cells.epochs import EpochHistory, Position
from fleetlight.cells.tables import cell_state, epochs

# One for each start of a relay. An indexer that knows only a forgotten one syncs its cell.
_KEPT = 1000


def read_epoch_history(connection: Connection) -> EpochHistory:
    columns = epochs.c
    rows = connection.execute(select(columns.uuid, columns.after_sequence).order_by(columns.id))
    return EpochHistory([(row.uuid, row.after_sequence) for row in rows])


def begin_epoch(connection: Connection) -> str:
    """Begin one in the transaction of `connection`, which is the only one that gives out numbers, and return it."""
    last = connection.execute(select(cell_state.c.last_sequence).with_for_update()).scalar_one()
    uuid = str(uuid4())
    connection.execute(insert(epochs).values(uuid=uuid, after_sequence=last))
    newest = select(func.max(epochs.c.id)).scalar_subquery()
    connection.execute(delete(epochs).where(epochs.c.id <= newest - _KEPT))
    return uuid


# Asked each second of each cell.
_NEWEST = select(epochs.c.uuid).order_by(epochs.c.id.desc()).limit(1)


def current_epoch(connection: Connection) -> str | None:
    return connection.execute(_NEWEST).scalar_one_or_none()


_POSITION = select(_NEWEST.scalar_subquery(), cell_state.c.last_sequence)


def read_position(connection: Connection) -> Position:
    """As of fleetlight.cells.model.ChangelogAdapter."""
    return Position(*connection.execute(_POSITION).one())
