"""The order of a list: sort keys, and how two rows compare.

The order is total: the requested keys, then the unique one of the item type ascending. A null is lower than every
value: first when ascending, last when descending. Every source must deliver exactly this order, since one merge trusts
them all; one that cannot raises NotExpressibleError.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from fleetlight.resources.errors import UnknownFieldError
from fleetlight.resources.fields import ItemType, Kind
from fleetlight.resources.instance import INSTANCE_FIELDS

_NUMBER_OR_MARK = re.compile("[0-9]+|[\0-\2]")
# Marks before a number, and before a character of the text that looks like a mark. No other character is lower.
NUMBER, ESCAPE = "\1", "\2"
NO_DIGITS, SURROGATES, SURROGATES_END = 0x10, 0xD800, 0xE000


class Direction(StrEnum):
    """Directions of a sort key."""

    ASC = "asc"
    DESC = "desc"


class Collation(StrEnum):
    """How texts compare.

    CODE_POINT: as binary collations. NICE: Ganeti's order of names, in which digits compare as a number (`a2` before
    `a10`), lower than all other text; names that differ only in leading zeros tie.
    """

    CODE_POINT = "code point"
    NICE = "nice"


# A global, since it is read for each merged row.
_NICE = Collation.NICE


@dataclass(frozen=True, slots=True)
class SortKey:
    """One key of an order. collation: for text fields; other fields have only one order."""

    field: str
    direction: Direction = Direction.ASC
    collation: Collation = Collation.CODE_POINT

    def comparable(self, value: Any) -> Any:
        """A value that compares as a stored value under this key, with null lowest."""
        value = self.by_code_point(value)
        null_lowest = (0,) if value is None else (1, value)
        return _Descending(null_lowest) if self.direction is Direction.DESC else null_lowest

    def by_code_point(self, value: Any) -> Any:
        """A value that compares by code point as a stored value in this collation."""
        return nice_key(value) if self.collation is _NICE and value is not None else value


def nice_key(text: str) -> str:
    """A text that compares by code point as `text` in nice order (in SQL, fleetlight.query.to_sql.nice_column).

    A number becomes a mark, a character for the number of its digits without leading zeros, and these digits.
    """
    return _NUMBER_OR_MARK.sub(_nice_part, text)


def _nice_part(found: re.Match[str]) -> str:
    part = found[0]
    if part <= ESCAPE:
        return ESCAPE + chr(ord(part) + 1)
    digits = part.lstrip("0")
    length = NO_DIGITS + len(digits)
    return f"{NUMBER}{chr(length if length < SURROGATES else length + SURROGATES_END - SURROGATES)}{digits}"


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
    """Sort keys of an item type, ending with its unique one: no two rows tie, so a marker is exact."""

    item_type: ItemType
    keys: tuple[SortKey, ...]

    @classmethod
    def of(cls, item_type: ItemType, keys: Sequence[SortKey]) -> "SortOrder":
        """The total order for the requested `keys`; ignores repeated keys, and those after the unique one.

        Raises UnknownFieldError for a field that does not exist or cannot be sorted.
        """
        chosen: dict[tuple[str, Collation], SortKey] = {}
        for wanted in (*keys, SortKey(item_type.unique)):
            field = item_type.require(wanted.field, "sort")
            if not field.is_sortable:
                raise UnknownFieldError(field.name, "sort")
            key = wanted if field.kind is Kind.TEXT else SortKey(field.name, wanted.direction)
            if (key.field, Collation.CODE_POINT) in chosen:
                continue
            chosen.setdefault((key.field, key.collation), key)
            if (item_type.unique, Collation.CODE_POINT) in chosen:
                break
        return cls(item_type, tuple(chosen.values()))

    def values(self, record: Mapping[str, Any]) -> tuple[Any, ...]:
        """The stored values of the keys in `record`, the unique one last: a position after which a page can start."""
        return tuple([record[key.field] for key in self.keys])

    def comparable(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """A tuple that compares as rows with these key `values`."""
        return tuple([key.comparable(value) for key, value in zip(self.keys, values, strict=True)])

    def by_code_point(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """A tuple that compares by code point as stored `values` of the keys."""
        return tuple([key.by_code_point(value) for key, value in zip(self.keys, values, strict=True)])

    @property
    def keeps_places(self) -> bool:
        """Whether a row never changes its position in this order."""
        return all(self.item_type[key.field].is_constant for key in self.keys)


INSTANCES_BY_UUID: Final = SortOrder.of(INSTANCE_FIELDS, ())
"""The order for reading instances when no caller has requested one."""
