"""Reads filters in the form of JSON lists, with the operator first, such as ["&", ["?", "admin_up"], ...].

contracts/ganeti-query, 3 defines the operators by kind of field. A missing value never excludes an item: a condition on
it is true, and a negated one is false.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from fleetlight.query.errors import ExpressionError, MalformedExpressionError, RegularExpressionError
from fleetlight.query.filters import (
    EVERYTHING,
    Eq,
    Filter,
    Ge,
    Gt,
    Has,
    HasName,
    HasOneName,
    In,
    IsTrue,
    Le,
    Leaf,
    Lt,
    Matches,
    all_of,
    any_of,
    negate,
    or_missing,
)
from fleetlight.query.operators.anything import AtTime, Compares, Contains, Finds, Same, SameAsOne, Says
from fleetlight.resources.errors import FilterValueError, UnknownFieldError
from fleetlight.resources.fields import ItemType, Kind, from_microseconds, to_microseconds
from fleetlight.resources.query_fields.definitions import FieldFlag, QueryField, is_time
from fleetlight.resources.suggestions import did_you_mean
from fleetlight.resources.units import MICROSECONDS_PER_SECOND, MOST_EXACT

MAX_LEVELS = 10
"""The most levels of nested lists, including the condition."""

_EQUAL = {"==", "="}
# The operators of conditions that OR and AND join to memberships.
_JOINED = {"|": _EQUAL, "&": {"!="}}
_SIZE_OF_COMPARISON = 3
_COMPARED: dict[str, Callable[[str, Any], Leaf]] = {"==": Eq, "<": Lt, "<=": Le, ">": Gt, ">=": Ge}
_NUMBER_OF_JOB = re.compile(r"[0-9]{1,18}")
_LONGEST_SHOWN = 80
_A_TIME = "seconds since the epoch, or a time such as '2026-11-28T18:00Z' (or, in a list, '10m ago')"
_AGO = re.compile(r"([0-9]{1,9}) ?([smhdw]) ago")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}

_Value = str | int | float
_VALUES = (str, int, float)


def to_filter(expression: object, fields: ItemType) -> Filter:
    """The tree of an expression; None matches everything. Raises ExpressionError, which says where and why.

    fields: QueryFields of the item type.
    """
    if expression is None:
        return EVERYTHING
    return _node(expression, fields, 0)


def at_moment(moment: int, expression: object, fields: ItemType, level: int = 0) -> object:
    """The expression with relative times such as '10m ago' replaced by absolute ones.

    moment: microseconds since the epoch. A caller that follows changes keeps its filter for long, and does not call
    this, so that relative times are refused there.
    """
    match expression:
        case ["|" | "&" | "!" as operator, *operands] if level < MAX_LEVELS:
            return [operator, *(at_moment(moment, operand, fields, level + 1) for operand in operands)]
        case [operator, str(name), str(value)] if is_time(fields.get(name)) and _AGO.fullmatch(value):
            return [operator, name, time_of(value, moment) / MICROSECONDS_PER_SECOND]
    return expression


def time_of(text: str, moment: int) -> int:
    """Microseconds since the epoch of a time in a filter; '10m ago' is relative to `moment`.

    Raises ValueError or OverflowError.
    """
    ago = _AGO.fullmatch(text)
    return _time(text) if ago is None else max(0, moment - int(ago[1]) * _SECONDS[ago[2]] * MICROSECONDS_PER_SECOND)


def _node(expression: object, fields: ItemType, level: int) -> Filter:
    if level >= MAX_LEVELS:
        raise MalformedExpressionError(f"Only up to {MAX_LEVELS} levels are allowed (filter nested too deep)")
    if not isinstance(expression, list) or not expression:
        raise MalformedExpressionError(
            f"Invalid filter on level {level}: {_shown(expression)} is no list with an operator"
        )
    operator, *operands = expression
    match operator:
        case "|" | "&":
            terms = _terms(operator, operands, fields, level + 1)
            return any_of(*terms) if operator == "|" else all_of(*terms)
        case "!":
            [operand] = _one(operator, operands)
            return negate(_node(operand, fields, level + 1))
        case "?":
            [name] = _one(operator, operands)
            field = _field(name, fields)
            return or_missing(Says(field.name) if _is_of_any_shape(field) else IsTrue(field.name))
        case "==" | "=" | "!=" | "<" | "<=" | ">" | ">=" | "=~" | "=[]":
            if len(operands) != 2:
                raise MalformedExpressionError(
                    f"Invalid binary operator, expected exactly two operands: {_shown(operator)} has {len(operands)}"
                )
            name, value = operands
            return _condition(operator, _field(name, fields), value)
    raise MalformedExpressionError(f"Unknown operator {_shown(operator)}")


def conditions_in(expression: object, fields: ItemType) -> tuple[int, int]:
    """The number of conditions in an expression, and of those with a pattern, without building or checking a tree.

    A membership of a field in several values counts as one condition, as in the tree (`one_of`).
    """
    conditions = patterns = 0
    rest = [expression]
    while rest:
        match rest.pop():
            case ["|" | "&" as operator, *operands]:
                members = [_member(operator, operand, fields) for operand in operands]
                conditions += len({member.name for member, _ in filter(None, members)})
                rest += (operand for operand, member in zip(operands, members, strict=True) if member is None)
            case ["!", *operands]:
                rest += operands
            case [operator, *_]:
                conditions += 1
                patterns += operator == "=~"
            case _:
                conditions += 1
    return conditions, patterns


def one_of(field: QueryField, values: Sequence[_Value]) -> Filter:
    """The filter that a field has one of several values, equivalent to `==` joined by OR. Raises ExpressionError."""
    values = [value for _, value in dict.fromkeys((type(value), value) for value in values)]
    if len(values) == 1 or not _has_memberships(field):
        return any_of(*(_condition("==", field, value) for value in values))
    try:
        leaf = _one_of(field, values)
        leaf.check(field)
    except FilterValueError as error:
        raise _unable(field, "==", error.value, error) from None
    except UnknownFieldError as error:
        raise ExpressionError(str(error)) from None
    return or_missing(leaf)


def named_one_of(field: QueryField, names: Sequence[_Value]) -> Filter:
    """As `one_of`, for a field with a name, but an item without a name does not match. Raises ExpressionError.

    A missing value never excludes an item (contracts/ganeti-query, 3), so an item without a name, such as some
    reservations, would match any name.
    """
    return all_of(_condition("!=", field, ""), one_of(field, names))


def _one_of(field: QueryField, values: Sequence[_Value]) -> Leaf:
    """Raises FilterValueError."""
    if field.kind is Kind.OTHER:
        return SameAsOne(field.name, tuple(values))
    if field.kind is Kind.TIMESTAMP:
        return In(field.name, tuple(_moment(field, value) for value in values))
    if FieldFlag.HOSTNAME in field.flags:
        names = [value for value in values if isinstance(value, str)]
        if len(names) == len(values):
            return HasOneName(field.name, tuple(names))
    return In(field.name, tuple(_with_point(field, value) for value in values))


def _terms(operator: str, operands: Sequence[object], fields: ItemType, level: int) -> Sequence[Filter]:
    """The terms of an OR or AND; conditions that form a membership are one term, at the place of the first."""
    members: dict[str, list[_Value]] = {}
    terms: list[object] = []
    for operand in operands:
        member = None if level >= MAX_LEVELS else _member(operator, operand, fields)
        if member is None:
            terms.append(operand)
            continue
        field, value = member
        if field.name not in members:
            members[field.name] = []
            terms.append(field)
        members[field.name].append(value)
    return [_term(operator, term, members, fields, level) for term in terms]


def _term(operator: str, term: object, members: Mapping[str, Sequence[_Value]], fields: ItemType, level: int) -> Filter:
    if not isinstance(term, QueryField):
        return _node(term, fields, level)
    found = one_of(term, members[term.name])
    return found if operator == "|" else negate(found)


def _member(operator: str, operand: object, fields: ItemType) -> tuple[QueryField, _Value] | None:
    """Field and value of a condition that forms a membership with others: `==` in an OR, `!=` in an AND; else None."""
    if not isinstance(operand, list) or len(operand) != _SIZE_OF_COMPARISON:
        return None
    comparison, name, value = operand
    if not (isinstance(comparison, str) and isinstance(name, str) and isinstance(value, _VALUES)):
        return None
    field = fields.get(name) if comparison in _JOINED[operator] else None
    return (field, value) if isinstance(field, QueryField) and _has_memberships(field) else None


def _has_memberships(field: QueryField) -> bool:
    return FieldFlag.SPLIT_TIMESTAMP not in field.flags


def _one(operator: str, operands: Sequence[object]) -> Sequence[object]:
    if len(operands) != 1:
        raise MalformedExpressionError(f"Unary operator '{operator}' expects exactly one operand, not {len(operands)}")
    return operands


def _field(name: object, fields: ItemType) -> QueryField:
    field = fields.get(name) if isinstance(name, str) else None
    if not isinstance(field, QueryField):
        error = ExpressionError(f"Unknown field {_shown(name)}")
        # Beside the text, which Ganeti's clients know.
        error.add_note(did_you_mean(str(name), fields))
        raise error
    return field


def _condition(operator: str, field: QueryField, value: object) -> Filter:
    try:
        if operator == "!=":
            return negate(or_missing(_comparison("==", field, value)))
        if operator == "=~":
            return or_missing(_search(field, value))
        if operator == "=[]":
            return or_missing(_membership(field, value))
        return or_missing(_comparison("==" if operator in _EQUAL else operator, field, value))
    except FilterValueError as error:
        raise _unable(field, operator, value, error) from None
    except RegularExpressionError as error:
        raise MalformedExpressionError(f"Invalid regex pattern ({error})") from None
    except UnknownFieldError as error:
        raise ExpressionError(str(error)) from None


def _unable(field: QueryField, operator: str, value: object, error: FilterValueError) -> ExpressionError:
    return ExpressionError(
        f"Unable to compare field '{field.name}' (type '{field.kind}') by '{operator}' with {_shown(value)}, "
        f"expected {error.expected}"
    )


def _comparison(operator: str, field: QueryField, value: object) -> Leaf:
    """The condition `field operator value`, for an operator of equality or order. Raises FilterValueError."""
    if FieldFlag.SPLIT_TIMESTAMP in field.flags:
        # An integer is compared with the seconds only (contracts/ganeti-query, 3).
        return AtTime(field.name, operator, _split_time(field, value), in_seconds=type(value) is int)
    if field.kind is Kind.OTHER:
        return Same(field.name, value) if operator == "==" else _order_of_anything(operator, field, value)
    is_number_of_job = FieldFlag.JOB_ID in field.flags and operator != "=="
    if is_number_of_job and isinstance(value, str) and _NUMBER_OF_JOB.fullmatch(value):
        value = int(value)
    if field.kind is Kind.TIMESTAMP:
        value = _moment(field, value)
    is_of_name = operator == "==" and FieldFlag.HOSTNAME in field.flags and isinstance(value, str)
    leaf = (HasName if is_of_name else _COMPARED[operator])(field.name, _with_point(field, value))
    leaf.check(field)
    return leaf


def _with_point(field: QueryField, value: Any) -> Any:
    """The value for a field of floats, whose whole numbers are shown, and so given, without a point."""
    is_exact = field.kind is Kind.FLOAT and type(value) is int and abs(value) <= MOST_EXACT
    return float(value) if is_exact else value


def _order_of_anything(operator: str, field: QueryField, value: object) -> Leaf:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise FilterValueError(field.name, value, "a text or a number")
    return Compares(field.name, operator, value)


def _search(field: QueryField, value: object) -> Leaf:
    if not isinstance(value, str):
        raise FilterValueError(field.name, value, "a regular expression")
    if field.is_list:
        raise FilterValueError(field.name, value, "an element of the list, by '=[]'")
    if _is_of_any_shape(field):
        leaf: Leaf = Finds(field.name, value)
    elif field.kind is Kind.TEXT:
        leaf = Matches(field.name, value)
    else:
        raise FilterValueError(field.name, value, "no regular expression, since it is no text")
    leaf.check(field)
    return leaf


def _membership(field: QueryField, value: object) -> Leaf:
    if field.is_list and isinstance(value, str):
        leaf: Leaf = Has(field.name, value)
    elif field.kind is Kind.TEXT:
        if not isinstance(value, str):
            raise FilterValueError(field.name, value, "text")
        leaf = Matches(field.name, re.escape(value))
    else:
        leaf = Contains(field.name, value)
    leaf.check(field)
    return leaf


def _is_of_any_shape(field: QueryField) -> bool:
    return field.kind is Kind.OTHER and not field.is_list


def _moment(field: QueryField, value: object) -> datetime:
    try:
        return from_microseconds(_time(value))
    except (TypeError, ValueError, OverflowError):
        raise FilterValueError(field.name, value, f"{_A_TIME}, of a year up to 9999") from None


def _split_time(field: QueryField, value: object) -> int:
    try:
        if isinstance(value, list):
            seconds, microseconds = value
            return _microseconds(seconds) + _microseconds(microseconds) // MICROSECONDS_PER_SECOND
        return _time(value)
    except (TypeError, ValueError, OverflowError):
        raise FilterValueError(field.name, value, f"{_A_TIME}, or [seconds, microseconds]") from None


def _time(value: object) -> int:
    """Microseconds since the epoch of seconds, or of a text by ISO 8601, which is in UTC if it has no zone."""
    if not isinstance(value, str):
        return _microseconds(value)
    moment = datetime.fromisoformat(value)
    return to_microseconds(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))


def _microseconds(seconds: object) -> int:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise TypeError
    return round(Fraction(seconds) * MICROSECONDS_PER_SECOND)


def _shown(value: object) -> str:
    """`value` as the caller wrote it, truncated if it is long."""
    if isinstance(value, list | dict):
        return "a list" if isinstance(value, list) else "an object"
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
