"""Values in CSV, safe for spreadsheets, and remarks of files.

A remark is a record of one field, a JSON object after `#`, with which no other record begins.
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
    """Convert a value for CSV: a text that a spreadsheet would take for a formula gets an apostrophe in front.

    Source: OWASP, "CSV Injection".
    """
    return f"'{value}" if isinstance(value, str) and value.startswith(_BEGINNINGS_OF_FORMULAS) else value


def csv_records(rows: Sequence[Sequence[object]]) -> bytes:
    """Encode rows of converted values as lines."""
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


def csv_remark(covers: Mapping[str, Any]) -> str:
    """Return the only field of a remark."""
    return f"{_MARK} {msgspec.json.encode(covers).decode()}"


def csv_time(value: Any) -> object:
    """Format a time of Query2 by ISO 8601. value: seconds, or seconds and microseconds; others stay unchanged."""
    match value:
        case [int(seconds), int(microseconds)]:
            moment = seconds * MICROSECONDS_PER_SECOND + microseconds
        case int() | float() if not isinstance(value, bool):
            moment = round(value * MICROSECONDS_PER_SECOND)
        case _:
            return csv_value(value)
    return from_microseconds(moment).isoformat(timespec="microseconds").replace("+00:00", "Z")


def csv_value(value: Any) -> object:
    """Convert a value for CSV: a list becomes JSON, and no text reads as a formula or a remark."""
    shown = msgspec.json.encode(value).decode() if isinstance(value, list | dict | bool) else value
    return f"'{shown}" if isinstance(shown, str) and shown.startswith(_MARK) else no_formula(shown)
