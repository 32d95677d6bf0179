"""Watches of unnumbered changes: the process repeats the query of a watch, and compares the rows.

Watches with the same question and rights share one comparison. A process makes one comparison at a time, and then rests
_REST times as long, so comparisons never take more than a fixed share of its time: with many of them, or slow cells,
each is made more seldom.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Hashable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec
import structlog

from fleetlight.api.caller import Caller
from fleetlight.api.http.errors import BadRequestError
from fleetlight.api.query.engine import QueryEngine
from fleetlight.api.query.item_query import ItemQuery, default_order
from fleetlight.api.query.scope import projects_of
from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.listing.admission import Admission
from fleetlight.listing.answer import Consistency, Page, ReadOptions, proof_of
from fleetlight.listing.errors import RightsLostError
from fleetlight.listing.watches.changelogs import ResetReason
from fleetlight.listing.watches.watch import RIGHTS_INTERVAL_S, ConfirmsRights, WatchEvent, ended, lost
from fleetlight.listing.watches.watched_list import ChangeKind
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.resources.query_fields.catalog import ITEM_TYPES
from fleetlight.views.query2.items import CELL

_cells_in = msgspec.json.Decoder(list[msgspec.Raw]).decode
_cell_in = msgspec.json.Decoder(tuple[int, Any]).decode
_NOT_WHOLE = "not all of its rows could be read"


class RowKey(NamedTuple):
    """The permanent key of a row: the name of its cell, and the item's key there."""

    cell: str
    id: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The rows of one reading. rows: JSON of each row, by key. known: names of the cells that once answered in full.
    away: why a cell does not answer now; its rows stay as they were. has_all_cells: whether the cells are known to be
    all of the fleet.
    """

    rows: Mapping[RowKey, msgspec.Raw]
    known: Set[str]
    away: Mapping[str, str]
    has_all_cells: bool = True

    @property
    def is_complete(self) -> bool:
        return self.has_all_cells and not self.away

    def taken(self, rows: Mapping[RowKey, msgspec.Raw], proof: Page) -> "Snapshot":
        """Return the next snapshot, of `rows` read now. proof: which cells answered."""
        away = {each.cell.name: each.failure or _NOT_WHOLE for each in proof.cells if not each.is_complete}
        answered = {each.cell.name for each in proof.cells if each.is_complete}
        # A cell that has left the fleet loses its rows, unless the list of cells may be incomplete.
        left = set() if proof.has_all_cells else self.known - answered
        stay = self.known & (away.keys() | left)
        kept = {key: cells for key, cells in self.rows.items() if key.cell in stay}
        read = {key: cells for key, cells in rows.items() if key.cell not in stay}
        return Snapshot(kept | read, answered | stay, away, proof.has_all_cells)

    def without_fleet(self, reason: str) -> "Snapshot":
        """Return the next snapshot for a reading that failed since the list of cells was unknown."""
        return replace(self, away=dict.fromkeys(self.known | self.away.keys(), reason), has_all_cells=False)

    def changes_to(self, later: "Snapshot") -> Iterator[tuple[ChangeKind, RowKey]]:
        """Yield the changes of rows from this snapshot to `later`."""
        for key, cells in later.rows.items():
            if key not in self.rows:
                yield ChangeKind.ENTER, key
            elif self.rows[key] != cells:
                yield ChangeKind.CHANGE, key
        for key in self.rows:
            if key not in later.rows:
                yield ChangeKind.LEAVE, key


NOTHING_READ = Snapshot({}, frozenset(), {})


def keyed(rows: Iterable[msgspec.Raw]) -> Iterator[tuple[RowKey, msgspec.Raw]]:
    """Key each row by its first two fields, the item and its cell (status and value, as in every answer)."""
    for row in rows:
        item, cell, *others = _cells_in(row)
        key = RowKey(str(_cell_in(cell)[1]), str(_cell_in(item)[1]))
        yield key, msgspec.Raw(b"[" + b",".join(bytes(each) for each in others) + b"]")


MAX_ROWS = 5000
NO_CURSOR = "comparison"
"""The event id of a compared watch: a reader that resumes from it gets a reset, and lists again."""
_INTERVAL_S = 2.0
_REST = 3

_log = structlog.get_logger(__name__)
_encode = msgspec.json.Encoder().encode


class Comparison:
    """The rows of one question, while it has watches. newest: the last snapshot. why_ended: None while it is read."""

    def __init__(self, first: Snapshot) -> None:
        self.newest = first
        self.why_ended: str | None = None
        self.readers = 0
        self._has_news = asyncio.Event()

    def publish(self, newest: Snapshot) -> None:
        self.newest = newest
        self._wake()

    def end(self, reason: str) -> None:
        self.why_ended = self.why_ended or reason
        self._wake()

    async def news(self, timeout_s: float) -> None:
        """Wait for a newer snapshot, at most `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._has_news.wait()
        except TimeoutError:
            return

    def _wake(self) -> None:
        self._has_news.set()
        self._has_news = asyncio.Event()


class Comparisons:
    """The comparisons of this process. timeout_s: time limit of one cell."""

    def __init__(self, query_engine: QueryEngine, timeout_s: float) -> None:
        self._query_engine = query_engine
        self._fresh = ReadOptions(Consistency.BOUNDED, (), timeout_s)
        self._comparisons: dict[Hashable, Comparison] = {}
        self._tasks: dict[Comparison, asyncio.Task[None]] = {}
        self._pace = asyncio.Lock()

    async def join(
        self, question: ItemQuery, caller: Caller, admission: Admission
    ) -> tuple[Comparison, Callable[[], None]]:
        """Return the comparison of a question and a function that leaves it. The first watch reads the rows now.

        admission: the limits of the request. Raises BadRequestError for more than MAX_ROWS rows, ForbiddenError,
        FleetUnreachableError.
        """
        key = _key_of(question, caller)
        if key not in self._comparisons:
            first = await self._read(question, caller, replace(self._fresh, admission=admission), NOTHING_READ)
            # A concurrent request may have begun the same comparison.
            if key not in self._comparisons:
                self._begin(key, question, caller, first)
        comparison = self._comparisons[key]
        comparison.readers += 1
        return comparison, lambda: self._leave(key, comparison)

    def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()

    def _begin(self, key: Hashable, question: ItemQuery, caller: Caller, first: Snapshot) -> None:
        comparison = self._comparisons[key] = Comparison(first)
        task = self._tasks[comparison] = asyncio.create_task(self._compare(comparison, question, caller))

        def forget(task: asyncio.Task[None]) -> None:
            del self._tasks[comparison]
            if self._comparisons.get(key) is comparison:
                del self._comparisons[key]
            comparison.end(_why_ended(task))

        task.add_done_callback(forget)

    def _leave(self, key: Hashable, comparison: Comparison) -> None:
        comparison.readers -= 1
        if not comparison.readers and comparison in self._tasks:
            self._comparisons.pop(key, None)
            self._tasks[comparison].cancel()

    async def _compare(self, comparison: Comparison, question: ItemQuery, caller: Caller) -> None:
        """Repeat a comparison while it has watches. Raises BadRequestError when there are too many rows."""
        while True:
            await asyncio.sleep(_INTERVAL_S)
            async with self._pace:
                began = time.monotonic()
                comparison.publish(await self._read_on(comparison.newest, question, caller))
                await asyncio.sleep(_REST * (time.monotonic() - began))

    async def _read_on(self, before: Snapshot, question: ItemQuery, caller: Caller) -> Snapshot:
        try:
            return await self._read(question, caller, self._fresh, before)
        except FleetUnreachableError as error:
            return before.without_fleet(str(error))

    async def _read(self, question: ItemQuery, caller: Caller, fresh: ReadOptions, before: Snapshot) -> Snapshot:
        rows: dict[RowKey, msgspec.Raw] = {}
        proofs: list[Page] = []
        async for batch in self._query_engine.batches(_compared(question), caller, fresh):
            proofs.append(batch.proof)
            rows.update(keyed(cells for _, cells in batch.rows))
            if len(rows) > MAX_ROWS:
                raise BadRequestError(
                    f"filter: more than {MAX_ROWS:,} items match, and nothing numbers their changes: so many rows are "
                    "not compared"
                )
        return before.taken(rows, proof_of(proofs))


class ComparedWatch:
    """The events of a comparison for one reader, like those of fleetlight.listing.watches.watch.Watch.

    A slow reader gets the difference between its rows and the newest ones. shows_cells: whether the reader may see
    cells. is_lost: whether it resumes an earlier stream, so that it has missed changes.
    """

    def __init__(self, comparison: Comparison, rights: ConfirmsRights, *, shows_cells: bool, is_lost: bool) -> None:
        self._comparison = comparison
        self._rights = rights
        self._shows_cells = shows_cells
        self._is_lost = is_lost

    async def events(self) -> AsyncGenerator[WatchEvent]:
        """Stream the events until the process ends, or the reader has lost its rights (`ended`)."""
        comparison, seen = self._comparison, self._comparison.newest
        try:
            yield WatchEvent("ready", self._coverage(seen, {"cursor": None}), NO_CURSOR)
            if self._is_lost:
                yield lost(ResetReason.UNKNOWN_CURSOR)
            while comparison.why_ended is None:
                await self._rights.confirm()
                newest = comparison.newest
                for event in self._events_between(seen, newest):
                    if self._rights.are_old:
                        await self._rights.confirm()
                    yield event
                if newest is seen:
                    yield WatchEvent(None, cursor=NO_CURSOR)
                seen = newest
                if comparison.newest is seen and comparison.why_ended is None:
                    await comparison.news(RIGHTS_INTERVAL_S)
            if comparison.why_ended:
                yield ended(comparison.why_ended)
        except RightsLostError as error:
            yield ended(error.reason)

    def _events_between(self, seen: Snapshot, newest: Snapshot) -> Iterator[WatchEvent]:
        if newest is seen:
            return
        if newest.known - seen.known:
            yield lost(ResetReason.CELL_JOINED)
        for kind, key in seen.changes_to(newest):
            yield WatchEvent(kind, self._said(kind, key, newest), NO_CURSOR)
        if newest.is_complete != seen.is_complete or newest.away.keys() != seen.away.keys():
            yield WatchEvent("complete" if newest.is_complete else "incomplete", self._coverage(newest, {}))

    def _said(self, kind: ChangeKind, key: RowKey, newest: Snapshot) -> bytes:
        said: dict[str, Any] = {"kind": kind, "id": key.id, "revision": None, "at": None}
        if kind is not ChangeKind.LEAVE:
            said["cells"] = newest.rows[key]
        return _encode({**said, "cell": key.cell} if self._shows_cells else said)

    def _coverage(self, snapshot: Snapshot, said: dict[str, Any]) -> bytes:
        covered = {**said, "complete": snapshot.is_complete}
        if self._shows_cells:
            names = sorted(snapshot.known | snapshot.away.keys())
            covered["cells"] = {name: _covered(snapshot.away.get(name)) for name in names}
        return _encode(covered)


def _covered(why_not: str | None) -> dict[str, Any]:
    state = "followed" if why_not is None else "down"
    return {"state": state, "reason": why_not, "by": "comparison", "sequence": None}


def _key_of(question: ItemQuery, caller: Caller) -> Hashable:
    """Return a key under which all callers get the same rows. Raises ForbiddenError without the right to ask."""
    of_instances = question.known.name == INSTANCE_FIELDS.name
    scope = projects_of(caller, all_projects=question.all_projects) if of_instances else None
    return question.known.name, caller.is_admin, tuple(question.names), question.filter, scope


def _compared(question: ItemQuery) -> ItemQuery:
    """Add the key of each row to a question as its first fields, which callers are not shown."""
    known = ITEM_TYPES[question.known.name]
    asked = [name if name in question.known else "" for name in question.names]
    return replace(question, known=known, names=(known.unique, CELL, *asked), order=default_order(known))


def _why_ended(task: asyncio.Task[None]) -> str:
    """Return the reason that readers get; empty if the process ends, or all readers have left."""
    error = None if task.cancelled() else task.exception()
    if isinstance(error, BadRequestError):
        return str(error)
    if error is not None:
        _log.error("watch.failed", exc_info=error)
    return ""
