"""Names and passwords of HTTP basic authentication; hashing and checking of passwords outside of the event loop.

A check takes long and much memory, on purpose. So checks run in a few threads of their own: a caller that guesses
passwords gets no more of the machine, and requests with tokens go on meanwhile.
"""

import asyncio
from base64 import b64decode
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import bcrypt
from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from fleetlight.api.http.errors import UnauthorizedError
from fleetlight.api.limits.login_limit import CHECKS_AT_ONCE


def name_and_password(header: str, challenge: str) -> tuple[str, str]:
    """Parse the header Authorization (RFC 7617).

    Raises UnauthorizedError with `challenge` if the header is malformed.
    """
    scheme, _, encoded = header.partition(" ")
    try:
        name, colon, password = b64decode(encoded.strip(), validate=True).decode().partition(":")
    except ValueError:
        colon = ""
    if scheme.lower() != "basic" or not colon:
        raise UnauthorizedError("no basic authentication", challenge)
    return name, password


_ARGON2_PREFIX = "$argon2"
_BCRYPT_PREFIXES = ("$2a$", "$2b$", "$2y$")
# The choice of OWASP's equal ones (Password Storage Cheat Sheet) with the least memory for guessers to occupy.
_hasher = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)


def hash_password(password: str) -> str:
    """An argon2id hash with a salt of its own, in the usual text form."""
    return _hasher.hash(password)


@cache
def _hash_of_no_user() -> str:
    """Return the hash that is checked for unknown users, so that their answers take as long as others."""
    return hash_password("nobody has this password")


def is_known_hash(text: str) -> bool:
    """Whether `text` is a hash of a safe kind: argon2 or bcrypt."""
    return text.startswith((_ARGON2_PREFIX, *_BCRYPT_PREFIXES))


def is_password_of(hashed: str | None, password: str) -> bool:
    """Whether `hashed` is a hash of `password`. Blocks for as long as the hash is meant to take.

    hashed: None for an unknown user, or one without a password: the answer is no, after the same time.
    """
    if hashed is not None and hashed.startswith(_BCRYPT_PREFIXES):
        try:
            return bcrypt.checkpw(password.encode(), hashed.encode())
        except ValueError:  # longer than bcrypt's 72 bytes, or not a hash
            return False
    try:
        is_right = _hasher.verify(hashed or _hash_of_no_user(), password)
    except (VerificationError, InvalidHashError):
        return False
    return is_right and hashed is not None


class PasswordChecks:
    """`is_password_of` and `hash_password` for an event loop. No more than CHECKS_AT_ONCE are done at the same time:
    callers have waited for that (fleetlight.api.limits.login_limit).
    """

    def __init__(self) -> None:
        # The pool starts its threads on demand, after a fork, which does not copy threads.
        self._threads = ThreadPoolExecutor(CHECKS_AT_ONCE, thread_name_prefix="passwords")
        # Compute it now, or the first login of an unknown user would take longer.
        _hash_of_no_user()

    async def is_password_of(self, hashed: str | None, password: str) -> bool:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, is_password_of, hashed, password)

    async def hash_password(self, password: str) -> str:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, hash_password, password)
