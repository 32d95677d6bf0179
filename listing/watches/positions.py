"""The position of a watch in the changelog of each cell, as text that only we can read.

Sequences show how busy cells are, and how many there are, which is not for every caller. So the text is encrypted.
"""

from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from uuid import UUID

import msgspec
from cryptography.fernet import Fernet, InvalidToken

from fleetlight.cells.epochs import Position

Positions = Mapping[str, Position]
"""By cell uuid, up to where its changes have been looked at."""

_decode = msgspec.msgpack.Decoder(dict[bytes, tuple[bytes | None, int]]).decode


class PositionCodec:
    """key: the secret that all processes of one API share; None: one of this process, until it ends."""

    def __init__(self, key: str | None) -> None:
        secret = Fernet.generate_key() if key is None else urlsafe_b64encode(sha256(key.encode()).digest())
        self._fernet = Fernet(secret)

    def encode(self, positions: Positions) -> str:
        packed = {
            UUID(uuid).bytes: (
                None if position.epoch is None else UUID(position.epoch).bytes,
                position.sequence,
            )
            for uuid, position in positions.items()
        }
        return self._fernet.encrypt(msgspec.msgpack.encode(packed)).decode()

    def decode(self, text: str) -> Positions | None:
        """None for what was not made with this key."""
        try:
            return {
                str(UUID(bytes=uuid)): Position(None if epoch is None else str(UUID(bytes=epoch)), sequence)
                for uuid, (epoch, sequence) in _decode(self._fernet.decrypt(text.encode())).items()
            }
        except (InvalidToken, msgspec.DecodeError, ValueError):
            return None
