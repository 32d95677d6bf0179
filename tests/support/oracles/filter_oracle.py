"""What a filter keeps and which page an order gives, in plain Python: the oracle of every compiler and of live rows.

Written from what the operators are documented to mean, and sharing no step with the product: a filter is true, false or
open (None), as in SQL, and keeps what it is true of.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cmp_to_key
from typing import Any

import re2

from fleetlight.query.filters import (
    And,
    Eq,
    Filter,
    Ge,
    Gt,
    Has,
    HasAddress,
    HasAny,
    HasName,
    HasNone,
    HasOneName,
    HasOtherName,
    In,
    IsFalse,
    IsNotNull,
    IsNull,
    IsTrue,
    Lacks,
    LacksAddress,
    Le,
    Lt,
    Matches,
    Ne,
    Not,
    NotIn,
    NotMatches,
    Or,
)
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import Collation, Direction, SortOrder
from fleetlight.resources.fields import Field, ItemType, Kind
from tests.support.oracles.nice_order import parts

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
AnyRecord = Mapping[str, Any]
Truth = bool | None


def is_kept(node: Filter, record: AnyRecord, fields: ItemType) -> bool:
    return _truth(node, record, fields) is True


def expected_page(records: Iterable[AnyRecord], request: PageRequest, fields: ItemType) -> list[AnyRecord]:
    """The page that every source must deliver for these records."""
    kept = [record for record in records if is_kept(request.filter, record, fields)]
    kept.sort(key=cmp_to_key(lambda one, other: _compare(request.order, _place(one, request), _place(other, request))))
    if request.after is not None:
        after = list(request.after)
        kept = [record for record in kept if _compare(request.order, after, _place(record, request)) < 0]
    return kept[: request.limit]


def is_behind(record: AnyRecord, order: SortOrder, position: Iterable[Any]) -> bool:
    """Whether the record comes after what is at that position."""
    return _compare(order, list(position), [record[key.field] for key in order.keys]) < 0


def _place(record: AnyRecord, request: PageRequest) -> list[Any]:
    return [record[key.field] for key in request.order.keys]


def _compare(order: SortOrder, one: list[Any], other: list[Any]) -> int:
    """Below zero when `one` comes first. A null is lower than every value; texts compare by code point."""
    for key, *values in zip(order.keys, one, other, strict=True):
        is_nice = key.collation is Collation.NICE
        left, right = (parts(value) if is_nice and value is not None else value for value in values)
        if left == right:
            continue
        is_lower = left is None or (right is not None and left < right)
        return -1 if is_lower == (key.direction is Direction.ASC) else 1
    return 0


def _truth(node: Filter, record: AnyRecord, fields: ItemType) -> Truth:
    match node:
        case And(terms):
            return _all([_truth(term, record, fields) for term in terms])
        case Or(terms):
            return _not(_all([_not(_truth(term, record, fields)) for term in terms]))
        case Not(_, leaf):
            return _not(_truth(leaf, record, fields))
        case Ne(field, value):
            return _not(_truth(Eq(field, value), record, fields))
        case NotIn(field, values):
            return _not(_truth(In(field, values), record, fields))
        case NotMatches(field, pattern):
            return _not(_truth(Matches(field, pattern), record, fields))
        case HasOtherName(field, name):
            return _not(_truth(HasName(field, name), record, fields))
        case IsFalse(field):
            return _not(_truth(IsTrue(field), record, fields))
        case Lacks(field, element):
            return element not in _elements(record[field])
        case HasNone(field):
            return _elements(record[field]) == []
        case LacksAddress(field, part):
            return not any(part in address for address in _fixed(record[field]))
    return _leaf_truth(node, record[node.field], fields[node.field])


def _leaf_truth(leaf: Filter, value: Any, field: Field) -> Truth:
    match leaf:
        case IsNull():
            return value is None and not field.is_list
        case IsNotNull():
            return value is not None or field.is_list
        case Has(_, element):
            return element in _elements(value)
        case HasAny():
            return len(_elements(value)) > 0
        case HasAddress(_, part):
            return any(part in address for address in _fixed(value))
        case IsTrue() if field.is_list:
            return len(_elements(value)) > 0
        case In(_, ()):
            return False
    if value is None:
        return None
    match leaf:
        case Eq(_, wanted):
            return bool(value == _stored(wanted))
        case In(_, values):
            return any(value == _stored(wanted) for wanted in values)
        case Lt(_, bound):
            return bool(value < _stored(bound))
        case Le(_, bound):
            return bool(value <= _stored(bound))
        case Gt(_, bound):
            return bool(value > _stored(bound))
        case Ge(_, bound):
            return bool(value >= _stored(bound))
        case Matches(_, pattern):
            return re2.search(pattern, _text(value, field)) is not None
        case HasName(_, name):
            full, short = _folded(value), _folded(name)
            return full == short or full[: len(short) + 1] == short + "."
        case HasOneName(_, names):
            return any(_leaf_truth(HasName(leaf.field, name), value, field) for name in names)
        case IsTrue():
            return value not in (False, 0, "")
    raise NotImplementedError(f"the oracle does not know {leaf}")


def _all(truths: list[Truth]) -> Truth:
    if False in truths:
        return False
    return None if None in truths else True


def _not(truth: Truth) -> Truth:
    return None if truth is None else not truth


def _elements(value: Any) -> list[str]:
    return [] if value is None else list(value)


def _fixed(addresses: Any) -> list[str]:
    """Texts of the addresses that are not said to be of another type than `fixed`."""
    return [entry["address"] for entry in addresses or [] if "type" not in entry or entry["type"] == "fixed"]


def _stored(value: Any) -> Any:
    return (value - _EPOCH) // timedelta(microseconds=1) if isinstance(value, datetime) else value


def _text(value: Any, field: Field) -> str:
    if field.kind is Kind.TIMESTAMP:
        return f"{_EPOCH + timedelta(microseconds=value):%Y-%m-%d %H:%M:%S}"
    return str(value)


def _folded(text: str) -> str:
    """With the letters A to Z in lower case, and no others."""
    return "".join(chr(ord(letter) + 32) if "A" <= letter <= "Z" else letter for letter in text)
