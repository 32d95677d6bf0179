"""Where a request comes from, as logs and logins need it: its address, and whether its caller still waits."""

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
    """The address that a request came from; behind a trusted proxy the one that the proxy names."""
    client = scope.get("client")
    return None if client is None else str(client[0])


def shown(text: str) -> str:
    """What callers call themselves, or ask for: not too long for a log, and nothing that changes a terminal."""
    cut = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in cut)


_IPV6_PREFIX = 64
# What a caller sends while it waits is held; one that sends more than any request has is not looked after further.
_MOST_HELD_BYTES = 128 * 1024
_MOST_HELD_MESSAGES = 64


async def _never() -> None:
    await asyncio.Event().wait()


@dataclass(frozen=True, slots=True)
class ClientConnection:
    """address: of the caller, or what is there in its place. left: returns when the caller has gone, or never."""

    address: str = ""
    left: Callable[[], Coroutine[Any, Any, None]] = _never

    @classmethod
    def of(cls, http: Request, receive: "LookingAhead | None" = None) -> "ClientConnection":
        """receive: that of `http`; None where the whole body was read already."""
        return cls(address_of_client(http.scope) or "", (receive or LookingAhead(http.receive)).left)

    @property
    def network(self) -> str:
        """What one caller has of addresses: of IPv6 64 bits at the least, so those are one."""
        try:
            address = ip_address(self.address)
        except ValueError:
            return self.address
        if not isinstance(address, IPv6Address):
            return self.address
        mapped = address.ipv4_mapped
        return str(mapped or IPv6Network((int(address), _IPV6_PREFIX), strict=False))


UNKNOWN = ClientConnection()
"""Of a caller that has no address, and never leaves."""


class LookingAhead:
    """The `receive` of an ASGI request, which can wait for the end of the connection and lose nothing of the body."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._held: deque[Message] = deque()

    async def __call__(self) -> Message:
        return self._held.popleft() if self._held else await self._receive()

    async def left(self) -> None:
        """Returns when the caller has gone."""
        held_bytes = 0
        while held_bytes < _MOST_HELD_BYTES and len(self._held) < _MOST_HELD_MESSAGES:
            try:
                message = await self._receive()
            except TryAgainLaterError:
                # Who reads the body is told.
                break
            self._held.append(message)
            if message["type"] == "http.disconnect":
                return
            held_bytes += len(message.get("body", b""))
        await _never()
