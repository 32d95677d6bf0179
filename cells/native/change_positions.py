"""Where a change of an instance is in the changelog of its cell."""

from functools import partial

from sqlalchemy import Engine, func, select

from cells.database import translated_failures
from cells.errors import CellUnreachableError, ChangeNotFoundError
from cells.model import Cell
from cells.tables import cell_state, changes, instances


def sequence_of(engine: Engine, cell: Cell, instance_uuid: str, revision: int) -> int | None:
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
    with translated_failures(partial(CellUnreachableError, cell.name)), engine.connect() as connection:
        row = connection.execute(statement).one()
    if row.newest is None or row.newest < revision:
        raise ChangeNotFoundError(instance_uuid, revision)
    if row.sequence is not None:
        return int(row.sequence)
    if row.unnumbered:
        return None
    return int(row.last_sequence if row.oldest is None else row.oldest - 1)
