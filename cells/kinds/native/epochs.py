"""Epochs: the histories to which the sequences of a cell's changes belong.

A database that was restored from a backup gives the same sequences to other changes. So each relay that takes over
begins a new epoch, and stores the last sequence before it. Each message carries its epoch. After a restore, the epoch
that indexers know ends where the new one begins, or is missing: its later sequences are void (docs/decisions/0001).
"""

from uuid import uuid4

from sqlalchemy import Connection, delete, func, insert, select

from fleetlight.cells.epochs import EpochHistory, Position
from fleetlight.cells.tables import cell_state, epochs

# Each start of a relay adds one. An indexer that knows only pruned epochs syncs its cell.
_KEPT = 1000


def read_epoch_history(connection: Connection) -> EpochHistory:
    """The kept epochs of the cell, oldest first."""
    columns = epochs.c
    rows = connection.execute(select(columns.uuid, columns.after_sequence).order_by(columns.id))
    return EpochHistory([(row.uuid, row.after_sequence) for row in rows])


def begin_epoch(connection: Connection) -> str:
    """Begin an epoch in the transaction of `connection`, in which alone sequences are assigned; returns it."""
    last = connection.execute(select(cell_state.c.last_sequence).with_for_update()).scalar_one()
    uuid = str(uuid4())
    connection.execute(insert(epochs).values(uuid=uuid, after_sequence=last))
    newest = select(func.max(epochs.c.id)).scalar_subquery()
    connection.execute(delete(epochs).where(epochs.c.id <= newest - _KEPT))
    return uuid


# Queried each second in each cell.
_NEWEST = select(epochs.c.uuid).order_by(epochs.c.id.desc()).limit(1)


def current_epoch(connection: Connection) -> str | None:
    return connection.execute(_NEWEST).scalar_one_or_none()


_POSITION = select(_NEWEST.scalar_subquery(), cell_state.c.last_sequence)


def read_position(connection: Connection) -> Position:
    """The highest sequence, and the newest epoch."""
    return Position(*connection.execute(_POSITION).one())
