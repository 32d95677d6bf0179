"""Positions of instances' changes in the changelog of their cell."""

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
    """The sequence of a change, and the epoch history of its cell."""

    sequence: int
    epoch_history: EpochHistory

    def is_covered_by(self, epoch: str | None, watermark: int) -> bool:
        """Whether a reader that has followed `epoch` of the cell up to `watermark` knows the change.

        Not if it has followed a future that the cell lost when it was restored: there the number belonged to another
        change.
        """
        if self.sequence > watermark:
            return False
        return epoch is not None and self.epoch_history.contains(epoch, watermark)


def position_of(engine: Engine, cell: Cell, instance_uuid: str, revision: int) -> Numbered | None:
    """The sequence up to which a reader of the changelog must follow to know this revision, or a newer one.

    None while the relay has not numbered it. It is never below the change's own sequence, and above it only if the
    changelog has forgotten the change. Raises ChangeNotFoundError if the cell has no such revision, and
    CellUnreachableError.
    """
    of_instance = (changes.c.instance_uuid == instance_uuid, changes.c.revision >= revision)
    # Changes of one instance are numbered in the order of its revisions, so the lowest number is that of the first.
    statement = select(
        select(instances.c.revision).where(instances.c.uuid == instance_uuid).scalar_subquery().label("newest"),
        select(func.min(changes.c.sequence)).where(*of_instance).scalar_subquery().label("sequence"),
        select(func.count()).where(*of_instance, changes.c.sequence.is_(None)).scalar_subquery().label("unnumbered"),
        select(func.min(changes.c.sequence)).scalar_subquery().label("oldest"),
        cell_state.c.last_sequence,
    ).select_from(cell_state)
    with cell_failures(cell.name), engine.connect() as connection:
        # Read this first, since an older epoch history covers less.
        epoch_history = read_epoch_history(connection)
        row = connection.execute(statement).one()
    if row.newest is None or row.newest < revision:
        raise ChangeNotFoundError(instance_uuid, revision)
    if row.sequence is not None:
        return Numbered(int(row.sequence), epoch_history)
    if row.unnumbered:
        return None
    return Numbered(int(row.last_sequence if row.oldest is None else row.oldest - 1), epoch_history)
