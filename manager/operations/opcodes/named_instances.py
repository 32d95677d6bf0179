"""Lookups of instances of a native cell by the names in Ganeti's operations (contracts/ganeti-reservations, 3)."""

from collections.abc import Sequence

from sqlalchemy import ColumnElement, Connection, and_, func, literal, select

from fleetlight.cells.tables import instances, job_operations
from fleetlight.resources.uuids import is_uuid

_CREATION = "OP_INSTANCE_CREATE"
_MOST = 2
"""Two instances are enough to know that a name is ambiguous."""


def instances_called(connection: Connection, name: str) -> Sequence[str]:
    """Return at most two uuids of the instances that `name` may mean: as a uuid, else as a name, else as a prefix.

    Names in the same case go before names in another case. A prefix ends at a dot of the name.
    """
    if is_uuid(name) and (found := _found(connection, instances.c.uuid == name)):
        return found
    column = instances.c.display_name
    # The index on names serves only the comparison in the same case.
    for written, wanted in ((column, literal(name)), (func.lower(column), func.lower(name))):
        # The slash is the character behind the dot, so this range has all texts that begin with the name and a dot.
        begins = and_(written >= wanted.concat("."), written < wanted.concat("/"))
        if found := _found(connection, written == wanted) or _found(connection, begins):
            return found
    return []


def instances_with_name(connection: Connection, name: str) -> Sequence[str]:
    """Return at most two uuids of instances with exactly this name, or else of those that running creations make."""
    if found := _found(connection, instances.c.display_name == name):
        return found
    of = job_operations.c
    making = of.operation == _CREATION, of.ended_at.is_(None), of.summary == f"{_CREATION.removeprefix('OP_')}({name})"
    return connection.scalars(select(of.instance_uuid).where(*making, of.instance_uuid.is_not(None)).limit(_MOST)).all()


def _found(connection: Connection, is_called: ColumnElement[bool]) -> Sequence[str]:
    statement = select(instances.c.uuid).where(instances.c.deleted.is_(False), is_called).limit(_MOST)
    return connection.scalars(statement).all()
