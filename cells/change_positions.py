"""Positions of changes of instances in the changelog of their cell."""

from dataclasses import dataclass

from sqlalchemy import Engine, func, select

from fleetlight.cells.database.engines import cell_failures
from fleetlight.cells.epochs import EpochHistory
from fleetlight.cells.errors import ChangeNotFoundError
from fleetlight.cells.kinds.native.epochs import read_epoch_history
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import cell_state, changes, instances


@dataclass(frozen=True, slots=True)
class Numbered:
    """The sequence of a change, and the history of the cell that it is part of."""

    sequence: int
    epoch_history: EpochHistory

    def is_covered_by(self, epoch: str | None, watermark: int) -> bool:
        """Whether a reader that follows the cell up to `watermark`, as `epoch` calls it, knows the change.

        Not one that has followed it into a future that it lost when it was restored from a backup: there the same
        number was another change.
        """
        if self.sequence > watermark:
            return False
        return epoch is not None and self.epoch_history.contains(epoch, watermark)


def position_of(engine: Engine, cell: Cell, instance_uuid: str, revision: int) -> Numbered | None:
    """The sequence up to which the changelog has to be followed to know `revision` of an instance, or a newer one.

    None while the relay has not numbered it yet. It is not lower than that of the change itself, and higher only when
    the changelog has forgotten the change.
    Raises ChangeNotFoundError when the cell has no such revision, and CellUnreachableError.
    """
    of_instance = (changes.c.instance_uuid == instance_uuid, changes.c.revision >= revision)
    # One instance's changes are numbered in the order of its revisions, so the lowest number is that of the first.
    statement = select(
        select(instances.c.revision).where(instances.c.uuid == instance_uuid).scalar_subquery().label("newest"),
        select(func.min(changes.c.sequence)).where(*of_instance).scalar_subquery().label("sequence"),
        select(func.count()).where(*of_instance, changes.c.sequence.is_(None)).scalar_subquery().label("unnumbered"),
        select(func.min(changes.c.sequence)).scalar_subquery().label("oldest"),
        cell_state.c.last_sequence,
    ).select_from(cell_state)
    with cell_failures(cell.name), engine.connect() as connection:
        # First: a epoch history that is too old covers less.
        epoch_history = read_epoch_history(connection)
        row = connection.execute(statement).one()
    if row.newest is None or row.newest < revision:
        raise ChangeNotFoundError(instance_uuid, revision)
    if row.sequence is not None:
        return Numbered(int(row.sequence), epoch_history)
    if row.unnumbered:
        return None
    return Numbered(int(row.last_sequence if row.oldest is None else row.oldest - 1), epoch_history)
