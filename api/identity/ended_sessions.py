"""Sessions of browsers that were ended before they ended by themselves."""

import hashlib
import struct

from fleetlight.api.limits.shared_memory import SharedMemory

_DIGEST_BYTES = 16
_MOST = 4096
# The session, and the microsecond at which it would have ended by itself.
_ENDED = struct.Struct(f"={_DIGEST_BYTES}sQ")


class EndedSessions:
    """Known to all processes that are forked later. Of _MOST the one that would have ended first gives way."""

    def __init__(self) -> None:
        self._ended = SharedMemory(_MOST * _ENDED.size)

    def add(self, session: str, expires_at: int) -> None:
        """session: its text, or what names it. expires_at: microseconds since the epoch."""
        with self._ended.locked() as memory:
            offset = min(
                range(0, _MOST * _ENDED.size, _ENDED.size), key=lambda offset: _ENDED.unpack_from(memory, offset)[1]
            )
            _ENDED.pack_into(memory, offset, _digest(session), expires_at)

    def __contains__(self, session: str) -> bool:
        digest = _digest(session)
        with self._ended.locked() as memory:
            return any(found == digest for found, _ in _ENDED.iter_unpack(memory))


def _digest(session: str) -> bytes:
    return hashlib.blake2b(session.encode(), digest_size=_DIGEST_BYTES).digest()
