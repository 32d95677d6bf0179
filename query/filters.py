"""Filters as trees of values: the shape (fleetlight.query.tree) and every operator (fleetlight.query.operators)."""

from fleetlight.query.operators.comparison import Eq, Ge, Gt, In, IsNotNull, IsNull, Le, Lt, Ne, Negation, Not, NotIn
from fleetlight.query.operators.lists import Has, HasAddress, HasAny, HasNone, Lacks, LacksAddress
from fleetlight.query.operators.text import HasName, HasOneName, HasOtherName, Matches, NotMatches
from fleetlight.query.operators.truth import IsFalse, IsTrue
from fleetlight.query.tree import (
    EVERYTHING,
    NOTHING,
    And,
    Filter,
    Leaf,
    Or,
    all_of,
    any_of,
    check,
    fit,
    leaves,
    lower,
    negate,
    split_expressible,
    with_leaves,
)


def or_missing(leaf: Leaf) -> Filter:
    """True of a null too: Query2 keeps what there is no data to judge by, and its negation drops it."""
    return any_of(leaf, IsNull(leaf.field))


__all__ = [
    "EVERYTHING",
    "NOTHING",
    "And",
    "Eq",
    "Filter",
    "Ge",
    "Gt",
    "Has",
    "HasAddress",
    "HasAny",
    "HasName",
    "HasNone",
    "HasOneName",
    "HasOtherName",
    "In",
    "IsFalse",
    "IsNotNull",
    "IsNull",
    "IsTrue",
    "Lacks",
    "LacksAddress",
    "Le",
    "Leaf",
    "Lt",
    "Matches",
    "Ne",
    "Negation",
    "Not",
    "NotIn",
    "NotMatches",
    "Or",
    "all_of",
    "any_of",
    "check",
    "fit",
    "leaves",
    "lower",
    "negate",
    "or_missing",
    "split_expressible",
    "with_leaves",
]
