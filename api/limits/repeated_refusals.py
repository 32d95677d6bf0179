"""Repeated refusals: an equal request to a list that was just refused gets the same answer, without being handled.

Refusals must be cheap, since refused clients may repeat requests many times a second, and finding the route, the caller
and the parameters takes three times as long as the rest. So an equal request, with any query, gets the refusal again as
long as its caller may not wait in the queue that refused it.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any
from uuid import uuid4

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from fleetlight.api.http.connection import address_of_client
from fleetlight.api.http.request_metrics import route_found
from fleetlight.api.limits.admission import admission_of

_MOST_REMEMBERED = 1000
_REFUSED = 503
_REQUEST_IDS = (b"x-openstack-request-id", b"x-compute-request-id")


@dataclass(frozen=True, slots=True)
class _Refusal:
    """A refusal: its answer, its route, and the check whether it still applies."""

    messages: tuple[Message, ...]
    route: Mapping[str, Any]
    still_counts: Callable[[], bool]


class RepeatedRefusals:
    """Passes on every request that was not just refused. Use it in one event loop."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._refused: OrderedDict[bytes, _Refusal] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET":
            await self._app(scope, receive, send)
            return
        # Equal for requests that differ only in their query.
        asked = repr((scope["path"], address_of_client(scope), scope["headers"]))
        key = blake2b(asked.encode(), digest_size=16).digest()
        refused = self._refused.get(key)
        if refused is not None and refused.still_counts():
            scope.update(refused.route)
            for message in refused.messages:
                await send(_with_its_own_id(message))
            return
        self._refused.pop(key, None)
        sent: list[Message] = []

        async def send_and_look(message: Message) -> None:
            # Only the first message of other answers is inspected.
            if message.get("status") == _REFUSED or sent:
                sent.append(message)
            await send(message)

        await self._app(scope, receive, send_and_look)
        if not sent:
            return
        admission = admission_of(scope)
        if admission is not None and (is_full := admission.is_still_refused) is not None:
            self._refused[key] = _Refusal(tuple(sent), route_found(scope), is_full)
            if len(self._refused) > _MOST_REMEMBERED:
                self._refused.popitem(last=False)


def _with_its_own_id(message: Message) -> Message:
    if message["type"] != "http.response.start":
        return message
    own = f"req-{uuid4()}".encode()
    headers = [(name, own if name.lower() in _REQUEST_IDS else value) for name, value in message["headers"]]
    return {**message, "headers": headers}
