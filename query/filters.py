"""What a request keeps, as a tree of values: the shape (query.tree) and every operator (query.operators)."""

from query.operators.addresses import HasAddress, LacksAddress
from query.operators.comparison import Eq, Ge, Gt, In, Le, Lt, Ne, NotIn
from query.operators.lists import Has, Lacks
from query.operators.negation import IsNotNull, IsNull, Negation, Not
from query.operators.text import Matches, NotMatches
from query.tree import (
    EVERYTHING,
    NOTHING,
    And,
    Filter,
    Leaf,
    Or,
    all_of,
    any_of,
    leaves,
    negate,
    split_expressible,
    with_leaves,
)

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
    "In",
    "IsNotNull",
    "IsNull",
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
    "leaves",
    "negate",
    "split_expressible",
    "with_leaves",
]
