"""The explanation of a list: its sources and the reason for each, their queries and durations.

An Observer records one list. Lists without explanation have none, and cost nothing more.
"""

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from fleetlight.indexer.backends.base import CellProgress
from fleetlight.listing.answer import Consistency, Freshness, IndexedCells
from fleetlight.listing.merge_sort import Row, Source
from fleetlight.query.page import PageRequest
from fleetlight.resources.fields import from_microseconds

Query = Mapping[str, Any]
"""A compiled query, as JSON: `sql` with its `values`, or `dsl`."""


@runtime_checkable
class DescribesSearches(Protocol):
    """An index that can show its query for a search."""

    def describe(self, request: PageRequest, cells: Collection[str]) -> Query:
        """Return the compiled query; raises NotExpressibleError if the index has none for the request."""


@runtime_checkable
class DescribesPages(Protocol):
    """A reader of cells that can show its query for a page."""

    async def describe(self, cell_uuid: str, request: PageRequest, timeout_s: float) -> Query | None: ...


@dataclass(slots=True)
class ObservedSource:
    """One source of a merge. cell_uuid: None for the index. rows: number of rows read; the page may show fewer."""

    cell_uuid: str | None
    batches: int = 0
    rows: int = 0
    duration_s: float = 0.0


@dataclass(slots=True)
class Attempt:
    """One merge. why: by cell uuid, the reason for its source. failure: why another attempt followed."""

    request: PageRequest
    why: Mapping[str, str]
    sources: list[ObservedSource]
    failure: str | None = None


@dataclass(slots=True)
class Observer:
    """The record of one list. remarks: about the list as a whole. no_index: why the list did without the index."""

    attempts: list[Attempt] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    no_index: str | None = None

    def begin(
        self, request: PageRequest, why: Mapping[str, str], sources: Sequence[tuple[str | None, Source]]
    ) -> list[Source]:
        """Record a new merge of `sources`, each with its cell; returns the sources wrapped for observation."""
        observed = [(ObservedSource(cell_uuid), source) for cell_uuid, source in sources]
        self.attempts.append(Attempt(request, why, [seen for seen, _ in observed]))
        return [_Watched(source, seen) for seen, source in observed]

    def do_without_index(self, reason: str) -> None:
        """Record that the list goes on without the index."""
        self.no_index = reason
        self.give_up(reason)

    def give_up(self, reason: str) -> None:
        """Record that the current attempt failed."""
        if self.attempts:
            self.attempts[-1].failure = reason
        self.remarks.append(reason)


@dataclass(frozen=True, slots=True)
class Reasons:
    """The reasons for the source of each cell. no_index: why the index answers for no cell; None if it does for some.

    ask_live: cells read live because of tokens or own changes. chosen: the cells that the index answers for.
    """

    consistency: Consistency
    limit_s: float
    no_index: str | None
    ask_live: Collection[str]
    chosen: IndexedCells

    def of(self, progress: CellProgress | None, fresh: Freshness) -> str:
        """Return the reason for one cell. progress: the progress of the index in it."""
        if self.no_index is not None:
            return self.no_index
        if self.consistency is Consistency.STRONG:
            return "consistency strong: cells only"
        if progress is None:
            return _UNKNOWN
        if progress.cell_uuid in self.ask_live:
            return "the index lacks a change that the list includes"
        if progress.cell_uuid in self.chosen.beside_waiting:
            return "the servers of its deployment that wait for a cell are read live, and may be in this one by now"
        if progress.horizon in self.chosen.too_short:
            moment = from_microseconds(progress.horizon).isoformat(timespec="seconds")
            return f"deleted rows from before {moment} may be wanted, which the index has no longer"
        behind_s = fresh.behind_s(progress)
        if self.consistency is Consistency.ANY:
            return f"consistency any: the index as it is, {behind_s:.1f} s behind"
        is_fresh = f"the index is fresh: {behind_s:.1f} s behind, and {self.limit_s:g} s are allowed"
        return why_live(progress, fresh, self.limit_s) or is_fresh


_UNKNOWN = "the index does not know the cell: no indexer has read it as a whole yet, and `doctor` says what is missing"


def why_live(progress: CellProgress | None, fresh: Freshness, limit_s: float) -> str | None:
    """Return why lists of consistency `bounded` read a cell live; None if the index answers for it.

    progress: the progress of the index in the cell. limit_s: see `fresh`.
    """
    if progress is None:
        return _UNKNOWN
    if not progress.is_complete:
        return progress.problem or "the index does not have all rows of the cell"
    if fresh.is_complete(progress):
        return None
    return f"the index is stale: {fresh.behind_s(progress):.1f} s behind, and {limit_s:g} s are allowed"


class _Watched:
    """A source that records its batches, rows and time in `seen`."""

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
