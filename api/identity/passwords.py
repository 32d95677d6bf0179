"""Names and passwords of HTTP basic authentication, and the hashing and checking of passwords off the event loop.

A check takes long and much memory, on purpose. So checks have threads of their own, and few: a
caller that guesses passwords gets no more of the machine, and requests with tokens go on meanwhile.
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
    """What the header Authorization says (RFC 7617).

    challenge: of the UnauthorizedError that is raised where it says neither.
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
# One of OWASP's equal choices (Password Storage Cheat Sheet), the one with the least memory: a guesser gets no more.
_hasher = PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)


def hash_password(password: str) -> str:
    """An argon2id hash with a salt of its own, in the usual text form."""
    return _hasher.hash(password)


@cache
def _hash_of_no_user() -> str:
    """The hash that is checked for users that there are not, so that their answers take as long as others."""
    return hash_password("nobody has this password")


def is_known_hash(text: str) -> bool:
    """Whether `text` is a hash of a kind that is safe enough to be checked: argon2 or bcrypt."""
    return text.startswith((_ARGON2_PREFIX, *_BCRYPT_PREFIXES))


def is_password_of(hashed: str | None, password: str) -> bool:
    """Whether `hashed` is a hash of `password`. Blocks for as long as the hash was made to take.

    hashed: None for a user that there is not, or one without a password: the answer is no, and as late as any other.
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
        # They begin when they are needed: what is made here may be forked, and threads are not.
        self._threads = ThreadPoolExecutor(CHECKS_AT_ONCE, thread_name_prefix="passwords")
        # Or the first login of an unknown user would wait for it, and for the check.
        _hash_of_no_user()

    async def is_password_of(self, hashed: str | None, password: str) -> bool:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, is_password_of, hashed, password)

    async def hash_password(self, password: str) -> str:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, hash_password, password)
