"""Counts of the items that match a filter, grouped by values of fields: request and answer as values."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from fleetlight.query.filters import Filter
from fleetlight.resources.errors import UnknownFieldError
from fleetlight.resources.fields import ItemType, Record

MAX_GROUPS = 10_000
"""The most groups in one answer; Elasticsearch refuses more than 65,536 by default."""

Group = tuple[Any, ...]
"""Stored values of the grouping fields."""


@dataclass(frozen=True, slots=True)
class CountRequest:
    """A request for counts. by: names of the grouping fields; empty for one group of all items.

    An item counts in the group of each member of a list, and with an empty list in that of null.
    Raises UnknownFieldError for an unknown field, or one that cannot be compared.
    """

    filter: Filter
    item_type: ItemType
    by: tuple[str, ...] = ()
    max_groups: int = MAX_GROUPS

    def __post_init__(self) -> None:
        for name in self.by:
            field = self.item_type.require(name, "group by")
            if not (field.is_sortable or field.is_list):
                raise UnknownFieldError(name, "group by")

    def groups_of(self, record: Record) -> Iterable[Group]:
        """The groups in which an item counts."""
        return product(
            *(
                dict.fromkeys(record[name] or (None,)) if self.item_type[name].is_list else (record[name],)
                for name in self.by
            )
        )


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts by group, without empty groups.

    is_partial: not everything was counted, so numbers may be too low and groups missing.
    """

    groups: Mapping[Group, int] = field(default_factory=dict)
    is_partial: bool = False


def merged(counts: Iterable[Counts], max_groups: int) -> Counts:
    """The sum of `counts` that have no item in common."""
    total = Counter[Group]()
    is_partial = False
    for each in counts:
        total.update(each.groups)
        is_partial = is_partial or each.is_partial
    return limited(total, max_groups, is_partial=is_partial)


def limited(groups: Mapping[Group, int], max_groups: int, *, is_partial: bool = False) -> Counts:
    """The first groups, as many as one answer has."""
    if len(groups) <= max_groups:
        return Counts(groups, is_partial)
    return Counts(dict(list(groups.items())[:max_groups]), is_partial=True)
