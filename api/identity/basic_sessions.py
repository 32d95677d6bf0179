"""Sessions of browsers with the strategy `basic`: signed tokens under a key that comes of the user's hash in the file.

So every process that reads the file knows them, none has to keep them, and a new password ends them.
"""

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode

from fleetlight.api.identity.ended_sessions import EndedSessions
from fleetlight.api.identity.tokens.token import Token, new_audit_id, sign, signed_token
from fleetlight.resources.clock import Clock, system_clock
from fleetlight.resources.units import MICROSECONDS_PER_SECOND


class BasicSessions:
    """lifetime_s: of a session from its login on. Which were ended is known to all processes that are forked later."""

    def __init__(self, lifetime_s: int, clock: Clock = system_clock) -> None:
        self._lifetime_us = lifetime_s * MICROSECONDS_PER_SECOND
        self._clock = clock
        self._ended = EndedSessions()

    def begin(self, name: str, hashed: str) -> str:
        """The text of a new session of the user `name`, whose password has the hash `hashed`."""
        now = self._clock()
        token = Token(name, ("password",), None, now, now + self._lifetime_us, (new_audit_id(),))
        return f"{urlsafe_b64encode(name.encode()).decode()}.{sign(token, _key(hashed))}"

    def is_good(self, session: str, hashed: str) -> bool:
        """Whether a session counts now. hashed: that of the user of `name_in`."""
        token = signed_token(session.partition(".")[2], _key(hashed))
        return token is not None and token.expires_at > self._clock() and session not in self._ended

    def end(self, session: str) -> None:
        self._ended.add(session, self._clock() + self._lifetime_us)


def name_in(session: str) -> str:
    """The name of the user that a session says to be of; empty if it says none."""
    try:
        return urlsafe_b64decode(session.partition(".")[0]).decode()
    except ValueError:
        return ""


def _key(hashed: str) -> str:
    return hmac.digest(b"session of a browser", hashed.encode(), hashlib.sha256).hex()
