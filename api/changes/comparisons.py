"""Watches of what nothing numbers: the question is asked again and again, and the rows are compared.

Watches with the same question and the same rights share one comparison. In a process one comparison is made at a time,
and then none for _REST times as long, so that all of them never take more than a fixed share of the time: many of them,
or slow cells, are compared more seldom.
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
from fleetlight.api.query.engine import QueryEngine, proof_of
from fleetlight.api.query.item_query import ItemQuery, default_order
from fleetlight.api.query.scope import projects_of
from fleetlight.api.shared.proof import ReadOptions
from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.listing.admission import Admission
from fleetlight.listing.answer import Consistency, Page
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
    """What names a row for ever: the name of its cell, and the item there."""

    cell: str
    id: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """rows: of each, the JSON of its cells. known: names of the cells that have answered whole once. away: why one does
    not now; its rows stay as they were. has_all_cells: whether these are known to be all of the fleet.
    """

    rows: Mapping[RowKey, msgspec.Raw]
    known: Set[str]
    away: Mapping[str, str]
    has_all_cells: bool = True

    @property
    def is_complete(self) -> bool:
        return self.has_all_cells and not self.away

    def taken(self, rows: Mapping[RowKey, msgspec.Raw], proof: Page) -> "Snapshot":
        """The one after this, of the rows that were read now, and what they cover."""
        away = {each.cell.name: each.failure or _NOT_WHOLE for each in proof.cells if not each.is_complete}
        answered = {each.cell.name for each in proof.cells if each.is_complete}
        # A cell that has left the fleet is not asked, and its rows are gone; unless it is not known which cells it has.
        left = set() if proof.has_all_cells else self.known - answered
        stay = self.known & (away.keys() | left)
        kept = {key: cells for key, cells in self.rows.items() if key.cell in stay}
        read = {key: cells for key, cells in rows.items() if key.cell not in stay}
        return Snapshot(kept | read, answered | stay, away, proof.has_all_cells)

    def without_fleet(self, reason: str) -> "Snapshot":
        """The one after this when it was not known whom to ask."""
        return replace(self, away=dict.fromkeys(self.known | self.away.keys(), reason), has_all_cells=False)

    def changes_to(self, later: "Snapshot") -> Iterator[tuple[ChangeKind, RowKey]]:
        """What has happened to the rows until `later`."""
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
    """Rows of which the first cells are the item and its cell (status and value, as in every answer)."""
    for row in rows:
        item, cell, *others = _cells_in(row)
        key = RowKey(str(_cell_in(cell)[1]), str(_cell_in(item)[1]))
        yield key, msgspec.Raw(b"[" + b",".join(bytes(each) for each in others) + b"]")


MAX_ROWS = 5000
NO_CURSOR = "comparison"
"""The id of the events of such a watch: a reader that goes on from it gets a reset, and lists again."""
_INTERVAL_S = 2.0
_REST = 3

_log = structlog.get_logger(__name__)
_encode = msgspec.json.Encoder().encode


class Comparison:
    """The rows of one question, while there are watches of them. newest: as they were read last.

    why_ended: None while they are read.
    """

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
        """Return when there is something newer, or nothing for so long."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._has_news.wait()
        except TimeoutError:
            return

    def _wake(self) -> None:
        self._has_news.set()
        self._has_news = asyncio.Event()


class Comparisons:
    """All that are made in this process. timeout_s: what one cell may cost."""

    def __init__(self, query_engine: QueryEngine, timeout_s: float) -> None:
        self._query_engine = query_engine
        self._fresh = ReadOptions(Consistency.BOUNDED, (), timeout_s)
        self._comparisons: dict[Hashable, Comparison] = {}
        self._tasks: dict[Comparison, asyncio.Task[None]] = {}
        self._pace = asyncio.Lock()

    async def join(
        self, question: ItemQuery, caller: Caller, admission: Admission
    ) -> tuple[Comparison, Callable[[], None]]:
        """The comparison for a question, which is read now if it has no watch yet, and what leaves it.

        admission: of the request. Raises BadRequestError for more than MAX_ROWS, ForbiddenError, FleetUnreachableError.
        """
        key = _key_of(question, caller)
        if key not in self._comparisons:
            first = await self._read(question, caller, replace(self._fresh, admission=admission), NOTHING_READ)
            # Another request may have asked the same meanwhile.
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
        """Raises BadRequestError when there are too many rows."""
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
    """The events of a comparison for one reader, as of fleetlight.listing.watches.watch.Watch.

    A reader that is slow gets what is between the rows that it has and the newest ones. shows_cells: whether the reader
    may know the cells. is_lost: whether it goes on from an earlier stream, so that it does not know what it has missed.
    """

    def __init__(self, comparison: Comparison, rights: ConfirmsRights, *, shows_cells: bool, is_lost: bool) -> None:
        self._comparison = comparison
        self._rights = rights
        self._shows_cells = shows_cells
        self._is_lost = is_lost

    async def events(self) -> AsyncGenerator[WatchEvent]:
        """The stream; it ends when the process does, or with `ended`."""
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
    """Equal for questions to which all callers with it get the same rows. Raises ForbiddenError."""
    of_instances = question.known.name == INSTANCE_FIELDS.name
    scope = projects_of(caller, all_projects=question.all_projects) if of_instances else None
    return question.known.name, caller.is_admin, tuple(question.names), question.filter, scope


def _compared(question: ItemQuery) -> ItemQuery:
    """The same with what names each row before its cells, which the caller does not see there."""
    known = ITEM_TYPES[question.known.name]
    asked = [name if name in question.known else "" for name in question.names]
    return replace(question, known=known, names=(known.unique, CELL, *asked), order=default_order(known))


def _why_ended(task: asyncio.Task[None]) -> str:
    """The reason that its readers get; none where the process ends, or they have all left."""
    error = None if task.cancelled() else task.exception()
    if isinstance(error, BadRequestError):
        return str(error)
    if error is not None:
        _log.error("watch.failed", exc_info=error)
    return ""
