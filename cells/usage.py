"""Computes the usage of a cell's instances within a period: running time multiplied by size; pure, except for reads.

An instance runs from its launch to its end, whatever its state, as Nova counts it (contracts/nova-rest, 4.5); a
reservation runs from its creation until it becomes an instance or is removed. If the cell keeps changes of instances,
each span counts with the size that the instance had then; otherwise with its current size.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

from fleetlight.cells.errors import UnreadableRowError
from fleetlight.cells.model import CellAdapter, PartialRows
from fleetlight.query.filters import Filter, Gt, IsNull, Lt, all_of, any_of
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import INSTANCES_BY_UUID
from fleetlight.resources.fields import Record, from_microseconds

Group = tuple[str | None, ...]
"""The values of the grouping fields for one sum."""

FOR_EVER = 2**63
COUNTED_FIELDS = ("flavor", "launched_at", "terminated_at", "created_at", "deleted_at", "forthcoming", "hidden")
"""The fields of an instance that determine its usage, and that changes may change."""

_PAGE_ROWS = 1000
_FIELDS = ("uuid", "project_id", *COUNTED_FIELDS)


class Version(NamedTuple):
    """An instance as it was from `since` until `until` (microseconds); 0 and FOR_EVER stand for unknown bounds."""

    since: int
    until: int
    record: Record


@dataclass(slots=True)
class Amounts:
    """Sums over instances. instances: their number. Other fields: microseconds, multiplied by the size in that time."""

    instances: int = 0
    time_us: int = 0
    vcpus_us: int = 0
    memory_mib_us: int = 0
    disk_gib_us: int = 0

    def add(self, other: "Amounts") -> None:
        """Add each field of `other` to this one."""
        for name, value in zip(self.__slots__, astuple(other), strict=True):
            setattr(self, name, getattr(self, name) + value)


@dataclass(slots=True)
class Usage:
    """The usage of running instances, and of reservations."""

    used: Amounts = field(default_factory=Amounts)
    reserved: Amounts = field(default_factory=Amounts)

    def add(self, other: "Usage") -> None:
        """Add the sums of `other` to these."""
        self.used.add(other.used)
        self.reserved.add(other.reserved)


@dataclass(frozen=True, slots=True)
class UsageRequest:
    """A request for the usage between two moments (microseconds) of the instances that match `scope`.

    by: names of grouping fields, from GROUPS.
    """

    start: int
    stop: int
    scope: Filter
    by: tuple[str, ...] = ()

    def page(self, after: tuple[Any, ...] | None) -> PageRequest:
        """The request for a page, after `after`, of the instances that may have run within the period."""
        start, stop = from_microseconds(self.start), from_microseconds(self.stop)
        has_begun = any_of(Lt("created_at", stop), Lt("launched_at", stop))
        has_not_ended = any_of(IsNull("terminated_at"), Gt("terminated_at", start))
        wanted = all_of(self.scope, has_begun, has_not_ended)
        return PageRequest(wanted, INSTANCES_BY_UUID, _PAGE_ROWS, after, _FIELDS)


@dataclass(frozen=True, slots=True)
class UsagePart:
    """The usage of some instances of a cell.

    after: position of the next page; None if this is the last. exact_from: the moment since which every change counts;
    None if the cell keeps no changes. lacks: reasons why the sums miss something.
    """

    sums: Mapping[Group, Usage]
    after: tuple[Any, ...] | None
    exact_from: int | None
    lacks: frozenset[str] = frozenset()


@runtime_checkable
class UsageAdapter(CellAdapter, Protocol):
    """A cell that keeps the changes of its instances."""

    def read_usage(self, request: UsageRequest, after: tuple[Any, ...] | None) -> UsagePart:
        """The usage of the instances of the page after `after`. Raises CellUnreachableError."""
        ...


def read_usage(adapter: CellAdapter, request: UsageRequest, after: tuple[Any, ...] | None) -> UsagePart:
    """The usage of the instances of the page after `after`, in a cell of any kind. Raises CellUnreachableError."""
    if isinstance(adapter, UsageAdapter):
        return adapter.read_usage(request, after)
    rows = adapter.read_page(request.page(after))
    part = add_up(request, ([Version(0, FOR_EVER, row.record)] for row in rows), next_page(rows), exact_from=None)
    if not isinstance(rows, PartialRows):
        return part
    return UsagePart(part.sums, None, None, part.lacks | {rows.lacks})


def next_page(rows: Sequence[Any]) -> tuple[Any, ...] | None:
    """The position after a page of rows; None if it was the last one."""
    return INSTANCES_BY_UUID.values(rows[-1].record) if len(rows) == _PAGE_ROWS else None


def add_up(
    request: UsageRequest,
    instances: Iterable[Iterable[Version]],
    after: tuple[Any, ...] | None,
    *,
    exact_from: int | None,
) -> UsagePart:
    """The sums over instances, given as the versions of each. after, exact_from: as in UsagePart."""
    sums: dict[Group, Usage] = defaultdict(Usage)
    lacks: set[str] = set()
    for versions in instances:
        try:
            is_sized = _add_instance(sums, request, versions)
        except UnreadableRowError:
            lacks.add("damaged rows are not counted")
        else:
            if not is_sized:
                lacks.add("the sizes of some instances are not known")
    return UsagePart(sums, after, exact_from, frozenset(lacks))


GROUPS: Mapping[str, Callable[[Record], str | None]] = {
    "project": lambda record: record["project_id"],
    "flavor": lambda record: (record["flavor"] or {}).get("name"),
}
"""The grouping fields of sums, with the function that gives the value of an instance."""


def _add_instance(sums: dict[Group, Usage], request: UsageRequest, versions: Iterable[Version]) -> bool:
    """Add one instance to `sums`; returns whether the sizes of all its counted versions are known."""
    is_sized = True
    counted: dict[int, Amounts] = {}
    for version in versions:
        record = version.record
        time_us = _time_within(request, version)
        if time_us <= 0:
            continue
        usage = sums[tuple(GROUPS[name](record) for name in request.by)]
        amounts = usage.reserved if record["forthcoming"] else usage.used
        counted[id(amounts)] = amounts
        flavor = record["flavor"]
        is_sized = is_sized and flavor is not None
        _add_time(amounts, time_us, flavor or {})
    for amounts in counted.values():
        amounts.instances += 1
    return is_sized


def _time_within(request: UsageRequest, version: Version) -> int:
    """The microseconds within the period for which the instance ran in this version; 0 or less if it did not."""
    record = version.record
    began, ended = ("created_at", "deleted_at") if record["forthcoming"] else ("launched_at", "terminated_at")
    if record[began] is None or record["hidden"]:
        return 0
    until = FOR_EVER if record[ended] is None else record[ended]
    return int(min(request.stop, version.until, until) - max(request.start, version.since, record[began]))


def _add_time(amounts: Amounts, time_us: int, flavor: Record) -> None:
    amounts.time_us += time_us
    amounts.vcpus_us += time_us * (flavor.get("vcpus") or 0)
    amounts.memory_mib_us += time_us * (flavor.get("memory_mb") or 0)
    amounts.disk_gib_us += time_us * ((flavor.get("root_gb") or 0) + (flavor.get("ephemeral_gb") or 0))
