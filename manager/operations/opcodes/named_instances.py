"""Instances of a native cell by the names that operations of Ganeti use (contracts/ganeti-reservations, 3)."""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, and_, func, literal, select

from fleetlight.cells.tables import instances, job_operations
from fleetlight.resources.uuids import is_uuid

_CREATION = "OP_INSTANCE_CREATE"
_MOST = 2
"""Two are as good as more: what is called so is not one instance."""


def instances_called(connection: Connection, name: str) -> Sequence[str]:
    """The uuids of the instances that `name` may mean, at most two: a uuid, else a name, else what begins one.

    A name counts in any case; its beginning has to end at a dot, and is looked at only if none has it as a whole.
    """
    if is_uuid(name) and (found := _found(connection, instances.c.uuid == name)):
        return found
    column = instances.c.display_name
    # An index has names as they are written, so that is looked for first.
    for written, wanted in ((column, literal(name)), (func.lower(column), func.lower(name))):
        # The slash comes behind the dot: between them is what begins with the name and a dot.
        begins = and_(written >= wanted.concat("."), written < wanted.concat("/"))
        if found := _found(connection, written == wanted) or _found(connection, begins):
            return found
    return []


def instances_with_name(connection: Connection, name: str) -> Sequence[str]:
    """The uuids of instances that have this name as a whole, or that a creation which has not ended is to give it."""
    if found := _found(connection, instances.c.display_name == name):
        return found
    of = job_operations.c
    making = of.operation == _CREATION, of.ended_at.is_(None), of.summary == f"{_CREATION.removeprefix('OP_')}({name})"
    return connection.scalars(select(of.instance_uuid).where(*making, of.instance_uuid.is_not(None)).limit(_MOST)).all()


def _found(connection: Connection, is_called: ColumnElement[bool]) -> Sequence[str]:
    statement = select(instances.c.uuid).where(instances.c.deleted.is_(False), is_called).limit(_MOST)
    return connection.scalars(statement).all()
