"""Reads a cell that is the compute API of other software, page by page, and never changes it.

The API narrows the servers down by parameters, but the adapter applies every filter to what it returns, since the API's
regular expressions, and the collation of its database, differ from ours. Of its orders only uuid and created_at are
ours as well, the latter up to fractions of a second, which the API does not show; for other orders the adapter reads
everything that the filter may mean, and keeps the first rows. See docs/decisions/0012.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from heapq import merge, nsmallest
from itertools import chain, groupby, islice, takewhile
from typing import Any
from urllib.parse import urlencode

from fleetlight.cells.errors import CellUnreachableError, UpstreamError
from fleetlight.cells.kinds.nova_api.client import ComputeApi, MarkerGoneError, Query
from fleetlight.cells.kinds.nova_api.items import to_record
from fleetlight.cells.kinds.nova_api.nodes import node_capacities, node_records
from fleetlight.cells.kinds.nova_api.query import DELETED_ONES, SOFT_DELETED, query_of
from fleetlight.cells.kinds.nova_api.upstream import Upstream
from fleetlight.cells.model import Cell, ChangeHints, Hints, InstanceRow, PartialRows
from fleetlight.cells.node_capacity import NodeCapacity
from fleetlight.cells.upstream.address import UpstreamAddress
from fleetlight.query.evaluate import matcher
from fleetlight.query.filters import Eq
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import INSTANCES_BY_UUID, Collation, Direction
from fleetlight.resources.clock import Clock, system_clock
from fleetlight.resources.fields import Record, from_microseconds
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.resources.query_fields.node import NODE
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

_TIMEOUT_S = 60.0
_SMALLEST_PAGE, _LARGEST_PAGE = 50, 1000
# More servers than this are searched among those that changed lately, as most did; fewer are requested one by one.
_FEW = 2
_LATELY_S = 300
_INTERVAL_S = 2.0
# Hosts write the times that the API compares, in whole seconds, and it shows a server a moment later.
_OVERLAP_S = 15
# Rest between two requests, as a multiple of the API's response time.
_RESTS = 5
# Each server may need a request of its own; more are left to the next comparison.
_MOST_NAMED = 100
_OF_ADMINISTRATORS = "OS-EXT-SRV-ATTR:host"
_OPPOSITE = {Direction.ASC: Direction.DESC, Direction.DESC: Direction.ASC}


class NovaApiAdapter:
    """A CellAdapter and ItemsAdapter (fleetlight.cells.model) for a compute API; thread-safe.

    timeout_s: of one query, however many requests it needs. Raises UpstreamError for an address that can never work.
    """

    def __init__(self, cell: Cell, *, timeout_s: float | None = None, clock: Clock = system_clock) -> None:
        self._cell = cell
        self._timeout_s = timeout_s or _TIMEOUT_S
        self._clock = clock
        self._upstream = Upstream(UpstreamAddress.read(cell.database_url), timeout_s=self._timeout_s)
        self._idle: deque[ComputeApi] = deque()

    @property
    def cell(self) -> Cell:
        return self._cell

    def read_page(self, request: PageRequest) -> Sequence[InstanceRow]:
        with self._asking() as servers:
            return _Page(servers, request).first_rows()

    def describe(self, request: PageRequest) -> Mapping[str, Any]:
        """The parameters of the first requests to the API, whose answers the adapter filters."""
        query = query_of(request.filter)
        asked = query.lists if query.uuids is None else [[("uuid", uuid)] for uuid in query.uuids]
        requests = [f"GET /servers/detail?{urlencode([('all_tenants', '1'), *each])}" for each in asked]
        return {"requests": requests, "filtered_in_python": True}

    def find(self, uuid: str) -> InstanceRow | None:
        return next(iter(self.read_page(PageRequest(Eq("uuid", uuid), INSTANCES_BY_UUID, 1))), None)

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()

    def read_items(
        self, item_type: str, fields: Collection[str], keys: Collection[Any] | None = None
    ) -> Sequence[Record]:
        """As fleetlight.cells.model.ItemsAdapter; such a cell has no items other than nodes."""
        if item_type != NODE.name:
            return []
        deadline_s = time.monotonic() + self._timeout_s
        with self._client() as client:
            hypervisors = client.hypervisors(deadline_s=deadline_s)
            # Read services last: a cell may have gone down while hypervisors were read.
            return node_records(hypervisors, client.compute_services(deadline_s=deadline_s))

    def read_capacity(self) -> Sequence[NodeCapacity]:
        """As fleetlight.cells.model.CapacityAdapter; an API shows no ratios."""
        deadline_s = time.monotonic() + self._timeout_s
        with self._client() as client:
            hypervisors = client.hypervisors(deadline_s=deadline_s)
            return node_capacities(hypervisors, client.compute_services(deadline_s=deadline_s))

    def describe_items(
        self, item_type: str, fields: Collection[str], keys: Collection[Any] | None = None
    ) -> Mapping[str, Any]:
        if item_type != NODE.name:
            return {"requests": []}
        return {"requests": ["GET /os-hypervisors/detail?with_servers=true", "GET /os-services?binary=nova-compute"]}

    def poll_changes(self) -> ChangeHints:
        return ChangedServers(self._changed_since, self._clock)

    def _changed_since(self, moment: int) -> Mapping[str, int]:
        with self._asking() as servers:
            return {row.uuid: hash(repr(row.record)) for row in servers.changed_since(moment)}

    @contextmanager
    def _asking(self) -> Iterator["_Servers"]:
        with self._client() as client:
            yield _Servers(self._cell, client, self._clock, time.monotonic() + self._timeout_s)

    @contextmanager
    def _client(self) -> Iterator[ComputeApi]:
        """Yield a client for this thread alone; translates UpstreamError to CellUnreachableError."""
        try:
            client = self._idle.pop()
        except IndexError:
            client = self._open_client()
        try:
            yield client
        except UpstreamError as error:
            client.close()
            raise CellUnreachableError(self._cell.name, str(error)) from error
        except BaseException:
            client.close()
            raise
        self._idle.append(client)

    def _open_client(self) -> ComputeApi:
        try:
            return self._upstream.open_client()
        except UpstreamError as error:
            raise CellUnreachableError(self._cell.name, str(error)) from error


class _Servers:
    """The servers of the API as rows, until a deadline on the monotonic clock. Calls raise UpstreamError."""

    def __init__(self, cell: Cell, client: ComputeApi, clock: Clock, deadline_s: float) -> None:
        self._cell = cell
        self._client = client
        self._clock = clock
        self._deadline_s = deadline_s
        self._is_proven = True
        self.lacks: str | None = None

    def rows(self, query: Query, size: int, marker: str | None = None) -> Iterator[InstanceRow]:
        """Yield servers after `marker`, in the order of the API. Raises MarkerGoneError before the first one."""
        while True:
            asked_at = self._clock()
            page = self._client.servers(query, limit=size, after=marker, deadline_s=self._deadline_s)
            self._is_proven &= page.is_proven
            for item in page.servers:
                try:
                    record = to_record(item)
                except (KeyError, TypeError, ValueError, AttributeError) as error:
                    raise UpstreamError(f"a server is not shown as one is: {type(error).__name__}: {error}") from error
                _check_rights(item, record, query)
                yield InstanceRow(self._cell.uuid, asked_at, record)
            if not page.has_more:
                return
            marker = page.servers[-1]["id"]

    def changed_since(self, moment: int) -> Iterator[InstanceRow]:
        """Yield servers that changed after a moment, including deleted ones."""
        since = from_microseconds(moment).replace(microsecond=0)
        return self.rows([("changes-since", since.isoformat()), *_UPWARDS], _LARGEST_PAGE)

    def changed_lately(self) -> Iterator[InstanceRow]:
        """Yield servers that changed in the last minutes, including deleted ones, at most one page."""
        return islice(self.changed_since(self._clock() - _LATELY_S * MICROSECONDS_PER_SECOND), _LARGEST_PAGE)

    def confirm_cells(self) -> None:
        """Raises UpstreamError if the lists lack servers, since Nova leaves out cells of its own that are down.

        Sets `lacks` if the API cannot tell.
        """
        if self._is_proven:
            return
        has_cells_down = self._client.has_cells_down(deadline_s=self._deadline_s)
        if has_cells_down:
            raise UpstreamError("the API lists no servers of a cell of its own that is down")
        if has_cells_down is None:
            self.lacks = "the API is older than microversion 2.69 and does not say whether a cell of its own is down"

    def confirm_absence(self, uuid: str) -> None:
        """Raises UpstreamError if the API has a server that its lists lack."""
        if self._client.has(uuid, deadline_s=self._deadline_s):
            raise UpstreamError(f"the API knows server {uuid} and does not list it; a cell of its own may be down")


def _check_rights(item: Mapping[str, Any], record: Record, query: Query) -> None:
    """Raises UpstreamError if the account sees less than an administrator, since the API leaves it out silently."""
    if _OF_ADMINISTRATORS not in item:
        raise UpstreamError(f"the account may not see {_OF_ADMINISTRATORS} of servers: it has to be an administrator's")
    if DELETED_ONES in query and not record["deleted"] and record["vm_state"] != SOFT_DELETED:
        raise UpstreamError("the account may not list deleted servers: it has to be an administrator's")


class _Page:
    """Answers one request."""

    def __init__(self, servers: _Servers, request: PageRequest) -> None:
        self._servers = servers
        self._order = request.order
        self._limit = request.limit
        self._after = None if request.after is None else request.order.comparable(request.after)
        self._start = request.after
        self._matches = matcher(request.filter, INSTANCE_FIELDS)
        self._query = query_of(request.filter)
        self._size = min(max(request.limit, _SMALLEST_PAGE), _LARGEST_PAGE)

    def first_rows(self) -> Sequence[InstanceRow]:
        """The rows of the page in order; each instance once."""
        if self._query.uuids is not None:
            rows = sorted(self._wanted(self._named(self._query.uuids)), key=self._position)[: self._limit]
        else:
            rows = list(islice(self._rows(self._query.lists), self._limit))
            # Confirm last: a cell may have gone down while servers were read.
            self._servers.confirm_cells()
        return rows if self._servers.lacks is None else PartialRows(rows, self._servers.lacks)

    def _rows(self, lists: Sequence[Query]) -> Iterator[InstanceRow]:
        """Yield at least the rows of the page."""
        first = self._order.keys[0]
        if first.field not in ("uuid", "created_at") or first.collation is not Collation.CODE_POINT:
            everything = chain.from_iterable(self._servers.rows([*each, *_UPWARDS], _LARGEST_PAGE) for each in lists)
            return iter(nsmallest(self._limit, _once(self._wanted(everything)), key=self._position))
        waiting: list[InstanceRow] = []
        if self._start is not None:
            # Nova lists servers without a cell before all others, and not after a marker. Read them first, since a
            # server that gets into a cell meanwhile would otherwise be in neither list.
            for each in lists:
                waiting += _parted(self._servers.rows([*each, *self._sorted()], _SMALLEST_PAGE))[0]
        # A cell may have the server already, with another time; Nova prefers the request in a list that has both.
        requested = {row.uuid for row in waiting}
        streams = [
            sorted(waiting, key=self._position),
            *((row for row in self._in_order(self._listed(each)) if row.uuid not in requested) for each in lists),
        ]
        return self._wanted(_once(merge(*streams, key=self._position)))

    def _sorted(self) -> Query:
        key = self._order.keys[0]
        return _sorted_by(key.field, key.direction)

    def _position(self, row: InstanceRow) -> tuple[Any, ...]:
        return self._order.comparable(self._order.values(row.record))

    def _wanted(self, rows: Iterable[InstanceRow]) -> Iterator[InstanceRow]:
        for row in rows:
            if self._matches(row.record) and (self._after is None or self._position(row) > self._after):
                yield row

    def _named(self, uuids: Collection[str]) -> Iterator[InstanceRow]:
        """Yield servers by uuid; the API has no request for several."""
        lately: dict[str, InstanceRow] = {}
        if len(uuids) > _FEW:
            lately = {row.uuid: row for row in self._servers.changed_lately()}
        for uuid in uuids:
            found = [lately[uuid]] if uuid in lately else self._one(uuid)
            yield from found

    def _one(self, uuid: str) -> Sequence[InstanceRow]:
        """The row of one server, from the first list that has it."""
        for each in self._query.lists:
            if found := list(islice(self._servers.rows([("uuid", uuid), *each], 1), 1)):
                return found
        if self._query.is_for_all:
            self._servers.confirm_absence(uuid)
        else:
            self._servers.confirm_cells()
        return ()

    def _listed(self, query: Query) -> Iterator[InstanceRow]:
        """The rows from the start of the page, in the order of the API, perhaps with some before it."""
        if self._start is None:
            return self._servers.rows([*query, *self._sorted()], self._size)
        marker = str(self._start[-1])
        try:
            return self._behind(query, marker)
        except MarkerGoneError:
            # The marker may be a server of another cell, or be gone.
            return self._servers.rows([*query, *self._sorted()], _LARGEST_PAGE)

    def _behind(self, query: Query, marker: str) -> Iterator[InstanceRow]:
        key = self._order.keys[0]
        forth = self._servers.rows([*query, *self._sorted()], self._size, marker)
        first = list(islice(forth, 1))  # raises if the marker is gone
        if key.field == "uuid" or self._start is None:
            return chain(first, forth)
        # Servers of the same second may be before the marker there, and after it here.
        value = self._start[0]
        back = self._servers.rows([*query, *_sorted_by(key.field, _OPPOSITE[key.direction])], _SMALLEST_PAGE, marker)
        same_second = list(takewhile(lambda row: row.record[key.field] == value, back))
        return chain(same_second, first, forth)

    def _in_order(self, rows: Iterator[InstanceRow]) -> Iterator[InstanceRow]:
        """Yield rows in our order; the API gives unscheduled servers first, then rows ordered by the first key."""
        waiting, rows = _parted(rows)
        return merge(sorted(waiting, key=self._position), self._sorted_rows(rows), key=self._position)

    def _sorted_rows(self, rows: Iterable[InstanceRow]) -> Iterator[InstanceRow]:
        field = self._order.keys[0].field
        last: tuple[Any, ...] | None = None
        for _, group in groupby(rows, key=lambda row: row.record[field]):
            for row in sorted(group, key=self._position):
                position = self._position(row)
                if last is not None and position < last:
                    raise UpstreamError(f"the API does not sort by {field} as it was asked to")
                last = position
                yield row


def _sorted_by(field: str, direction: Direction) -> Query:
    by_uuid = [] if field == "uuid" else [("sort_key", "uuid"), ("sort_dir", "asc")]
    return [("sort_key", field), ("sort_dir", direction.value), *by_uuid]


_UPWARDS = _sorted_by("uuid", Direction.ASC)


def _parted(rows: Iterator[InstanceRow]) -> tuple[Sequence[InstanceRow], Iterator[InstanceRow]]:
    """Split off the unscheduled servers at the beginning; later rows may look unscheduled as well."""
    waiting: list[InstanceRow] = []
    for row in rows:
        if row.record["task_state"] != "scheduling" or row.record["host"] is not None:
            return waiting, chain([row], rows)
        waiting.append(row)
    return waiting, rows


def _once(rows: Iterable[InstanceRow]) -> Iterator[InstanceRow]:
    """Yield each server once: one that is deleted between the readings of two lists is in both."""
    seen: set[str] = set()
    for row in rows:
        if row.uuid not in seen:
            seen.add(row.uuid)
            yield row


@dataclass(slots=True)
class ChangedServers:
    """ChangeHints (fleetlight.cells.model). They prove nothing, since some changes do not set `updated_at`.

    since: returns a digest of each server that changed after a moment, including deleted ones; raises
        CellUnreachableError.
    """

    since: Callable[[int], Mapping[str, int]]
    clock: Clock
    is_continued = False
    _asked_at: int = field(init=False)
    _shown: Mapping[str, int] = field(default_factory=dict)
    _due_s: float = 0.0

    def __post_init__(self) -> None:
        self._asked_at = self.clock()

    def take(self) -> Hints | None:
        begun_s = time.monotonic()
        if begun_s < self._due_s:
            return None
        since, self._asked_at = self._asked_at - _OVERLAP_S * MICROSECONDS_PER_SECOND, self.clock()
        try:
            shown = self.since(since)
        finally:
            # A list that takes too long must not be requested over and over, nor grow.
            took_s = time.monotonic() - begun_s
            self._due_s = begun_s + took_s + max(_INTERVAL_S, _RESTS * took_s)
        changed = [uuid for uuid, state in shown.items() if self._shown.get(uuid) != state]
        self._shown = shown
        return Hints(frozenset(changed[:_MOST_NAMED]), None)

    def close(self) -> None:
        """Nothing is open between two requests."""
