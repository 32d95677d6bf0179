"""Values as cells of CSV, which people open in spreadsheets, and what a file says of itself.

That is a record of one cell which begins with `#`, as no other does: a remark, with an object of JSON.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fleetlight.resources.fields import from_microseconds
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

_MARK = "#"
_BEGINNINGS_OF_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


def no_formula(value: object) -> object:
    """The value for CSV. A text that a spreadsheet takes for a formula gets an apostrophe, which makes it a text.

    Source: OWASP, "CSV Injection".
    """
    return f"'{value}" if isinstance(value, str) and value.startswith(_BEGINNINGS_OF_FORMULAS) else value


def csv_records(rows: Sequence[Sequence[object]]) -> bytes:
    """The lines of these rows, whose values are as CSV has them."""
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


def csv_remark(covers: Mapping[str, Any]) -> str:
    """The one cell of a remark."""
    return f"{_MARK} {msgspec.json.encode(covers).decode()}"


def csv_time(value: Any) -> object:
    """A time of Query2 by ISO 8601. value: seconds since the epoch, or such seconds and microseconds; else as it is."""
    match value:
        case [int(seconds), int(microseconds)]:
            moment = seconds * MICROSECONDS_PER_SECOND + microseconds
        case int() | float() if not isinstance(value, bool):
            moment = round(value * MICROSECONDS_PER_SECOND)
        case _:
            return csv_value(value)
    return from_microseconds(moment).isoformat(timespec="microseconds").replace("+00:00", "Z")


def csv_value(value: Any) -> object:
    """The value as CSV has it: a list is its JSON, and no text is a formula or the beginning of a remark."""
    shown = msgspec.json.encode(value).decode() if isinstance(value, list | dict | bool) else value
    return f"'{shown}" if isinstance(shown, str) and shown.startswith(_MARK) else no_formula(shown)
