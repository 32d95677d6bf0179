"""Signatures of relays and producers, over the headers about the cell and the body.

They are HMACs with SHA-256 (RFC 2104); signer and indexers share the key. The header has the id of the key before the
signature, so that keys can change while messages are under way.
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
    """id: names the key in headers; has no colon. secret: 32 random bytes."""

    id: str
    secret: bytes

    def __repr__(self) -> str:
        return f"SigningKey({self.id})"


@dataclass(frozen=True, slots=True)
class ProducerKey:
    """The key with which `producer` signs. Its text is a secret, which only `reveal` shows."""

    producer: str
    key: SigningKey

    def __repr__(self) -> str:
        return f"ProducerKey({self.producer}, {self.key.id})"

    @classmethod
    def read(cls, text: str) -> "ProducerKey":
        """Parse the text made by `reveal`. Raises ProducerKeyError, which shows nothing of the text."""
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
    """Whether a producer may have this name, which appears in headers, logs and key files."""
    return _PRODUCER_NAME.fullmatch(name) is not None


def signed(message: Message, key: SigningKey) -> Message:
    """Sign a message. The headers about the cell must be set before."""
    return replace(
        message, headers={**message.headers, SIGNATURE_HEADER: _signature(key, message.headers, message.body)}
    )


def signed_by_producer(message: Message, cell_uuid: str, key: ProducerKey) -> Message:
    """Sign a producer's message for one cell; on the bus of another cell the signature is invalid."""
    headers = {**message.headers, CELL_HEADER: cell_uuid, PRODUCER_HEADER: key.producer}
    return signed(replace(message, headers=headers), key.key)


def key_id_of(headers: Mapping[str, Any]) -> str | None:
    """The id of the key in the signature header; None without a signature."""
    signature = headers.get(SIGNATURE_HEADER)
    return signature.partition(":")[0] if isinstance(signature, str) else None


def is_signed(headers: Mapping[str, Any], body: bytes, key: SigningKey) -> bool:
    """Whether the signature matches the headers and the body."""
    signature = headers.get(SIGNATURE_HEADER)
    if not isinstance(signature, str) or not signature.isascii():
        return False
    return hmac.compare_digest(signature, _signature(key, headers, body))


def _signature(key: SigningKey, headers: Mapping[str, Any], body: bytes) -> str:
    values = [headers.get(name) for name in _SIGNED]
    if PRODUCER_HEADER in headers:
        # Appended only if set: relays of the previous version sign the list without a producer.
        values.append(headers[PRODUCER_HEADER])
    # `repr` distinguishes a number from a text of digits, and marks where each value ends.
    said = repr(values).encode(errors="replace")
    digest = hmac.digest(key.secret, said + body, "sha256")
    return f"{key.id}:{b64encode(digest).decode()}"
