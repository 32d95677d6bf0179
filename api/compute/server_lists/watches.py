"""`GET /servers/detail` with `Accept: text/event-stream`: the later changes of the list's servers."""

from collections.abc import Sequence
from contextlib import ExitStack

import msgspec
from starlette.responses import Response

from fleetlight.api.compute.hosts.host_status import HostStatusCache, full_template
from fleetlight.api.compute.protocol.parameters import accept
from fleetlight.api.compute.server_lists.filter_and_order import build_filter, build_scope
from fleetlight.api.identity.rights import CallerRights
from fleetlight.api.limits.watch_limit import WatchSlots
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.event_stream import LAST_ID_HEADER, EventStream
from fleetlight.cells.errors import UnreadableRowError
from fleetlight.cells.model import InstanceRow
from fleetlight.listing.sources import rendered
from fleetlight.listing.watches.changelogs import ChangedItem, ResetReason
from fleetlight.listing.watches.feed import ChangeFeed
from fleetlight.listing.watches.positions import PositionCodec
from fleetlight.listing.watches.watch import Watch
from fleetlight.listing.watches.watched_list import ChangeKind, Condition, CoveredCell
from fleetlight.query.evaluate import matcher
from fleetlight.query.filters import Filter, check
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.views.compute.view import ItemTemplate

_ACTION = "detail"


class ServerWatches:
    """Opens streams of server lists. slots: those of all concurrent streams."""

    def __init__(
        self, feed: ChangeFeed, codec: PositionCodec, host_statuses: HostStatusCache, slots: WatchSlots
    ) -> None:
        self._feed = feed
        self._codec = codec
        self._host_statuses = host_statuses
        self._slots = slots

    async def open(self, request: ApiRequest) -> Response:
        """Open the stream of a list; its order and paging are ignored.

        Raises TooManyOwnWatchesError, TooManyWatchesError.
        """
        with ExitStack() as held:
            # Take the slot before the first await, so that a burst gets no more slots than there are.
            request.http.state.rate_limit = held.enter_context(self._slots.take(request.caller))
            watch = await self._watch(request)
            # A HEAD releases the slot at once.
            return EventStream(watch, ExitStack() if request.http.method == "HEAD" else held.pop_all())

    async def _watch(self, request: ApiRequest) -> Watch:
        query = accept(request.query, request.minor, is_admin=request.caller.is_admin)
        request.authorize(f"os_compute_api:servers:{_ACTION}")
        wanted = build_filter(query, request.minor, request.caller, action=_ACTION)
        visible = build_scope(query, request.caller, action=_ACTION)
        for tree in (wanted, visible):
            check(tree, INSTANCE_FIELDS)
        template = full_template(request, await self._host_statuses.shown_to(request))
        last_id = request.http.headers.get(LAST_ID_HEADER)
        since = None if not last_id else self._codec.decode(last_id)
        asked = _Servers(visible, wanted, template)
        rights = CallerRights(request.caller, request.authenticate)
        lost = ResetReason.UNKNOWN_CURSOR if last_id and since is None else None
        return Watch(self._feed, self._codec, asked, rights, since, lost=lost)


class _Servers:
    """The list of servers as a WatchedList. visible: filter of the servers that the caller may see."""

    def __init__(self, visible: Filter, wanted: Filter, template: ItemTemplate) -> None:
        self.condition = Condition(INSTANCE_FIELDS.name, None, visible, wanted)
        self._is_visible = matcher(visible, INSTANCE_FIELDS)
        self._is_wanted = matcher(wanted, INSTANCE_FIELDS)
        self._template = template

    def shows(self, row: InstanceRow) -> bool:
        return self._is_visible(row.record)

    def has(self, row: InstanceRow) -> bool:
        return self._is_wanted(row.record)

    def event(self, kind: ChangeKind, _change: ChangedItem, row: InstanceRow) -> tuple[str, bytes]:
        if kind is ChangeKind.LEAVE:
            return "removed", msgspec.json.encode({"server": {"id": row.uuid}})
        return "changed", b'{"server":' + self._rendered(row) + b"}"

    def coverage(self, cells: Sequence[CoveredCell], cursor: str | None) -> bytes:
        is_complete = all(each.why_not is None for each in cells)
        return b"{}" if cursor is None else msgspec.json.encode({"complete": is_complete})

    def _rendered(self, row: InstanceRow) -> bytes:
        try:
            return rendered(row, self._template)
        except UnreadableRowError:
            return self._template.render_damaged(row.record)
