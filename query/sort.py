"""The order of a list: sort keys, and how two rows compare.

The order is total: the requested keys, then `uuid` ascending. Text compares by code point (binary collation), a null is
lower than every value: first when ascending, last when descending. Every source must deliver exactly this order, since
one merge trusts them all.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from resources.errors import UnknownFieldError
from resources.fields import FieldSet

UNIQUE_FIELD = "uuid"


class Direction(StrEnum):
    ASC = "asc"
    DESC = "desc"


@dataclass(frozen=True, slots=True)
class SortKey:
    field: str
    direction: Direction = Direction.ASC


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
    """Sort keys, of which the last is always `uuid`, so that no two rows tie and a marker is exact."""

    keys: tuple[SortKey, ...]

    @classmethod
    def of(cls, fields: FieldSet, keys: Sequence[SortKey]) -> "SortOrder":
        """The total order for the requested `keys`; what follows `uuid`, or repeats a key, cannot matter.

        Raises UnknownFieldError for a field that does not exist or has no order.
        """
        chosen: dict[str, SortKey] = {}
        for key in keys:
            if not fields.require(key.field, "sort").is_sortable:
                raise UnknownFieldError(key.field, "sort")
            chosen.setdefault(key.field, key)
            if key.field == UNIQUE_FIELD:
                break
        chosen.setdefault(UNIQUE_FIELD, SortKey(UNIQUE_FIELD))
        return cls(tuple(chosen.values()))

    def values(self, record: Mapping[str, Any]) -> tuple[Any, ...]:
        """The stored values of the keys in `record`, uuid last: a position that a page can start after."""
        return tuple(record[key.field] for key in self.keys)

    def comparable(self, values: Sequence[Any]) -> tuple[Any, ...]:
        """A tuple that compares as rows with these key `values` do."""
        return tuple(
            _Descending(_null_lowest(value)) if key.direction is Direction.DESC else _null_lowest(value)
            for key, value in zip(self.keys, values, strict=True)
        )


def keeps_places(order: SortOrder, fields: FieldSet) -> bool:
    """Whether every row has the same place in this order for life."""
    return all(fields[key.field].is_constant for key in order.keys)


def _null_lowest(value: Any) -> tuple[Any, ...]:
    return (0,) if value is None else (1, value)
