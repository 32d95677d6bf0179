"""Cursors of watches: the position in each cell's changelog, encrypted.

Sequences would show callers how many cells there are, and how busy. A cursor also names the question that it was made
for: a reader of another question would miss earlier changes.
"""

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from copy import copy
from hashlib import sha256
from uuid import UUID

import msgspec
from cryptography.fernet import Fernet, InvalidToken

from fleetlight.cells.epochs import Position

Positions = Mapping[str, Position]
"""By cell uuid, the position up to which a watch has read its changes."""

_decode = msgspec.msgpack.Decoder(tuple[bytes, dict[bytes, tuple[bytes | None, int]]]).decode


class PositionCodec:
    """Encodes and decodes cursors. key: the secret shared by all processes of one API; None: one of this process."""

    def __init__(self, key: str | None) -> None:
        secret = Fernet.generate_key() if key is None else urlsafe_b64encode(sha256(key.encode()).digest())
        self._fernet = Fernet(secret)
        self._question = b""

    def bound_to(self, question: object) -> "PositionCodec":
        """Return a codec with the same key for one question. question: a JSON value that identifies the question."""
        bound = copy(self)
        bound._question = sha256(msgspec.json.encode(question)).digest()
        return bound

    def encode(self, positions: Positions) -> str:
        """Encrypt positions as a cursor."""
        packed = {
            UUID(uuid).bytes: (
                None if position.epoch is None else UUID(position.epoch).bytes,
                position.sequence,
            )
            for uuid, position in positions.items()
        }
        return self._fernet.encrypt(msgspec.msgpack.encode((self._question, packed))).decode()

    def decode(self, text: str) -> Positions | None:
        """Decrypt a cursor; None if it was not made with this key and for this question."""
        question, positions = self._opened(text)
        return positions if question == self._question else None

    def is_of_another_question(self, text: str) -> bool:
        """Whether the cursor was made with this key, but for another question."""
        return self._opened(text)[0] not in (None, self._question)

    def _opened(self, text: str) -> tuple[bytes | None, Positions]:
        """Return the question's hash and the positions; None and no positions for a cursor of another key."""
        try:
            question, packed = _decode(self._fernet.decrypt(text.encode()))
            return question, {
                str(UUID(bytes=uuid)): Position(None if epoch is None else str(UUID(bytes=epoch)), sequence)
                for uuid, (epoch, sequence) in packed.items()
            }
        except (InvalidToken, msgspec.DecodeError, ValueError):
            return None, {}
