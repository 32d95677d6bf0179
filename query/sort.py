"""The order of a list: sort keys, and how two rows compare.

The order is total: the requested keys, then the unique one of the item type ascending. A null is lower than every
value: first when ascending, last when descending. Every source must deliver exactly this order, since one merge trusts
them all; one that cannot raises NotExpressibleError.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from query.errors import NotExpressibleError
from resources.errors import UnknownFieldError
from resources.fields import FieldSet, Kind

_NUMBER_OR_TEXT = re.compile(r"([0-9]+)|([^0-9]+)")


class Direction(StrEnum):
    ASC = "asc"
    DESC = "desc"


class Collation(StrEnum):
    """How texts compare.

    CODE_POINT: as binary collations do. NICE: Ganeti's order of names, where what is made of digits compares as a
    number (`a2` before `a10`), lower than every other text; names that differ in leading zeros only tie.
    """

    CODE_POINT = "code point"
    NICE = "nice"


# Read for each row that is merged.
_NICE = Collation.NICE


@dataclass(frozen=True, slots=True)
class SortKey:
    """collation: of a field that holds text; others have but one order."""

    field: str
    direction: Direction = Direction.ASC
    collation: Collation = Collation.CODE_POINT

    def comparable(self, value: Any) -> Any:
        """What compares as stored values do under this key, null lowest."""
        if self.collation is _NICE and value is not None:
            value = nice_key(value)
        null_lowest = (0,) if value is None else (1, value)
        return _Descending(null_lowest) if self.direction is Direction.DESC else null_lowest


def nice_key(text: str) -> tuple[Any, ...]:
    """What compares as texts do in nice order: their numbers and what is between them."""
    return tuple(
        (1, between) if between else (0, len(digits := number.lstrip("0")), digits)
        for number, between in _NUMBER_OR_TEXT.findall(text)
    )


class _Descending:
    """A value that sorts in reverse."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: "_Descending") -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Descending) and self.value == other.value

    __hash__ = None  # type: ignore[assignment]  # only ever compared


@dataclass(frozen=True, slots=True)
class SortOrder:
    """Sort keys, of which the last is the unique one of the item type: no two rows tie, so a marker is exact."""

    keys: tuple[SortKey, ...]

    @classmethod
    def of(cls, fields: FieldSet, keys: Sequence[SortKey]) -> "SortOrder":
        """The total order for the requested `keys`; what follows the unique key, or repeats a key, cannot matter.

        Raises UnknownFieldError for a field that does not exist or has no order.
        """
        chosen: dict[tuple[str, Collation], SortKey] = {}
        for asked in (*keys, SortKey(fields.unique)):
            field = fields.require(asked.field, "sort")
            if not field.is_sortable:
                raise UnknownFieldError(field.name, "sort")
            key = asked if field.kind is Kind.TEXT else SortKey(field.name, asked.direction)
            if (key.field, Collation.CODE_POINT) in chosen:
                continue
            chosen.setdefault((key.field, key.collation), key)
            if (fields.unique, Collation.CODE_POINT) in chosen:
                break
        return cls(tuple(chosen.values()))

    def values(self, record: Mapping[str, Any]) -> tuple[Any, ...]:
        """The stored values of the keys in `record`, the unique one last: a position that a page can start after."""
        return tuple(record[key.field] for key in self.keys)

    def comparable(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """A tuple that compares as rows with these key `values` do."""
        return tuple([key.comparable(value) for key, value in zip(self.keys, values, strict=True)])

    def require_code_points(self, target: str) -> None:
        """Raise NotExpressibleError for an order that no database has by itself; only Python knows the nice one."""
        for key in self.keys:
            if key.collation is not Collation.CODE_POINT:
                raise NotExpressibleError(target, f"a nice order of '{key.field}'")


def keeps_places(order: SortOrder, fields: FieldSet) -> bool:
    """Whether every row has the same place in this order for life."""
    return all(fields[key.field].is_constant for key in order.keys)
