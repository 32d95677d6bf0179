"""`GET /fleetlight/changes/recent`: the latest changes of all cells, newest first, and who made them.

The feed goes forward from a cursor, for programs; this list goes back from now, for people. Both read the changelogs.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from operator import itemgetter
from typing import Any

from starlette.responses import Response

from fleetlight.api.changes.parameters import why_unnumbered
from fleetlight.api.documented import ApiOperation
from fleetlight.api.http.answers import json_answer
from fleetlight.api.http.errors import BadRequestError
from fleetlight.api.http.query_string import QueryString
from fleetlight.api.http.shapes import BOOL, INTEGER, OBJECT, TEXT, ListOf, Shape, optional, or_null
from fleetlight.api.limits.large_bodies import made_aside
from fleetlight.api.query.history import entry_shown
from fleetlight.api.query.item_query import ItemQuery, flag, number_in, query_of, refuse_unknown, size_of
from fleetlight.api.query.scope import choose_cells, projects_of, visible_fields
from fleetlight.api.services import Services
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.headers import COMPLETE, ROUTE
from fleetlight.api.shared.proof import proof_headers
from fleetlight.api.shared.times import with_zone
from fleetlight.cells.epochs import Position
from fleetlight.cells.errors import CellUnreachableError, UnknownCellError
from fleetlight.cells.kinds.native.instance_history import HistoryEntry
from fleetlight.cells.model import FIRST_REVISION, NO_REVISION, Cell, CellAdapter, Change, ChangelogAdapter
from fleetlight.cells.payloads.instance_payload import from_payload
from fleetlight.listing.answer import CellAnswer, Page, Route
from fleetlight.listing.watches.positions import Positions
from fleetlight.notifications.envelope import decode, size_problem
from fleetlight.notifications.errors import NotificationError
from fleetlight.notifications.payloads.fleetlight import FullInstancePayload
from fleetlight.notifications.registry import parse_payload
from fleetlight.query.evaluate import matcher
from fleetlight.query.expressions import time_of
from fleetlight.resources.fields import Record, to_microseconds
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.resources.units import MICROSECONDS_PER_SECOND
from fleetlight.views.query2.catalog import values_of
from fleetlight.views.query2.projection import RowMaker
from fleetlight.views.query2.values import CellFacts, Facts, split

_PARAMETERS = ("filter", "all_projects", "user_id", "changed_since", "changed_before", "limit", "marker")
_DEFAULT_LIMIT = 50
_MAX_LIMIT = 200
# One answer examines at most so many changes, over all cells, however few of them match the filter.
_LOOKED_AT = 4000
_LEAST_OF_A_CELL = 10
_BATCH = 200
# The clocks of the writers of one cell differ by less than this: no change is numbered before one that was made so much
# earlier.
_CLOCKS_DIFFER_US = 3600 * MICROSECONDS_PER_SECOND
# A relay numbers changes much sooner than this.
_NUMBERED_WITHIN_US = 10 * MICROSECONDS_PER_SECOND
# Later than every change.
_UNKNOWN = 2**62

RECENT_CHANGES = ApiOperation(
    "GET",
    "/fleetlight/changes/recent",
    Shape(
        {
            "changes": ListOf(
                Shape(
                    {
                        "instance": Shape(
                            {
                                **dict.fromkeys(("id", "name"), TEXT),
                                "project_id": or_null(TEXT),
                                "cell": optional(TEXT),
                                "deleted": BOOL,
                            }
                        ),
                        "revision": INTEGER,
                        "at": TEXT,
                        **dict.fromkeys(("event", "publisher", "request_id", "user_id", "project_id"), or_null(TEXT)),
                        "changed": or_null(OBJECT),
                    }
                )
            ),
            "marker": or_null(TEXT),
            "complete": BOOL,
            "missing": optional(ListOf(Shape(dict.fromkeys(("cell", "reason"), TEXT)))),
        }
    ),
    query=_PARAMETERS,
    gives=(COMPLETE, ROUTE),
    faults=(400, 403),
    summary="What changed lately in the instances that a filter lets pass, the newest first: when, by whom, and what",
)


@dataclass(frozen=True, slots=True)
class _Found:
    """A wanted change. number: its number in its cell's changelog. record: the instance after the change."""

    cell: Cell
    number: int
    record: Record
    is_gone: bool
    entry: HistoryEntry


@dataclass(frozen=True, slots=True)
class _Look:
    """The examined changes of a cell. found: wanted changes, newest first. position: lowest examined number.

    until: the moment of the oldest examined change; None if no wanted change can be older. unread: number of
    unreadable changes. lacks: why older wanted changes may have been pruned; None if none were.
    """

    cell: Cell
    found: Sequence[_Found]
    position: Position
    until: int | None
    unread: int = 0
    lacks: str | None = None


@dataclass(frozen=True, slots=True)
class _Made:
    """Condition on the author and the moment of changes, from `since` until before `before`. now: of the request."""

    user_id: str | None
    since: int
    before: int
    now: int

    @classmethod
    def of(cls, query: QueryString, now: int) -> "_Made":
        """Parse the condition. Raises BadRequestError for a malformed moment."""
        since, before = (_moment_in(query, name, now) for name in ("changed_since", "changed_before"))
        user_id = query.last("user_id") or None
        return cls(user_id, -_UNKNOWN if since is None else since, _UNKNOWN if before is None else before, now)

    def has(self, entry: HistoryEntry, found_at: int = 0) -> bool:
        """Return whether the change is wanted. found_at: when a journal got it; its own time may be an older one."""
        is_in_time = self.since <= max(entry.at, found_at) and entry.at < self.before
        return is_in_time and self.user_id in (None, entry.user_id)

    def lacks(self, forgotten_until: int, unnumbered_since: int | None) -> str | None:
        """Return why a cell lacks wanted changes; None if it has all. A request without `since` wants those it keeps.

        forgotten_until: the cell has pruned its changes up to this moment.
        unnumbered_since: its relay has not yet numbered the changes from this moment on; None if it has.
        """
        if unnumbered_since is not None and unnumbered_since < min(self.before, self.now - _NUMBERED_WITHIN_US):
            return f"no relay has numbered its changes since {with_zone(unnumbered_since)}"
        if self.since == -_UNKNOWN or self.since > forgotten_until or not forgotten_until:
            return None
        return f"its changes until {with_zone(forgotten_until)} are not kept any more"

    def may_be_before(self, at: int) -> bool:
        """Whether wanted changes may have lower numbers than a batch whose newest change was made at this moment."""
        return at >= self.since - _CLOCKS_DIFFER_US


def _moment_in(query: QueryString, name: str, now: int) -> int | None:
    text = query.last(name)
    try:
        return time_of(text, now) if text else None
    except (ValueError, OverflowError):
        raise BadRequestError(f"{name}: '{text}' is no time, such as '2026-11-28T18:00Z' or '10m ago'") from None


class _Wanted:
    """The changes that a caller wants, and may see. made: condition on author and moment."""

    def __init__(self, question: ItemQuery, made: _Made, request: ApiRequest, cells: Sequence[Cell]) -> None:
        self.made = made
        only, wanted = choose_cells(question.filter, question.known, cells, None)
        values = values_of(question.known.name)
        stored, rest = split(wanted, values)
        self.cells = [cell for cell in cells if only is None or cell.uuid in only]
        self._is_in_scope = matcher(projects_of(request.caller, all_projects=question.all_projects), INSTANCE_FIELDS)
        self._is_wanted = matcher(stored, INSTANCE_FIELDS)
        self._row = RowMaker(question.known, (), rest)
        self._changed_at = values["mtime"].make

    def has(self, cell: Cell, record: Record, before: Record | None, revision: int | None) -> bool:
        """Whether the instance matches the filter after the change, or matched it before."""
        if not self._is_in_scope(record):
            return False
        states = [record] if before is None else [record, before]
        return any(self._is_wanted(state) and self._row.keeps(_facts(cell, state, revision)) for state in states)

    def moment_of(self, cell: Cell, record: Record) -> int:
        """Return the moment of the instance's last change, in microseconds."""
        return int(self._changed_at(_facts(cell, record))[1] or 0)


class RecentChangesHandler:
    """The handler of RECENT_CHANGES."""

    def __init__(self, services: Services) -> None:
        self._cells = services.parts.cells
        self._changelogs = services.changelogs
        self._codec = services.positions
        self._timeout_s = services.parts.search.cell_timeout_s
        self._clock = services.parts.clock

    async def show(self, request: ApiRequest) -> Response:
        """`GET /fleetlight/changes/recent`. Raises BadRequestError, ForbiddenError, FleetUnreachableError."""
        query, caller = request.query, request.caller
        refuse_unknown(query, _PARAMETERS)
        limit = min(number_in("limit", query) or _DEFAULT_LIMIT, _MAX_LIMIT)
        known, text = visible_fields(INSTANCE_FIELDS.name, caller), query.last("filter") or None
        every = flag(query, "all_projects")
        now = self._clock()
        question = await made_aside(size_of(text), lambda: query_of(known, [], text, all_projects=every, now=now))
        cells = await self._cells.cells()
        if (why := why_unnumbered(question, cells)) is not None:
            raise BadRequestError(why)
        wanted = _Wanted(question, _Made.of(query, now), request, cells)
        positions = self._positions(query.last("marker"))
        asked = [cell for cell in wanted.cells if positions is None or cell.uuid in positions]
        async with request.admission.page():
            looks, missing = await self._look_at(asked, wanted, positions, limit)
        page = _newest(looks, limit)
        is_whole = all(look.until is None for look in looks) and len(page) == sum(len(look.found) for look in looks)
        looked_at = {look.cell.uuid for look in looks}
        answers = [_answer_of(cell, missing.get(cell.name), is_read=cell.uuid in looked_at) for cell in asked]
        knows_all = len(asked) == len(wanted.cells) and await self._cells.knows_all_cells()
        proof = Page(b"", len(page), None, answers, knows_all)
        said = {
            "changes": [_shown(each, request) for each in page],
            "marker": None if is_whole else self._codec.encode(_behind(looks, page)),
            "complete": proof.is_complete,
        }
        if caller.is_admin:
            said["missing"] = [{"cell": name, "reason": reason} for name, reason in sorted(missing.items())]
        return json_answer(said, headers=proof_headers(proof, caller))

    def _positions(self, marker: str | None) -> Positions | None:
        if marker is None:
            return None
        if (positions := self._codec.decode(marker)) is None:
            raise BadRequestError(f"marker: '{marker[:100]}' is none that an answer had; begin without it")
        return positions

    async def _look_at(
        self, cells: Sequence[Cell], wanted: _Wanted, positions: Positions | None, limit: int
    ) -> tuple[Sequence[_Look], Mapping[str, str]]:
        """Examine the changes of each cell; returns the results, and the reasons by cell where some are missing."""
        most = max(_LEAST_OF_A_CELL, _LOOKED_AT // max(1, len(cells)))
        few = min(limit, most)

        async def look(cell: Cell) -> _Look | str:
            before = None if positions is None else positions[cell.uuid]
            try:
                if cell.can.numbers_changes:
                    question = partial(_in_changelog, wanted=wanted, before=before, limit=few, most=most)
                    return await self._cells.ask(cell.uuid, question, self._timeout_s)
                if wanted.made.user_id is not None:
                    return "its changes do not name their users"
                return await self._in_journal(cell, wanted, before, few)
            except (CellUnreachableError, UnknownCellError) as error:
                return str(error)

        found = await asyncio.gather(*map(look, cells))
        missing = {cell.name: each for cell, each in zip(cells, found, strict=True) if isinstance(each, str)}
        looks = [each for each in found if isinstance(each, _Look)]
        damaged = {look.cell.name: f"{look.unread} of its changes cannot be read" for look in looks if look.unread}
        lacking = {look.cell.name: look.lacks for look in looks if look.lacks is not None}
        return looks, missing | lacking | damaged

    async def _in_journal(self, cell: Cell, wanted: _Wanted, before: Position | None, limit: int) -> _Look:
        """Examine a journal, which has the newest change of each instance without its author."""
        reading = await self._changelogs.read_back(cell, before, _BATCH)
        epoch, entries = reading.now.epoch, reading.entries
        if before is not None and before.epoch != epoch:
            raise _begun_anew(cell)
        times = [wanted.moment_of(cell, change.record) for _, change in entries]
        found: list[_Found] = []
        position, looked_at = reading.now.sequence + 1 if before is None else before.sequence, 0
        for (number, change), at in zip(entries, times, strict=True):
            if len(found) == limit:
                break
            position, looked_at = number, looked_at + 1
            entry = HistoryEntry(change.version, at, "", "", None, None, None, None)
            if wanted.made.has(entry, change.found_at) and wanted.has(cell, change.record, None, None):
                found.append(_Found(cell, position, change.record, change.is_gone, entry))
        is_whole = looked_at == len(entries) < _BATCH
        until = None if is_whole else max(times[looked_at - 1 :])
        lacks = wanted.made.lacks(reading.began_at, None)
        if lacks is None and wanted.made.before != _UNKNOWN:
            # The journal lacks the change before that moment of an instance that has changed again since.
            lacks = "of each instance only the newest change is known"
        return _Look(cell, found, Position(epoch, position), until, lacks=lacks)


def _in_changelog(adapter: CellAdapter, wanted: _Wanted, before: Position | None, limit: int, most: int) -> _Look:
    """Examine a native cell's changes before `before`. Blocks; raises CellUnreachableError, BadRequestError."""
    if not isinstance(adapter, ChangelogAdapter):
        raise CellUnreachableError(adapter.cell.name, "nothing numbers its changes")
    # Before the position: what is numbered in between is behind it.
    unnumbered_since = adapter.unnumbered_since()
    now, oldest = adapter.position(), adapter.oldest_kept_sequence()
    if before is not None and before.epoch != now.epoch:
        raise _begun_anew(adapter.cell)
    position = now.sequence + 1 if before is None else before.sequence
    end = max(oldest, position - most)
    found: list[_Found] = []
    until, unread, are_older_unwanted = _UNKNOWN, 0, False
    # Begin with a small batch, which is mostly enough; later batches are large, so rare changes need few statements.
    batch = min(_BATCH, limit)
    while position > end and len(found) < limit and not are_older_unwanted:
        first = max(end, position - batch)
        changes, newest = adapter.changes_after(first - 1, position - first), None
        for change in reversed([each for each in changes if each.sequence < position]):
            if len(found) == limit:
                break
            position = change.sequence
            each = _found_in(adapter.cell, change, wanted)
            if isinstance(each, _Found):
                found.append(each)
                until = each.entry.at
            elif each is not None:
                until = each
            if each is not None:
                newest = max(newest or 0, until)
            elif change.instance_uuid and change.revision != NO_REVISION:
                unread += 1
        if len(found) < limit:
            position = first
        are_older_unwanted = newest is not None and not wanted.made.may_be_before(newest)
        batch = _BATCH
    has_more = position > oldest and not are_older_unwanted
    # After the reads, since the cell may have pruned changes meanwhile.
    lacks = wanted.made.lacks(adapter.forgotten_until(), unnumbered_since)
    return _Look(adapter.cell, found, Position(now.epoch, position), until if has_more else None, unread, lacks)


def _found_in(cell: Cell, change: Change, wanted: _Wanted) -> _Found | int | None:
    """Return the change if it is wanted, else its moment; None if it cannot be read."""
    if size_problem(change.message):
        return None
    try:
        notification = decode(change.message)
        at = to_microseconds(notification.timestamp)
        if change.revision == NO_REVISION or not change.instance_uuid:
            return at
        payload = parse_payload(notification.payload)
    except NotificationError:
        return None
    if not isinstance(payload, FullInstancePayload):
        return at
    record = from_payload(payload)
    changed: Mapping[str, tuple[Any, Any]] | None = None
    before: Record | None = None
    if change.previous is not None and change.revision != FIRST_REVISION:
        replaced = {name: value for name, value in change.previous.items() if name in record}
        before = {**record, **replaced}
        pairs = {name: (value, record[name]) for name, value in replaced.items() if name != "updated_at"}
        changed = {name: (old, new) for name, (old, new) in pairs.items() if old != new}
    entry = HistoryEntry(
        change.revision,
        at,
        notification.event_type,
        notification.publisher_id,
        payload.request_id,
        payload.action_initiator_user,
        payload.action_initiator_project,
        changed,
    )
    if not wanted.made.has(entry) or not wanted.has(cell, record, before, change.revision):
        return at
    return _Found(cell, change.sequence, record, bool(record["deleted"]), entry)


def _newest(looks: Sequence[_Look], limit: int) -> Sequence[_Found]:
    """Return the newest changes of all cells, back to the moment from which every cell was examined.

    From each cell they are the first that were found, in the order of their numbers, so the next page follows them.
    """
    since = max((look.until for look in looks if look.until is not None), default=0)
    timed = [each for look in looks for each in zip(_moments(look), look.found, strict=True)]
    newest = sorted(timed, key=itemgetter(0), reverse=True)
    return [found for moment, found in newest if moment >= since][:limit]


def _moments(look: _Look) -> Sequence[int]:
    """Return the moment by which each found change is sorted: never before a change with a lower number.

    Times need not rise with numbers: writers' clocks differ, and Nova does not update the time of a server when its
    metadata changes. A change with too early a time stays next to its predecessor.
    """
    times = (each.entry.at for each in reversed(look.found))
    return list(accumulate(times, max, initial=look.until or 0))[:0:-1]


def _behind(looks: Sequence[_Look], page: Sequence[_Found]) -> Positions:
    """Return where the next page begins in each cell: after this page's last change of it."""
    told = {(each.cell.uuid, each.number) for each in page}
    positions: dict[str, Position] = {}
    for look in looks:
        untold = [each.number for each in look.found if (each.cell.uuid, each.number) not in told]
        positions[look.cell.uuid] = Position(look.position.epoch, untold[0] + 1) if untold else look.position
    return positions


def _answer_of(cell: Cell, problem: str | None, *, is_read: bool) -> CellAnswer:
    """Describe the contribution of a cell. problem: why it is incomplete."""
    route = Route.SKIPPED if not is_read else Route.CHANGELOG if cell.can.numbers_changes else Route.INDEX
    return CellAnswer(cell, route, problem is None, failure=problem)


def _shown(found: _Found, request: ApiRequest) -> Mapping[str, Any]:
    record, caller = found.record, request.caller
    entry = entry_shown(found.entry, visible_fields(INSTANCE_FIELDS.name, caller))
    of = {"id": record["uuid"], "name": record["display_name"] or "", "project_id": record["project_id"]}
    if caller.is_admin:
        of["cell"] = found.cell.name
    return {
        **entry,
        "instance": {**of, "deleted": found.is_gone},
        "event": entry["event"] or None,
        "publisher": entry["publisher"] or None,
    }


def _facts(cell: Cell, record: Record, revision: int | None = None) -> Facts:
    return Facts(record, revision, CellFacts(cell.name, is_configured_here=cell.can.takes_changes))


def _begun_anew(cell: Cell) -> BadRequestError:
    return BadRequestError(f"marker: the changelog of cell '{cell.name}' was begun anew since; begin without it")
