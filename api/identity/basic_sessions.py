"""Sessions of browsers with the strategy `basic`: signed tokens under a key that comes of the user's hash in the file.

So every process that reads the file knows them, none has to keep them, and a new password ends them.
"""

import hashlib
import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode

from fleetlight.api.identity.ended_sessions import SessionEnds
from fleetlight.api.identity.tokens.token import Token, new_audit_id, sign, signed_token
from fleetlight.resources.clock import Clock, system_clock
from fleetlight.resources.units import MICROSECONDS_PER_SECOND


class BasicSessions:
    """lifetime_s: of a session from its login on."""

    def __init__(self, lifetime_s: int, clock: Clock = system_clock) -> None:
        self._lifetime_us = lifetime_s * MICROSECONDS_PER_SECOND
        self._clock = clock
        self.ends = SessionEnds(self._lifetime_us, clock)

    def begin(self, name: str, hashed: str) -> str:
        """The text of a new session of the user `name`, whose password has the hash `hashed`."""
        now = self._clock()
        token = Token(name, ("password",), None, now, now + self._lifetime_us, (new_audit_id(),))
        return f"{urlsafe_b64encode(name.encode()).decode()}.{sign(token, _key(hashed))}"

    async def is_good(self, session: str, hashed: str) -> bool:
        """Whether a session counts now. hashed: that of the user of `name_in`. Raises FleetUnreachableError."""
        token = signed_token(session.partition(".")[2], _key(hashed))
        if token is None or token.expires_at <= self._clock():
            return False
        return not await self.ends.has(token.user_id, session, token.issued_at)

    async def end(self, session: str) -> None:
        await self.ends.add(name_in(session), session)


def name_in(session: str) -> str:
    """The name of the user that a session says to be of; empty if it says none."""
    try:
        return urlsafe_b64decode(session.partition(".")[0]).decode()
    except ValueError:
        return ""


def _key(hashed: str) -> str:
    return hmac.digest(b"session of a browser", hashed.encode(), hashlib.sha256).hex()
