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
# Before a number, and before what is not such a mark though it looks like one. No text between numbers is lower.
NUMBER, ESCAPE = "\1", "\2"
NO_DIGITS, SURROGATES, SURROGATES_END = 0x10, 0xD800, 0xE000


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
        value = self.by_code_point(value)
        null_lowest = (0,) if value is None else (1, value)
        return _Descending(null_lowest) if self.direction is Direction.DESC else null_lowest

    def by_code_point(self, value: Any) -> Any:
        """What compares by code point as a stored value does in this collation."""
        return nice_key(value) if self.collation is _NICE and value is not None else value


def nice_key(text: str) -> str:
    """The text that compares by code point as `text` does in nice order; fleetlight.query.to_sql says the same in
    SQL.

    A number becomes a mark, the character that stands for how many digits it has without leading zeros, and those.
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
    """Sort keys of an item type, of which the last is its unique one: no two rows tie, so a marker is exact."""

    item_type: ItemType
    keys: tuple[SortKey, ...]

    @classmethod
    def of(cls, item_type: ItemType, keys: Sequence[SortKey]) -> "SortOrder":
        """The total order for the requested `keys`; what follows the unique key, or repeats a key, cannot matter.

        Raises UnknownFieldError for a field that does not exist or has no order.
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
        """The stored values of the keys in `record`, the unique one last: a position that a page can start after."""
        return tuple([record[key.field] for key in self.keys])

    def comparable(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """A tuple that compares as rows with these key `values` do."""
        return tuple([key.comparable(value) for key, value in zip(self.keys, values, strict=True)])

    def by_code_point(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """What compares by code point as stored `values` of the keys do."""
        return tuple([key.by_code_point(value) for key, value in zip(self.keys, values, strict=True)])

    @property
    def keeps_places(self) -> bool:
        """Whether every row keeps its position in this order for life."""
        return all(self.item_type[key.field].is_constant for key in self.keys)


INSTANCES_BY_UUID: Final = SortOrder.of(INSTANCE_FIELDS, ())
"""The order in which instances are read where no caller asked for one."""
