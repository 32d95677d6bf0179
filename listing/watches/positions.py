"""The position of a watch in the changelog of each cell, as text that only we can read.

Sequences show how busy cells are, and how many there are, which is not for every caller. So the text is encrypted. It
says too what it was made for: a copy of what another question asks for would miss what changed before.
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
"""By cell uuid, up to where its changes have been looked at."""

_decode = msgspec.msgpack.Decoder(tuple[bytes, dict[bytes, tuple[bytes | None, int]]]).decode


class PositionCodec:
    """key: the secret that all processes of one API share; None: one of this process, until it ends."""

    def __init__(self, key: str | None) -> None:
        secret = Fernet.generate_key() if key is None else urlsafe_b64encode(sha256(key.encode()).digest())
        self._fernet = Fernet(secret)
        self._question = b""

    def bound_to(self, question: object) -> "PositionCodec":
        """One with the same key, for this question alone. question: what JSON can say, the same for the same one."""
        bound = copy(self)
        bound._question = sha256(msgspec.json.encode(question)).digest()
        return bound

    def encode(self, positions: Positions) -> str:
        packed = {
            UUID(uuid).bytes: (
                None if position.epoch is None else UUID(position.epoch).bytes,
                position.sequence,
            )
            for uuid, position in positions.items()
        }
        return self._fernet.encrypt(msgspec.msgpack.encode((self._question, packed))).decode()

    def decode(self, text: str) -> Positions | None:
        """None for what was not made with this key, and for this question."""
        question, positions = self._opened(text)
        return positions if question == self._question else None

    def is_of_another_question(self, text: str) -> bool:
        return self._opened(text)[0] not in (None, self._question)

    def _opened(self, text: str) -> tuple[bytes | None, Positions]:
        """The question and the positions; None for what was not made with this key."""
        try:
            question, packed = _decode(self._fernet.decrypt(text.encode()))
            return question, {
                str(UUID(bytes=uuid)): Position(None if epoch is None else str(UUID(bytes=epoch)), sequence)
                for uuid, (epoch, sequence) in packed.items()
            }
        except (InvalidToken, msgspec.DecodeError, ValueError):
            return None, {}
