"""Filter trees: their shape (fleetlight.query.tree) and all operators (fleetlight.query.operators)."""

from typing import Any

from fleetlight.query.operators.comparison import (
    Eq,
    Ge,
    Gt,
    In,
    IsNotNull,
    IsNull,
    Le,
    Lt,
    Ne,
    Negation,
    Not,
    NotIn,
    or_missing,
)
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


def keys_in(node: Filter, unique: str) -> set[Any] | None:
    """The values of the `unique` field that a matching item can have; None for any value."""
    match node:
        case Eq(field, value) if field == unique:
            return {value}
        case In(field, values) if field == unique:
            return set(values)
        case IsNull(field) if field == unique:
            return set()
        case Or(terms):
            parts = [keys_in(term, unique) for term in terms]
            return None if None in parts else set[Any]().union(*filter(None, parts))
        case And(terms):
            named = [keys for term in terms if (keys := keys_in(term, unique)) is not None]
            return set.intersection(*named) if named else None
    return None


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
    "keys_in",
    "leaves",
    "lower",
    "negate",
    "or_missing",
    "split_expressible",
    "with_leaves",
]
