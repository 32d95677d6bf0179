"""Sums over `allocations`: what instances take up of the nodes of a native cell."""

from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Select, case, cast, func, select

from fleetlight.cells.tables import SIZES, allocations

# A sum of big integers is a fraction on PostgreSQL, of which no whole number would come.
ALLOCATED = tuple(cast(func.sum(allocations.c[size]), BigInteger).label(size) for size in SIZES)
"""The columns of the sums, in the order of `Amount.of_gib`."""


def allocated_by_node(*conditions: ColumnElement[bool]) -> Select[tuple[Any, ...]]:
    """node_id, instance_count, reservation_count (of those), ALLOCATED; without nodes of which no such allocation is.

    conditions: on `allocations`. Only what they keep is summed up; databases do not find that out by themselves.
    """
    count = func.count().label("instance_count")
    reserved = func.count(case((allocations.c.is_forthcoming, 1))).label("reservation_count")
    return select(allocations.c.node_id, count, reserved, *ALLOCATED).where(*conditions).group_by(allocations.c.node_id)
