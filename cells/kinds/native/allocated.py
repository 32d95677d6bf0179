"""Sums over `allocations`: the resources of a native cell's nodes that instances use."""

from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Select, case, cast, func, select

from fleetlight.cells.tables import SIZES, allocations

# PostgreSQL sums big integers to a numeric, which is no integer in Python.
ALLOCATED = tuple(cast(func.sum(allocations.c[size]), BigInteger).label(size) for size in SIZES)
"""The columns of the sums, in the order of `Amount.of_gib`."""


def allocated_by_node(*conditions: ColumnElement[bool]) -> Select[tuple[Any, ...]]:
    """Selects node_id, instance_count, reservation_count (of those) and ALLOCATED of nodes with such allocations.

    conditions: on `allocations`, applied before the sums, since databases do not push them down.
    """
    count = func.count().label("instance_count")
    reserved = func.count(case((allocations.c.is_forthcoming, 1))).label("reservation_count")
    return select(allocations.c.node_id, count, reserved, *ALLOCATED).where(*conditions).group_by(allocations.c.node_id)
