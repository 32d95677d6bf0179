"""Formats answers of queries as lines of text, as Ganeti's list commands do (contracts/ganeti-query, 7).

Columns are aligned with blanks, or divided by a separator for programs. A placeholder stands for a missing value.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain
from typing import Any

from fleetlight.cli.output import one_line
from fleetlight.resources.fields import Kind
from fleetlight.resources.query_fields.definitions import ResultStatus
from fleetlight.resources.units import MIB_IN

Cell = Sequence[Any]
"""[status, value]"""

Format = Callable[[Any], str]

_RIGHT_ALIGNED = {Kind.NUMBER, Kind.FLOAT, Kind.UNIT}
_TERSE = {
    ResultStatus.UNKNOWN: "??",
    ResultStatus.NO_DATA: "?",
    ResultStatus.UNAVAILABLE: "-",
    ResultStatus.OFFLINE: "*",
}
_VERBOSE = {
    ResultStatus.UNKNOWN: "(unknown)",
    ResultStatus.NO_DATA: "(nodata)",
    ResultStatus.UNAVAILABLE: "(unavail)",
    ResultStatus.OFFLINE: "(offline)",
}


class Unit(StrEnum):
    """The unit of sizes: a fitting one for each, with its letter, or one for all, without."""

    HUMAN = "h"
    MEBIBYTES = "m"
    GIBIBYTES = "g"
    TEBIBYTES = "t"


class TableOutcome(StrEnum):
    """Whether an answer has all that was asked for."""

    NORMAL = "normal"
    UNKNOWN_FIELDS = "unknown fields"
    INCOMPLETE = "incomplete"


@dataclass(frozen=True, slots=True)
class TableStyle:
    """unit: None for `m` with a separator, else `h`. separator: None aligns the columns.

    formats: formats of some fields by name, in place of the format of their kind.
    """

    unit: Unit | None = None
    separator: str | None = None
    has_header: bool = True
    is_verbose: bool = False
    formats: Mapping[str, Format] | None = None


def table(definitions: Sequence[Mapping[str, Any]], rows: Iterable[Sequence[Cell]], style: TableStyle) -> list[str]:
    """Format an answer as lines, with the titles first if the style has a header."""
    unit = style.unit or (Unit.MEBIBYTES if style.separator else Unit.HUMAN)
    formats = [_format(definition, unit, style.formats or {}) for definition in definitions]
    placeholders = _VERBOSE if style.is_verbose else _TERSE
    lines = [[_text(cell, as_text, placeholders) for cell, as_text in zip(row, formats, strict=True)] for row in rows]
    if style.has_header:
        lines.insert(0, [definition["title"] for definition in definitions])
    if style.separator is not None:
        return [style.separator.join(line) for line in lines]
    return _aligned(lines, [Kind(definition["kind"]) in _RIGHT_ALIGNED for definition in definitions])


def outcome(definitions: Sequence[Mapping[str, Any]], rows: Sequence[Sequence[Cell]]) -> TableOutcome:
    """Whether unknown fields were asked for, or else values are missing."""
    statuses = {cell[0] for cell in chain.from_iterable(rows)}
    asks_for_unknown = any(definition["kind"] == Kind.UNKNOWN for definition in definitions)
    if ResultStatus.UNKNOWN in statuses or (asks_for_unknown and not rows):
        return TableOutcome.UNKNOWN_FIELDS
    return TableOutcome.INCOMPLETE if statuses - {ResultStatus.NORMAL} else TableOutcome.NORMAL


def size_text(mebibytes: float, unit: Unit) -> str:
    """Format a size with one decimal, or none for MiB; with the unit's letter only for Unit.HUMAN."""
    if unit is not Unit.HUMAN:
        digits = 0 if unit is Unit.MEBIBYTES else 1
        return f"{mebibytes / MIB_IN[unit]:0.{digits}f}"
    if mebibytes < MIB_IN["g"]:
        return f"{mebibytes:0.0f}M"
    unit = Unit.GIBIBYTES if mebibytes < MIB_IN["t"] else Unit.TEBIBYTES
    return f"{mebibytes / MIB_IN[unit]:0.1f}{unit.upper()}"


def time_text(seconds: object) -> str:
    """Format local time, to the second."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        return "N/A"
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def joined(value: object) -> str:
    """Join the elements of a list by commas."""
    return ",".join(str(element) for element in value) if isinstance(value, list) else str(value)


def _format(definition: Mapping[str, Any], unit: Unit, formats: Mapping[str, Format]) -> Format:
    name, kind = definition["name"], definition["kind"]
    if name in formats:
        return formats[name]
    match kind:
        case Kind.BOOL:
            return lambda value: "Y" if value else "N"
        case Kind.UNIT:
            return lambda value: size_text(value, unit)
        case Kind.TIMESTAMP:
            return time_text
    return str


def _text(cell: Cell, as_text: Format, placeholders: Mapping[ResultStatus, str]) -> str:
    status, value = cell
    if status != ResultStatus.NORMAL:
        return placeholders[ResultStatus(status)]
    # Each item is one line, whatever its name contains.
    return one_line(as_text(value))


def _aligned(lines: Sequence[Sequence[str]], are_right: Sequence[bool]) -> list[str]:
    """Pad columns with blanks to a common width, except a last column that is aligned to the left."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    if widths and not are_right[-1]:
        widths[-1] = 0
    return [
        " ".join(
            text.rjust(width) if is_right else text.ljust(width)
            for text, width, is_right in zip(line, widths, are_right, strict=True)
        )
        for line in lines
    ]
