"""Filters in plain Python: the oracle that the other compilers are tested against, and the filter of live rows.

Written for itself, sharing no step with the compilers beside it, since it has to tell when they are wrong.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, assert_never

from query.filters import (
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
    Leaf,
    Lt,
    Matches,
    Ne,
    NotIn,
    NotMatches,
    Or,
)
from query.page import PageRequest
from query.regex import compile_pattern
from query.text_forms import text_form
from resources.fields import FieldSet, Record

Matcher = Callable[[Record], bool]


def evaluate(node: Filter, record: Record, fields: FieldSet) -> bool:
    """Whether `node` is true of the record: not when it is false, and not when a null leaves it open."""
    return matcher(node, fields)(record)


def matcher(node: Filter, fields: FieldSet) -> Matcher:
    """A function that says whether the tree is true of a record; `node` has passed query.check."""
    match node:
        case And(terms):
            all_terms = [matcher(term, fields) for term in terms]
            return lambda record: all(is_true(record) for is_true in all_terms)
        case Or(terms):
            any_terms = [matcher(term, fields) for term in terms]
            return lambda record: any(is_true(record) for is_true in any_terms)
        case _:
            return _leaf_matcher(node, fields)


def sorted_page(records: Iterable[Record], request: PageRequest, fields: FieldSet) -> list[Record]:
    """The page that every source must deliver for these records."""
    order = request.order
    is_true = matcher(request.filter, fields)
    rows = sorted(
        ((order.comparable(order.values(record)), record) for record in records if is_true(record)),
        key=lambda row: row[0],
    )
    if request.after is not None:
        position = order.comparable(request.after)
        rows = [row for row in rows if position < row[0]]
    return [record for _, record in rows[: request.limit]]


def fixed_addresses(addresses: Sequence[Mapping[str, Any]] | None) -> Iterator[str]:
    """The fixed ones of an instance's `ip_addresses`; those without a type are."""
    return (str(entry["address"]) for entry in addresses or () if entry.get("type", "fixed") == "fixed")


def _leaf_matcher(leaf: Leaf, fields: FieldSet) -> Matcher:
    name = leaf.field
    stored = fields[name].stored
    match leaf:
        case Eq(_, value):
            wanted: Any = stored(value)
            return lambda record: record[name] is not None and bool(record[name] == wanted)
        case Ne(_, value):
            unwanted: Any = stored(value)
            return lambda record: record[name] is not None and bool(record[name] != unwanted)
        case In(_, values):
            any_wanted = {stored(value) for value in values}
            return lambda record: record[name] is not None and record[name] in any_wanted
        case NotIn(_, ()):
            return lambda _: True
        case NotIn(_, values):
            all_unwanted = {stored(value) for value in values}
            return lambda record: record[name] is not None and record[name] not in all_unwanted
        case Lt(_, value):
            upper: Any = stored(value)
            return lambda record: record[name] is not None and bool(record[name] < upper)
        case Le(_, value):
            highest: Any = stored(value)
            return lambda record: record[name] is not None and bool(record[name] <= highest)
        case Gt(_, value):
            lower: Any = stored(value)
            return lambda record: record[name] is not None and bool(record[name] > lower)
        case Ge(_, value):
            lowest: Any = stored(value)
            return lambda record: record[name] is not None and bool(record[name] >= lowest)
        case IsNull():
            # An absent list is an empty one.
            is_list = fields[name].is_list
            return lambda record: record[name] is None and not is_list
        case IsNotNull():
            is_list = fields[name].is_list
            return lambda record: record[name] is not None or is_list
        case Matches(_, pattern):
            search, text = compile_pattern(pattern).search, text_form(fields[name].kind) or str
            return lambda record: record[name] is not None and search(text(record[name])) is not None
        case NotMatches(_, pattern):
            search, text = compile_pattern(pattern).search, text_form(fields[name].kind) or str
            return lambda record: record[name] is not None and search(text(record[name])) is None
        case HasAddress(_, part):
            return lambda record: any(part in address for address in fixed_addresses(record[name]))
        case LacksAddress(_, part):
            return lambda record: not any(part in address for address in fixed_addresses(record[name]))
        case Has(_, element):
            return lambda record: element in (record[name] or ())
        case Lacks(_, element):
            return lambda record: element not in (record[name] or ())
        case _:
            assert_never(leaf)
