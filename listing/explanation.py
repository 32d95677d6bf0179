"""The explanation of a list: which sources were chosen and why, their queries, and how long they took.

An Observer follows one list; nothing of it costs a list that is not explained.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from fleetlight.indexer.backends.base import CellProgress
from fleetlight.listing.answer import Consistency, Freshness
from fleetlight.listing.merge_sort import Row, Source
from fleetlight.query.page import PageRequest
from fleetlight.resources.fields import from_microseconds

Query = Mapping[str, Any]
"""A compiled query, as JSON: `sql` with its `values`, or `dsl`."""


@runtime_checkable
class DescribesSearches(Protocol):
    """An index that can show its query for a search."""

    def describe(self, request: PageRequest, cells: Collection[str]) -> Query: ...


@runtime_checkable
class DescribesPages(Protocol):
    """A reader of cells that can show its query for a page."""

    async def describe(self, cell_uuid: str, request: PageRequest, timeout_s: float) -> Query | None: ...


@dataclass(slots=True)
class ObservedSource:
    """One source of a merge. cell_uuid: None for the index. rows: how many it delivered; the page may show fewer."""

    cell_uuid: str | None
    batches: int = 0
    rows: int = 0
    duration_s: float = 0.0


@dataclass(slots=True)
class Attempt:
    """One merge. why: of each cell (uuid), the reason for its source. failure: why another attempt followed."""

    request: PageRequest
    why: Mapping[str, str]
    sources: list[ObservedSource]
    failure: str | None = None


@dataclass(slots=True)
class Observer:
    """What was seen of one list. remarks: on the index as a whole. no_index: why it is done without, once it is."""

    attempts: list[Attempt] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    no_index: str | None = None

    def begin(
        self, request: PageRequest, why: Mapping[str, str], sources: Sequence[tuple[str | None, Source]]
    ) -> list[Source]:
        """A merge of `sources` (each with its cell) begins; returns them as they are to be merged."""
        observed = [(ObservedSource(cell_uuid), source) for cell_uuid, source in sources]
        self.attempts.append(Attempt(request, why, [seen for seen, _ in observed]))
        return [_Watched(source, seen) for seen, source in observed]

    def do_without_index(self, reason: str) -> None:
        """The index could not be used (any more)."""
        self.no_index = reason
        self.give_up(reason)

    def give_up(self, reason: str) -> None:
        """What was read so far makes no page."""
        if self.attempts:
            self.attempts[-1].failure = reason
        self.remarks.append(reason)


@dataclass(frozen=True, slots=True)
class Reasons:
    """Why each cell has the source that it has. no_index: why the index is not used for any cell; None when it is.

    ask_live: cells that tokens or own changes want to be asked. too_short: horizons that the request may look behind.
    """

    consistency: Consistency
    limit_s: float
    no_index: str | None
    ask_live: Collection[str]
    too_short: Collection[int]

    def of(self, progress: CellProgress | None, fresh: Freshness) -> str:
        """The reason for one cell, which the index follows as `progress` says."""
        if self.no_index is not None:
            return self.no_index
        if self.consistency is Consistency.STRONG:
            return "consistency strong: cells only"
        if progress is None:
            return _UNKNOWN
        if progress.cell_uuid in self.ask_live:
            return "the index lacks a change that the list includes"
        if progress.horizon in self.too_short:
            moment = from_microseconds(progress.horizon).isoformat(timespec="seconds")
            return f"deleted rows from before {moment} may be wanted, which the index has no longer"
        behind_s = fresh.behind_s(progress)
        if self.consistency is Consistency.ANY:
            return f"consistency any: the index as it is, {behind_s:.1f} s behind"
        is_fresh = f"the index is fresh: {behind_s:.1f} s behind, and {self.limit_s:g} s are allowed"
        return why_live(progress, fresh, self.limit_s) or is_fresh


_UNKNOWN = "the index does not know the cell: no indexer has read it as a whole yet, and `doctor` says what is missing"


def why_live(progress: CellProgress | None, fresh: Freshness, limit_s: float) -> str | None:
    """Why lists ask a cell itself, which the index follows as `progress` says; None where they take the index.

    Of lists that ask for nothing else (`bounded`). limit_s: as of `fresh`.
    """
    if progress is None:
        return _UNKNOWN
    if not progress.is_complete:
        return progress.problem or "the index does not have all rows of the cell"
    if fresh.is_complete(progress):
        return None
    return f"the index is stale: {fresh.behind_s(progress):.1f} s behind, and {limit_s:g} s are allowed"


class _Watched:
    """A source, and what is seen of it."""

    def __init__(self, source: Source, seen: ObservedSource) -> None:
        self._source = source
        self._seen = seen

    async def next_batch(self) -> Sequence[Row]:
        began = time.perf_counter()
        try:
            rows = await self._source.next_batch()
        finally:
            self._seen.duration_s += time.perf_counter() - began
            self._seen.batches += 1
        self._seen.rows += len(rows)
        return rows
