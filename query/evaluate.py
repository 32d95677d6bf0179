"""Evaluates filters in plain Python: the filter of live rows, and the oracle in tests of the compilers."""

from collections.abc import Callable, Iterable
from heapq import nsmallest
from operator import itemgetter
from typing import TypeVar

from fleetlight.query.filters import And, Filter, Or
from fleetlight.query.page import PageRequest
from fleetlight.query.tree import Matcher
from fleetlight.resources.fields import ItemType, Record

T = TypeVar("T")


def evaluate(node: Filter, record: Record, fields: ItemType) -> bool:
    """Whether `node` is true of the record, and neither false nor, because of a null, open."""
    return matcher(node, fields)(record)


def matcher(node: Filter, fields: ItemType) -> Matcher:
    """A function that tells whether the tree matches a record; `node` has passed fleetlight.query.tree.check."""
    match node:
        case And(terms):
            all_terms = [matcher(term, fields) for term in terms]
            return lambda record: all(is_true(record) for is_true in all_terms)
        case Or(terms):
            any_terms = [matcher(term, fields) for term in terms]
            return lambda record: any(is_true(record) for is_true in any_terms)
    return node.matcher(fields[node.field])


def sorted_page(records: Iterable[Record], request: PageRequest) -> list[Record]:
    """The page that every source must return for these records."""
    is_true = matcher(request.filter, request.item_type)
    return first_of(filter(is_true, records), request, lambda record: record)


def first_of(rows: Iterable[T], request: PageRequest, record_of: Callable[[T], Record]) -> list[T]:
    """The page among rows that match the filter, with no more than the page in memory."""
    order = request.order
    placed = ((order.comparable(order.values(record_of(row))), row) for row in rows)
    if request.after is not None:
        start = order.comparable(request.after)
        placed = ((place, row) for place, row in placed if start < place)
    return [row for _, row in nsmallest(request.limit, placed, key=itemgetter(0))]
