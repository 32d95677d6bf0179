"""From a filter as it is asked to one that a store can be asked: the steps that SQL and Elasticsearch share.

The lowered tree has stored values in its leaves, no leaf about whether a list is null, no empty `In`, no number that
does not fit into 64 bits (drivers raise, servers differ), no `And` directly inside an `And`, no `Or` inside an `Or`.
"""

from collections.abc import Callable, Sequence
from typing import Any

from query.filters import (
    EVERYTHING,
    NOTHING,
    And,
    Eq,
    Filter,
    Ge,
    Gt,
    Has,
    HasAddress,
    In,
    IsNotNull,
    IsNull,
    Lacks,
    LacksAddress,
    Le,
    Lt,
    Matches,
    Ne,
    NotIn,
    NotMatches,
    Or,
    all_of,
    any_of,
)
from query.sort import UNIQUE_FIELD, Direction, SortKey, SortOrder
from resources.fields import FieldSet, Scalar

MIN_INTEGER = -(2**63)
MAX_INTEGER = 2**63 - 1


def lower(node: Filter, fields: FieldSet) -> Filter:
    """The same meaning for every record. `node` has passed query.check."""
    match node:
        case And(terms):
            return all_of(*(lower(term, fields) for term in terms))
        case Or(terms):
            return any_of(*(lower(term, fields) for term in terms))
        case IsNull(name) if fields[name].is_list:
            return NOTHING
        case IsNotNull(name) if fields[name].is_list:
            return EVERYTHING
        case In(name, values):
            return without_values(In(name, _stored(fields, name, values)), _is_too_big)
        case NotIn(name, values):
            return without_values(NotIn(name, _stored(fields, name, values)), _is_too_big)
        case Eq(name, value) | Ne(name, value):
            return without_values(type(node)(name, _stored_one(fields, name, value)), _is_too_big)
        case Lt(name, value) | Le(name, value) | Gt(name, value) | Ge(name, value):
            return _lower_range(type(node)(name, _stored_one(fields, name, value)))
        case IsNull() | IsNotNull() | Matches() | NotMatches() | Has() | Lacks() | HasAddress() | LacksAddress():
            return node


def without_values(leaf: Eq | Ne | In | NotIn, is_impossible: Callable[[Any], bool]) -> Filter:
    """The leaf without values that the store can never hold, so that none has to be sent there."""
    match leaf:
        case Eq(_, value):
            return NOTHING if is_impossible(value) else leaf
        case Ne(name, value):
            return IsNotNull(name) if is_impossible(value) else leaf
        case In(name, values):
            possible = tuple(value for value in values if not is_impossible(value))
            return In(name, possible) if possible else NOTHING
        case NotIn(_, ()):
            return EVERYTHING
        case NotIn(name, values):
            possible = tuple(value for value in values if not is_impossible(value))
            return NotIn(name, possible) if possible else IsNotNull(name)


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
    if value is None or first.direction is Direction.ASC or first.field == UNIQUE_FIELD:
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


def _stored_one(fields: FieldSet, name: str, value: Scalar) -> Any:
    return fields[name].stored(value)


def _stored(fields: FieldSet, name: str, values: tuple[Scalar, ...]) -> tuple[Any, ...]:
    return tuple(fields[name].stored(value) for value in values)


def _is_too_big(value: Any) -> bool:
    return isinstance(value, int) and not MIN_INTEGER <= value <= MAX_INTEGER


def _lower_range(leaf: Lt | Le | Gt | Ge) -> Filter:
    """A comparison with a number beyond 64 bits is true of every number there is, or of none."""
    if not _is_too_big(leaf.value):
        return leaf
    is_above = isinstance(leaf.value, int) and leaf.value > 0
    return IsNotNull(leaf.field) if is_above == isinstance(leaf, Lt | Le) else NOTHING
