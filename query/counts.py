"""Counts of the items that a filter lets pass, by the values of some fields: request and answer, both in Python."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from fleetlight.query.filters import Filter
from fleetlight.resources.errors import UnknownFieldError
from fleetlight.resources.fields import ItemType, Record

MAX_GROUPS = 10_000
"""As many groups as one answer has; Elasticsearch gives up at 65,536 by default."""

Group = tuple[Any, ...]
"""Stored values of the fields that are grouped by."""


@dataclass(frozen=True, slots=True)
class CountRequest:
    """by: names of the fields whose values make the groups; without any there is one group of all.

    An item with a list is in the group of each of its members, with an empty one in that of null.
    Raises UnknownFieldError for a field that is not there, or can be compared with nothing.
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
        """The groups that an item is in."""
        return product(
            *(
                dict.fromkeys(record[name] or (None,)) if self.item_type[name].is_list else (record[name],)
                for name in self.by
            )
        )


@dataclass(frozen=True, slots=True)
class Counts:
    """groups: how many items each has; those that have none are left out.

    is_partial: not everything was counted, so numbers may be too low and groups may be missing.
    """

    groups: Mapping[Group, int] = field(default_factory=dict)
    is_partial: bool = False


def merged(counts: Iterable[Counts], max_groups: int) -> Counts:
    """The sum of `counts` that share no item."""
    total = Counter[Group]()
    is_partial = False
    for each in counts:
        total.update(each.groups)
        is_partial = is_partial or each.is_partial
    return limited(total, max_groups, is_partial=is_partial)


def limited(groups: Mapping[Group, int], max_groups: int, *, is_partial: bool = False) -> Counts:
    """What of these groups one answer has: the first ones."""
    if len(groups) <= max_groups:
        return Counts(groups, is_partial)
    return Counts(dict(list(groups.items())[:max_groups]), is_partial=True)
