"""Converts values of a cluster to values of a record; pure."""

from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any

from fleetlight.cells.errors import UpstreamError
from fleetlight.query.operators.comparison import MAX_INTEGER, MIN_INTEGER
from fleetlight.resources.fields import Field, Kind, Record, from_microseconds
from fleetlight.resources.query_fields.definitions import QueryFields, ResultStatus
from fleetlight.resources.units import MICROSECONDS_PER_SECOND


def _is_anything(_value: Any) -> bool:
    return True


def _is_list_of(is_one: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, list) and all(map(is_one, value))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_split_time(value: Any) -> bool:
    return isinstance(value, list) and [type(part) for part in value] == [int, int]


def _is_log_entry(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 4 and type(value[0]) is int


_SHAPES: Mapping[str, Callable[[Any], bool]] = {
    "tags": _is_list_of(_is_text),
    "variants": _is_list_of(_is_text),
    "oplog": _is_list_of(_is_list_of(_is_log_entry)),
    **dict.fromkeys(("received_ts", "start_ts", "end_ts"), _is_split_time),
}
"""Checks of the shapes of values of kind `other`, by field, for those that this package reads."""


def record_of(known: QueryFields, row: Mapping[str, tuple[int, Any]]) -> Record:
    """The record of a row, as fleetlight.cells.model.ItemsAdapter describes it.

    It lacks fields that the cluster does not know, and has None for values that an item does not have. Raises
    UpstreamError if a value is not one of its field.
    """
    record: dict[str, Any] = {}
    for name, (status, value) in row.items():
        match status:
            case ResultStatus.NORMAL:
                record[name] = stored(known[name], value)
            case ResultStatus.NO_DATA | ResultStatus.OFFLINE:
                record[name] = ResultStatus(status)
            case ResultStatus.UNAVAILABLE:
                record[name] = None
    return record


def stored(field: Field, value: Any) -> Any:
    """The stored value (fleetlight.resources.fields). Raises UpstreamError if it is not a value of the field."""
    match field.kind, value:
        case Kind.OTHER, _:
            if not _SHAPES.get(field.name, _is_anything)(value):
                raise _no_value(field, value)
            return value
        case Kind.TEXT, str():
            return value
        case Kind.BOOL, bool():
            return value
        case Kind.NUMBER | Kind.UNIT, int() if not isinstance(value, bool) and MIN_INTEGER <= value <= MAX_INTEGER:
            return value
        # Ganeti writes whole numbers without a point (contracts/ganeti-query, 2).
        case Kind.FLOAT, int() | float() if not isinstance(value, bool):
            return float(value)
        case Kind.TIMESTAMP, int() | float() if not isinstance(value, bool):
            return _moment(field, value)
    raise _no_value(field, value)


def _no_value(field: Field, value: Any) -> UpstreamError:
    return UpstreamError(f"the cluster says that {field.name} is {str(value)[:100]!r}, which is no {field.kind}")


def _moment(field: Field, seconds: float) -> int:
    """The time in microseconds. Raises UpstreamError unless its year is from 1 to 9999."""
    microseconds = round(Fraction(seconds) * MICROSECONDS_PER_SECOND)
    try:
        from_microseconds(microseconds)
    except (ValueError, OverflowError):
        raise _no_value(field, seconds) from None
    return microseconds
