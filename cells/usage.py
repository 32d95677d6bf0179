"""What instances of a cell used within a period: how long each ran, times what it had; pure, but for reading rows.

An instance runs from its launch to its end, whatever its state, as Nova counts it (contracts/nova-rest, 4.5); a
reservation takes from when it was made until it is made real or goes. Where a cell keeps the changes of its instances,
each span counts by the size that the instance had then; elsewhere by the size that it has now.
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
"""The values of what sums are apart by."""

FOR_EVER = 2**63
COUNTED_FIELDS = ("flavor", "launched_at", "terminated_at", "created_at", "deleted_at", "forthcoming", "hidden")
"""The fields of an instance that say what it used, and that changes may change."""

_PAGE_ROWS = 1000
_FIELDS = ("uuid", "project_id", *COUNTED_FIELDS)


class Version(NamedTuple):
    """An instance as it was from `since` until `until`, microseconds; 0 and FOR_EVER: as far as is known."""

    since: int
    until: int
    record: Record


@dataclass(slots=True)
class Amounts:
    """instances: how many there were. The others are microseconds, times what the instances had in that time."""

    instances: int = 0
    time_us: int = 0
    vcpus_us: int = 0
    memory_mib_us: int = 0
    disk_gib_us: int = 0

    def add(self, other: "Amounts") -> None:
        for name, value in zip(self.__slots__, astuple(other), strict=True):
            setattr(self, name, getattr(self, name) + value)


@dataclass(slots=True)
class Usage:
    """What ran, and what was only reserved."""

    used: Amounts = field(default_factory=Amounts)
    reserved: Amounts = field(default_factory=Amounts)

    def add(self, other: "Usage") -> None:
        self.used.add(other.used)
        self.reserved.add(other.reserved)


@dataclass(frozen=True, slots=True)
class UsageRequest:
    """The usage between two moments, microseconds, of the instances that `scope` is true of.

    by: what sums are apart by, of GROUPS.
    """

    start: int
    stop: int
    scope: Filter
    by: tuple[str, ...] = ()

    def page(self, after: tuple[Any, ...] | None) -> PageRequest:
        """Some of the instances that may have used something, from behind `after`."""
        start, stop = from_microseconds(self.start), from_microseconds(self.stop)
        has_begun = any_of(Lt("created_at", stop), Lt("launched_at", stop))
        has_not_ended = any_of(IsNull("terminated_at"), Gt("terminated_at", start))
        wanted = all_of(self.scope, has_begun, has_not_ended)
        return PageRequest(wanted, INSTANCES_BY_UUID, _PAGE_ROWS, after, _FIELDS)


@dataclass(frozen=True, slots=True)
class UsagePart:
    """What some of the instances of a cell used.

    after: where the other instances begin; None: there are no others.
    exact_from: the moment from which every change counted; None: the cell keeps none.
    lacks: why something is missing in the sums.
    """

    sums: Mapping[Group, Usage]
    after: tuple[Any, ...] | None
    exact_from: int | None
    lacks: frozenset[str] = frozenset()


@runtime_checkable
class UsageAdapter(CellAdapter, Protocol):
    """A cell that keeps the changes of its instances."""

    def read_usage(self, request: UsageRequest, after: tuple[Any, ...] | None) -> UsagePart: ...


def read_usage(adapter: CellAdapter, request: UsageRequest, after: tuple[Any, ...] | None) -> UsagePart:
    """What the instances of the first page behind `after` used. Raises CellUnreachableError."""
    if isinstance(adapter, UsageAdapter):
        return adapter.read_usage(request, after)
    rows = adapter.read_page(request.page(after))
    part = add_up(request, ([Version(0, FOR_EVER, row.record)] for row in rows), next_page(rows), exact_from=None)
    if not isinstance(rows, PartialRows):
        return part
    return UsagePart(part.sums, None, None, part.lacks | {rows.lacks})


def next_page(rows: Sequence[Any]) -> tuple[Any, ...] | None:
    """Where the page behind these rows begins, which are one page; None where there is no other."""
    return INSTANCES_BY_UUID.values(rows[-1].record) if len(rows) == _PAGE_ROWS else None


def add_up(
    request: UsageRequest,
    instances: Iterable[Iterable[Version]],
    after: tuple[Any, ...] | None,
    *,
    exact_from: int | None,
) -> UsagePart:
    """The sums of instances, each of which is given by its versions; after, exact_from: of the part."""
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
"""What sums of a cell can be apart by, with the value of an instance."""


def _add_instance(sums: dict[Group, Usage], request: UsageRequest, versions: Iterable[Version]) -> bool:
    """Returns whether the sizes of all that counts are known."""
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
    """How long the instance was there, in this version and in the period; 0 or less: it was not."""
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
