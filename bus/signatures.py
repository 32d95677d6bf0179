"""Signatures of relays and producers: over what headers say of the cell, and the body.

HMAC with SHA-256 (RFC 2104) and a key that the signer and the indexers have. It is in a header, behind the name of the
key, so that keys can be changed while messages are on their way.
"""

import binascii
import hmac
import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fleetlight.bus.bus import Message
from fleetlight.bus.topology import (
    CELL_HEADER,
    EPOCH_HEADER,
    PRODUCER_HEADER,
    RESOURCE_HEADER,
    REVISION_HEADER,
    SEQUENCE_HEADER,
    SIGNATURE_HEADER,
)
from fleetlight.notifications.errors import ProducerKeyError

_SIGNED = (CELL_HEADER, EPOCH_HEADER, SEQUENCE_HEADER, REVISION_HEADER, RESOURCE_HEADER)
_PRODUCER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_KEY_ID = re.compile(r"[0-9a-f]{8}")
_SECRET_BYTES = 32


@dataclass(frozen=True, slots=True)
class SigningKey:
    """id: what it is called in headers, without a colon. secret: 32 random bytes."""

    id: str
    secret: bytes

    def __repr__(self) -> str:
        return f"SigningKey({self.id})"


@dataclass(frozen=True, slots=True)
class ProducerKey:
    """What the producer called `producer` signs with. Its text is a secret, which only `reveal` shows."""

    producer: str
    key: SigningKey

    def __repr__(self) -> str:
        return f"ProducerKey({self.producer}, {self.key.id})"

    @classmethod
    def read(cls, text: str) -> "ProducerKey":
        """The key in the text that `reveal` has made. Raises ProducerKeyError, which shows nothing of it."""
        producer, _, rest = text.strip().partition(":")
        key_id, _, encoded = rest.partition(":")
        try:
            secret = b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            secret = b""
        if not is_producer_name(producer) or not _KEY_ID.fullmatch(key_id) or len(secret) != _SECRET_BYTES:
            raise ProducerKeyError
        return cls(producer, SigningKey(key_id, secret))

    def reveal(self) -> str:
        """The text of the key, for a file that only its owner can read."""
        return f"{self.producer}:{self.key.id}:{b64encode(self.key.secret).decode()}"


def is_producer_name(name: str) -> bool:
    """Whether a producer can be called `name`: it is in headers, in logs and in files of keys."""
    return _PRODUCER_NAME.fullmatch(name) is not None


def signed(message: Message, key: SigningKey) -> Message:
    """The message with its signature. Headers that say something of the cell must be there already."""
    return replace(
        message, headers={**message.headers, SIGNATURE_HEADER: _signature(key, message.headers, message.body)}
    )


def signed_by_producer(message: Message, cell_uuid: str, key: ProducerKey) -> Message:
    """The message as its producer sends it to one cell: on the bus of another one the signature is wrong."""
    headers = {**message.headers, CELL_HEADER: cell_uuid, PRODUCER_HEADER: key.producer}
    return signed(replace(message, headers=headers), key.key)


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
    values = [headers.get(name) for name in _SIGNED]
    if PRODUCER_HEADER in headers:
        # Not in the place of a producer that there is not: relays of the version before sign what has none.
        values.append(headers[PRODUCER_HEADER])
    # `repr` tells a number from a text of digits, and ends where it ends.
    said = repr(values).encode(errors="replace")
    digest = hmac.digest(key.secret, said + body, "sha256")
    return f"{key.id}:{b64encode(digest).decode()}"
