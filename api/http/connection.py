"""The connection of a request: the client's address, and whether its caller still waits."""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Any

from starlette.requests import Request
from starlette.types import Message, Receive, Scope

from fleetlight.api.http.errors import TryAgainLaterError

_LONGEST = 255


def address_of_client(scope: Scope) -> str | None:
    """Return the client's address; behind a trusted proxy the one that the proxy names."""
    client = scope.get("client")
    return None if client is None else str(client[0])


def shown(text: str) -> str:
    """Shorten a caller's text for logs and terminals, and replace its unprintable characters."""
    cut = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in cut)


_IPV6_PREFIX = 64
# So much of what a caller sends while it waits is kept; a caller that sends more is not watched further.
_MOST_HELD_BYTES = 128 * 1024
_MOST_HELD_MESSAGES = 64


async def _never() -> None:
    await asyncio.Event().wait()


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """A caller's connection. address: its address, or a substitute. left: returns when the caller disconnects."""

    address: str = ""
    left: Callable[[], Coroutine[Any, Any, None]] = _never

    @classmethod
    def of(cls, http: Request, receive: "LookingAhead | None" = None) -> "ClientConnection":
        """Make the connection of `http`. receive: that of `http`; None if the whole body was read already."""
        return cls(address_of_client(http.scope) or "", (receive or LookingAhead(http.receive)).left)

    @property
    def network(self) -> str:
        """The network of the caller: its IPv4 address, or the /64 of its IPv6 address."""
        try:
            address = ip_address(self.address)
        except ValueError:
            return self.address
        if not isinstance(address, IPv6Address):
            return self.address
        mapped = address.ipv4_mapped
        return str(mapped or IPv6Network((int(address), _IPV6_PREFIX), strict=False))


UNKNOWN = ClientConnection()
"""The connection of a caller without an address, which never disconnects."""


class LookingAhead:
    """The `receive` of an ASGI request that can wait for the caller to disconnect without losing parts of the body."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._held: deque[Message] = deque()

    async def __call__(self) -> Message:
        return self._held.popleft() if self._held else await self._receive()

    async def left(self) -> None:
        """Return when the caller has disconnected."""
        held_bytes = 0
        while held_bytes < _MOST_HELD_BYTES and len(self._held) < _MOST_HELD_MESSAGES:
            try:
                message = await self._receive()
            except TryAgainLaterError:
                # The reader of the body gets the message, too.
                break
            self._held.append(message)
            if message["type"] == "http.disconnect":
                return
            held_bytes += len(message.get("body", b""))
        await _never()
