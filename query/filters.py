"""The filter tree: what a request keeps, as values.

Meaning is three-valued, as in SQL: a leaf about a field that is null is neither true nor false, and neither is its
negation; only rows for which the whole tree is *true* are kept. `negate` therefore pushes every NOT down to the leaves
before any compiler sees it (DESIGN, decision 8), so a compiler needs no NOT. Lists are never null: `Lacks` is true of
an empty list.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import assert_never

from resources.fields import Scalar


@dataclass(frozen=True, slots=True)
class And:
    """Every term is true; true when there are none."""

    terms: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one term is true; false when there are none."""

    terms: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class Eq:
    field: str
    value: Scalar


@dataclass(frozen=True, slots=True)
class Ne:
    """`field` differs from `value`; not true of a null."""

    field: str
    value: Scalar


@dataclass(frozen=True, slots=True)
class In:
    """`field` is one of `values`; false when there are none."""

    field: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class NotIn:
    """`field` is none of `values`; not true of a null, unless there are no values."""

    field: str
    values: tuple[Scalar, ...]


@dataclass(frozen=True, slots=True)
class Lt:
    field: str
    value: Scalar


@dataclass(frozen=True, slots=True)
class Le:
    field: str
    value: Scalar


@dataclass(frozen=True, slots=True)
class Gt:
    field: str
    value: Scalar


@dataclass(frozen=True, slots=True)
class Ge:
    field: str
    value: Scalar


@dataclass(frozen=True, slots=True)
class IsNull:
    field: str


@dataclass(frozen=True, slots=True)
class IsNotNull:
    field: str


@dataclass(frozen=True, slots=True)
class Matches:
    """The text of `field` contains a match of `pattern` (search, case-sensitive, RE2 syntax; see query.regex).

    Numbers and times have a text too: see query.text_forms.
    """

    field: str
    pattern: str


@dataclass(frozen=True, slots=True)
class NotMatches:
    """The text of `field` contains no match of `pattern`; not true of a null."""

    field: str
    pattern: str


@dataclass(frozen=True, slots=True)
class Has:
    """A list `field` holds `value`."""

    field: str
    value: str


@dataclass(frozen=True, slots=True)
class Lacks:
    """A list `field` does not hold `value`; true of an empty list."""

    field: str
    value: str


@dataclass(frozen=True, slots=True)
class HasAddress:
    """Among the addresses of networks in `field` is a fixed one that contains `text`."""

    field: str
    text: str


@dataclass(frozen=True, slots=True)
class LacksAddress:
    """Among the addresses of networks in `field` is no fixed one that contains `text`; true when there are none."""

    field: str
    text: str


Leaf = (
    Eq
    | Ne
    | In
    | NotIn
    | Lt
    | Le
    | Gt
    | Ge
    | IsNull
    | IsNotNull
    | Matches
    | NotMatches
    | Has
    | Lacks
    | HasAddress
    | LacksAddress
)
Filter = And | Or | Leaf

EVERYTHING = And(())
NOTHING = Or(())


def all_of(*terms: Filter) -> Filter:
    """The conjunction of `terms`, flat, without terms that are always true."""
    flat: list[Filter] = []
    for term in terms:
        flat.extend(term.terms if isinstance(term, And) else (term,))
    return flat[0] if len(flat) == 1 else And(tuple(flat))


def any_of(*terms: Filter) -> Filter:
    """The disjunction of `terms`, flat, without terms that are always false."""
    flat: list[Filter] = []
    for term in terms:
        flat.extend(term.terms if isinstance(term, Or) else (term,))
    return flat[0] if len(flat) == 1 else Or(tuple(flat))


def negate(node: Filter) -> Filter:
    """The tree that is true exactly where `node` is false (not where it is unknown)."""
    match node:
        case And(terms):
            return Or(tuple(negate(term) for term in terms))
        case Or(terms):
            return And(tuple(negate(term) for term in terms))
        case Eq(field, value):
            return Ne(field, value)
        case Ne(field, value):
            return Eq(field, value)
        case In(field, values):
            return NotIn(field, values)
        case NotIn(field, values):
            return In(field, values)
        case Lt(field, value):
            return Ge(field, value)
        case Le(field, value):
            return Gt(field, value)
        case Gt(field, value):
            return Le(field, value)
        case Ge(field, value):
            return Lt(field, value)
        case IsNull(field):
            return IsNotNull(field)
        case IsNotNull(field):
            return IsNull(field)
        case Matches(field, pattern):
            return NotMatches(field, pattern)
        case NotMatches(field, pattern):
            return Matches(field, pattern)
        case Has(field, value):
            return Lacks(field, value)
        case Lacks(field, value):
            return Has(field, value)
        case HasAddress(field, text):
            return LacksAddress(field, text)
        case LacksAddress(field, text):
            return HasAddress(field, text)
        case _:
            assert_never(node)


def leaves(node: Filter) -> Iterator[Leaf]:
    """Every leaf of the tree, left to right."""
    match node:
        case And(terms) | Or(terms):
            for term in terms:
                yield from leaves(term)
        case _:
            yield node


def split_expressible(node: Filter, can_express: Callable[[Filter], bool]) -> tuple[Filter, Filter]:
    """Split into what a source can answer itself, and what has to be tried on the rows it returns.

    Only the terms of an `And` at the top can be taken apart. The conjunction of both results means what `node` means.
    """
    terms = node.terms if isinstance(node, And) else (node,)
    expressible = all_of(*(term for term in terms if can_express(term)))
    return expressible, all_of(*(term for term in terms if not can_express(term)))
