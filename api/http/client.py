"""The client that has sent a request, as logs call it."""

from starlette.types import Scope

_LONGEST = 255


def address_of_client(scope: Scope) -> str | None:
    """The address that a request came from; behind a trusted proxy the one that the proxy names."""
    client = scope.get("client")
    return None if client is None else str(client[0])


def shown(text: str) -> str:
    """What callers call themselves, or ask for: not too long for a log, and nothing that changes a terminal."""
    cut = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in cut)
