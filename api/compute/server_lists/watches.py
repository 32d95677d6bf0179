"""`GET /servers/detail` with `Accept: text/event-stream`: what changes from now on in what the list would show."""

from collections.abc import AsyncIterator
from contextlib import ExitStack

from sse_starlette import EventSourceResponse, ServerSentEvent
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from fleetlight.api.compute.hosts.host_status import HostStatusCache
from fleetlight.api.compute.protocol.parameters import accept
from fleetlight.api.compute.server_lists.filters import build_filter, build_scope
from fleetlight.api.compute.server_lists.item_templates import full_template
from fleetlight.api.identity.rights import CallerRights
from fleetlight.api.limits.watch_limit import WatchSlots
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.cells.errors import UnreadableRowError
from fleetlight.cells.model import InstanceRow
from fleetlight.listing.sources import rendered
from fleetlight.listing.watches.feed import ChangeFeed
from fleetlight.listing.watches.positions import PositionCodec
from fleetlight.listing.watches.watch import Watch, WatchRequest
from fleetlight.query.check import check
from fleetlight.query.evaluate import matcher
from fleetlight.resources.instance import INSTANCE_FIELDS

_LAST_ID_HEADER = "Last-Event-ID"
_ACTION = "detail"
# A reader that takes nothing for so long is given up.
_SEND_TIMEOUT_S = 30


class ServerWatches:
    """slots: for the streams that there are at the same time."""

    def __init__(
        self, feed: ChangeFeed, codec: PositionCodec, host_statuses: HostStatusCache, slots: WatchSlots
    ) -> None:
        self._feed = feed
        self._codec = codec
        self._host_statuses = host_statuses
        self._slots = slots

    async def open(self, request: ApiRequest) -> Response:
        """The stream. Order and paging of the list mean nothing to it.

        Raises TooManyOwnWatchesError, TooManyWatchesError.
        """
        with ExitStack() as held:
            # Before anything is waited for, so that a burst gets no more slots than there are.
            held.enter_context(self._slots.take(request.caller))
            watch = await self._watch(request)
            # A caller that asks for the headers alone watches nothing.
            return _Stream(watch.events(), ExitStack() if request.http.method == "HEAD" else held.pop_all())

    async def _watch(self, request: ApiRequest) -> Watch:
        query = accept(request.query, request.minor, is_admin=request.caller.is_admin)
        request.authorize(f"os_compute_api:servers:{_ACTION}")
        wanted = build_filter(query, request.minor, request.caller, action=_ACTION)
        visible = build_scope(query, request.caller, action=_ACTION)
        for tree in (wanted, visible):
            check(tree, INSTANCE_FIELDS)
        template = full_template(request, await self._host_statuses.shown_to(request))

        def render(row: InstanceRow) -> bytes:
            try:
                return rendered(row, template)
            except UnreadableRowError:
                return template.render_damaged(row.record)

        last_id = request.http.headers.get(_LAST_ID_HEADER)
        since = None if not last_id else self._codec.decode(last_id)
        asked = WatchRequest(matcher(visible, INSTANCE_FIELDS), matcher(wanted, INSTANCE_FIELDS), render)
        rights = CallerRights(request.caller, request.authenticate)
        return Watch(self._feed, self._codec, asked, rights, since, is_lost=bool(last_id) and since is None)


class _Stream(EventSourceResponse):
    """held: what is closed when the stream has ended, however it does."""

    def __init__(self, events: AsyncIterator[ServerSentEvent], held: ExitStack) -> None:
        # The stream has a heartbeat of its own, which moves the reader on.
        super().__init__(events, ping=0, send_timeout=_SEND_TIMEOUT_S)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._held:
            await super().__call__(scope, receive, send)
