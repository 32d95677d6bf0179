"""What only the relay of a cell can make: a signature over what a message says of the cell, and over its body.

HMAC with SHA-256 (RFC 2104) and a key of the cell, which its relay and the indexers have. It is in a header, behind the
name of the key, so that keys can be changed while messages are on their way.
"""

import hmac
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fleetlight.bus.bus import Message
from fleetlight.bus.topology import (
    CELL_HEADER,
    EPOCH_HEADER,
    RESOURCE_HEADER,
    REVISION_HEADER,
    SEQUENCE_HEADER,
    SIGNATURE_HEADER,
)

_SIGNED = (CELL_HEADER, EPOCH_HEADER, SEQUENCE_HEADER, REVISION_HEADER, RESOURCE_HEADER)


@dataclass(frozen=True, slots=True)
class SigningKey:
    """id: what it is called in headers, without a colon. secret: 32 random bytes."""

    id: str
    secret: bytes

    def __repr__(self) -> str:
        return f"SigningKey({self.id})"


def signed(message: Message, key: SigningKey) -> Message:
    """The message with its signature. Headers that say something of the cell must be there already."""
    return replace(
        message, headers={**message.headers, SIGNATURE_HEADER: _signature(key, message.headers, message.body)}
    )


def key_id_of(headers: Mapping[str, Any]) -> str | None:
    """Which key a message says that it is signed with; None if it says nothing."""
    signature = headers.get(SIGNATURE_HEADER)
    return signature.partition(":")[0] if isinstance(signature, str) else None


def is_signed(headers: Mapping[str, Any], body: bytes, key: SigningKey) -> bool:
    """Whether the message is as its signer has made it."""
    signature = headers.get(SIGNATURE_HEADER)
    if not isinstance(signature, str) or not signature.isascii():
        return False
    return hmac.compare_digest(signature, _signature(key, headers, body))


def _signature(key: SigningKey, headers: Mapping[str, Any], body: bytes) -> str:
    # `repr` tells a number from a text of digits, and ends where it ends.
    said = repr([headers.get(name) for name in _SIGNED]).encode(errors="replace")
    digest = hmac.digest(key.secret, said + body, "sha256")
    return f"{key.id}:{b64encode(digest).decode()}"
