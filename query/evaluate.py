"""Filters in plain Python: the oracle that the other compilers are tested against, and the filter of live rows."""

from collections.abc import Iterable

from query.filters import And, Filter, Or
from query.page import PageRequest
from query.tree import Matcher
from resources.fields import FieldSet, Record


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
    return node.matcher(fields[node.field])


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
