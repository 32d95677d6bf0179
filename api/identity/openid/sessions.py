"""State of a login in the browser: sealed texts that only the processes of this API can make and read.

So every process can read them, and none has to store them. One kind of text cannot be mistaken for another.
"""

from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Generic, TypeVar

import msgspec
from cryptography.fernet import Fernet, InvalidToken

from fleetlight.api.identity.openid.rights import ClaimedRights


class Attempt(msgspec.Struct, frozen=True, array_like=True):
    """A login that has begun: the values that the provider's answer must match, and the page to show afterwards."""

    state: str
    nonce: str
    code_verifier: str
    next_page: str
    expires_at: int


class Session(msgspec.Struct, frozen=True, array_like=True):
    """A session. login: the same for all sessions of one login. project: index into those of `rights`, or None.

    begun_at, expires_at: microseconds since the epoch.
    """

    login: str
    rights: ClaimedRights
    project: int | None
    begun_at: int
    expires_at: int


Kept = TypeVar("Kept", Attempt, Session)


class Seal(Generic[Kept]):
    """Seals and opens one kind of text. key: the secret that all processes of one API share."""

    def __init__(self, key: str, kind: type[Kept]) -> None:
        self._fernet = Fernet(urlsafe_b64encode(sha256(f"openid {kind.__name__}\n{key}".encode()).digest()))
        self._kind: type[Kept] = kind

    def sealed(self, kept: Kept) -> str:
        return self._fernet.encrypt(msgspec.msgpack.encode(kept)).decode()

    def opened(self, text: str, now: int) -> Kept | None:
        """Open a text; None if it was not made with this key, or has expired at `now`, microseconds since the epoch."""
        try:
            kept = msgspec.msgpack.decode(self._fernet.decrypt(text.encode()), type=self._kind)
        except (InvalidToken, msgspec.DecodeError, ValueError):
            return None
        return kept if kept.expires_at > now else None
