"""The shape of a filter: leaves, each of which is one operator on one field, joined by And and Or.

Logic is three-valued, as in SQL: a leaf on a null field is neither true nor false, and neither is its negation; only
rows for which the whole tree is *true* match. So `negate` pushes every NOT down to the leaves before compilation
(docs/architecture.md, "Rules"), and a compiler needs no NOT.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from fleetlight.query.sql import Predicate, SqlColumn, SqlDialect
from fleetlight.resources.fields import Field, ItemType, Record

Matcher = Callable[[Record], bool]
Dsl = dict[str, Any]
Store = SqlDialect | Literal["elasticsearch"]


@dataclass(frozen=True, slots=True)
class And:
    """Every term is true; true without terms."""

    terms: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class Or:
    """At least one term is true; false without terms."""

    terms: tuple["Filter", ...]


@dataclass(frozen=True, slots=True)
class Leaf(ABC):
    """One operator on one field. Everything about an operator is in its class (fleetlight.query.operators).

    The walks over trees (below, and in fleetlight.query.evaluate, to_sql and to_dsl) know no operator: a new one is a
    frozen dataclass with the abstract methods below. Its `matcher` shares no code with `sql` and `dsl`, so that tests
    show when these are wrong.

    can_be_open: whether it is open, neither true nor false, of a null; false of operators on lists, which are no null.
    """

    field: str
    can_be_open: ClassVar[bool] = True

    @abstractmethod
    def negated(self) -> "Leaf":
        """The leaf that is true if and only if this one is false (fleetlight.query.operators.comparison)."""

    @abstractmethod
    def check(self, field: Field) -> None:
        """Raises UnknownFieldError, FilterValueError or RegularExpressionError unless it fits `field`."""

    @abstractmethod
    def matcher(self, field: Field) -> Matcher:
        """A function that tells whether the leaf matches a record."""

    def lowered(self, field: Field) -> "Filter":  # for those that depend on it
        """The same condition with operators of stores and stored values."""
        return self

    def fitted(self, store: Store) -> "Filter":
        """The lowered leaf without values that `store` can never have, so that none is sent there."""
        return self

    def fits_sql(self, dialect: SqlDialect) -> bool:
        """Whether `sql` has an exact predicate in this dialect."""
        return True

    @abstractmethod
    def sql(self, column: SqlColumn) -> Predicate:
        """The predicate of the lowered and fitted leaf, NULL if it is open. Raises NotExpressibleError."""

    @abstractmethod
    def dsl(self, field: Field) -> Dsl:
        """Elasticsearch's query for the lowered and fitted leaf. Raises NotExpressibleError."""


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
    """The tree that is true if and only if `node` is false (not if it is open)."""
    match node:
        case And(terms):
            return Or(tuple(negate(term) for term in terms))
        case Or(terms):
            return And(tuple(negate(term) for term in terms))
    return node.negated()


def leaves(node: Filter) -> Iterator[Leaf]:
    """Every leaf of the tree, left to right."""
    match node:
        case And(terms) | Or(terms):
            for term in terms:
                yield from leaves(term)
        case _:
            yield node


def with_leaves(node: Filter, replacement: Callable[[Leaf], Filter]) -> Filter:
    """The tree with each leaf replaced, without an `And` directly inside an `And` or an `Or` inside an `Or`."""
    match node:
        case And(terms):
            return all_of(*(with_leaves(term, replacement) for term in terms))
        case Or(terms):
            return any_of(*(with_leaves(term, replacement) for term in terms))
    return replacement(node)


def check(node: Filter, fields: ItemType) -> None:
    """Check a filter before it is compiled, so that no route fails late.

    Raises UnknownFieldError, FilterValueError or RegularExpressionError for the first leaf that does not fit.
    """
    for leaf in leaves(node):
        leaf.check(fields.require(leaf.field, "filter"))


def lower(node: Filter, fields: ItemType, store: Store) -> Filter:
    """An equivalent tree with operators of a store, as a common step before SQL and Elasticsearch.

    Its leaves have stored values; it has no null test of a list, no empty `In`, and no value that the store can never
    have. `node` has passed `check`.
    """
    return with_leaves(node, lambda leaf: fit(leaf.lowered(fields[leaf.field]), store))


def fit(node: Filter, store: Store) -> Filter:
    """A lowered tree without values that `store` can never have."""
    return with_leaves(node, lambda leaf: leaf.fitted(store))


def split_expressible(node: Filter, can_express: Callable[[Filter], bool]) -> tuple[Filter, Filter]:
    """Split a filter into the part that a source can apply itself, and the rest to apply to its rows.

    Only the terms of an `And` at the top can be separated. The conjunction of both results is equivalent to `node`.
    """
    terms = node.terms if isinstance(node, And) else (node,)
    expressible = all_of(*(term for term in terms if can_express(term)))
    return expressible, all_of(*(term for term in terms if not can_express(term)))
