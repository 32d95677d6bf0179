"""Sessions of browsers with the strategy `basic`: signed tokens under a key that comes of the user's hash in the file.

So every process that reads the file knows them, none has to keep them, and a new password ends them.
"""

import hashlib
import hmac
import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode

from fleetlight.api.identity.tokens.token import Token, new_audit_id, sign, signed_token
from fleetlight.api.limits.shared_memory import SharedMemory
from fleetlight.resources.clock import Clock, system_clock
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

_DIGEST_BYTES = 16
_MOST_ENDED = 4096
# The session, and the microsecond at which it would have ended by itself.
_ENDED = struct.Struct(f"={_DIGEST_BYTES}sQ")


class BasicSessions:
    """lifetime_s: of a session from its login on. Which were ended is known to all processes that are forked later."""

    def __init__(self, lifetime_s: int, clock: Clock = system_clock) -> None:
        self._lifetime_us = lifetime_s * MICROSECONDS_PER_SECOND
        self._clock = clock
        self._ended = SharedMemory(_MOST_ENDED * _ENDED.size)

    def begin(self, name: str, hashed: str) -> str:
        """The text of a new session of the user `name`, whose password has the hash `hashed`."""
        now = self._clock()
        token = Token(name, ("password",), None, now, now + self._lifetime_us, (new_audit_id(),))
        return f"{urlsafe_b64encode(name.encode()).decode()}.{sign(token, _key(hashed))}"

    def is_good(self, session: str, hashed: str) -> bool:
        """Whether a session counts now. hashed: that of the user of `name_in`."""
        token = signed_token(session.partition(".")[2], _key(hashed))
        return token is not None and token.expires_at > self._clock() and not self._has_ended(session)

    def end(self, session: str) -> None:
        """Of those that were ended, the one that would have ended first gives way."""
        with self._ended.locked() as memory:
            offset = min(
                range(0, _MOST_ENDED * _ENDED.size, _ENDED.size),
                key=lambda offset: _ENDED.unpack_from(memory, offset)[1],
            )
            _ENDED.pack_into(memory, offset, _digest(session), self._clock() + self._lifetime_us)

    def _has_ended(self, session: str) -> bool:
        digest = _digest(session)
        with self._ended.locked() as memory:
            return any(found == digest for found, _ in _ENDED.iter_unpack(memory))


def name_in(session: str) -> str:
    """The name of the user that a session says to be of; empty if it says none."""
    try:
        return urlsafe_b64decode(session.partition(".")[0]).decode()
    except ValueError:
        return ""


def _key(hashed: str) -> str:
    return hmac.digest(b"session of a browser", hashed.encode(), hashlib.sha256).hex()


def _digest(session: str) -> bytes:
    return hashlib.blake2b(session.encode(), digest_size=_DIGEST_BYTES).digest()
