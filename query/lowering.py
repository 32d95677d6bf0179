"""Lowering of a filter, from the form in which callers state it to one that stores have: the steps that SQL and
Elasticsearch share.

The lowered tree has stored values in its leaves, no leaf about whether a list is null, no empty `In`, nothing that the
store can never hold, no `And` directly inside an `And`, no `Or` inside an `Or`.
"""

from collections.abc import Sequence
from typing import Any

from fleetlight.query.filters import (
    EVERYTHING,
    NOTHING,
    Eq,
    Filter,
    Ge,
    Gt,
    IsNotNull,
    IsNull,
    Le,
    Leaf,
    Lt,
    all_of,
    any_of,
    with_leaves,
)
from fleetlight.query.sort import Direction, SortKey, SortOrder
from fleetlight.query.tree import Store
from fleetlight.resources.fields import ItemType


def lower(node: Filter, fields: ItemType, store: Store) -> Filter:
    """The same meaning for every record. `node` has passed fleetlight.query.check."""
    return with_leaves(node, lambda leaf: fit(leaf.lowered(fields[leaf.field]), store))


def fit(node: Filter, store: Store) -> Filter:
    """A lowered tree without what `store` can never hold."""
    return node.fitted(store) if isinstance(node, Leaf) else with_leaves(node, lambda leaf: leaf.fitted(store))


def beyond(order: SortOrder, position: Sequence[Any]) -> Filter:
    """The rows after a position, as a lowered tree: the lexicographic chain, where a null is lower than every value.

    position: stored values of the order's keys.
    The chain is written out flat, (a) or (tie a, b) or (tie a, tie b, c): nested in itself it would be as deep as there
    are keys, and thirty keys overflow SQLite's parser stack.
    """
    ties: list[Filter] = []
    chain: list[Filter] = []
    for key, value in zip(order.keys, position, strict=True):
        chain.append(all_of(*ties, _after(key, value)))
        ties.append(IsNull(key.field) if value is None else Eq(key.field, value))
    return any_of(*chain)


def not_before(key: SortKey, value: Any) -> Filter:
    """The rows whose `key` alone does not exclude them from following `value`: a range that an index can find."""
    match key.direction, value:
        case Direction.ASC, None:
            return EVERYTHING
        case Direction.DESC, None:
            return IsNull(key.field)
        case Direction.ASC, _:
            return Ge(key.field, value)
    return any_of(Le(key.field, value), IsNull(key.field))


def next_beyond(order: SortOrder, position: Sequence[Any]) -> Filter | None:
    """Of the rows after a position, those that come first and that an index has in one range; None if it has them all.

    From high to low a value is followed by what is lower, and then by what has none. PostgreSQL looks for both at once
    by reading its index from the start, so that a page costs as much as all those before it.
    """
    first, value = order.keys[0], position[0]
    if value is None or first.direction is Direction.ASC or len(order.keys) == 1:
        return None
    return all_of(Le(first.field, value), beyond(order, position))


def _after(key: SortKey, value: Any) -> Filter:
    match key.direction, value:
        case Direction.ASC, None:
            return IsNotNull(key.field)
        case Direction.DESC, None:
            return NOTHING
        case Direction.ASC, _:
            return Gt(key.field, value)
    return any_of(Lt(key.field, value), IsNull(key.field))
