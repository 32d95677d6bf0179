"""A limit on logins, so that no caller can guess passwords, nor keep others from logging in.

Wrong logins count by name and address together, even for unknown users: a caller that guesses has to wait, and the
user, at another address, does not. They also count by address alone. Few passwords are checked at a time
(`fleetlight.api.limits.fair_queue`): addresses take turns, and users that have logged in before have places of their
own. Processes forked after the limit was made share the counts; waiting logins and known users are per process. Tokens,
and passwords that a process knows to be right, do not wait.
"""

import secrets
import struct
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from hashlib import blake2b
from mmap import mmap

from fleetlight.api.http.connection import ClientConnection
from fleetlight.api.http.errors import TooManyLoginsError, UnauthorizedError
from fleetlight.api.limits.fair_queue import FairQueue, QueueRefusal
from fleetlight.api.limits.shared_memory import SharedMemory
from fleetlight.resources.clock import Clock, system_clock
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

CHECKS_AT_ONCE = 2
MOST_FAILURES = 10
MOST_FAILURES_OF_ADDRESS = 100
MOST_WAITING = 256
MOST_WAITING_OF_ADDRESS = 64
WINDOW_S = 60
_RETRY_AFTER_S = 2
_MOST_KEYS = 10_000
_DIGEST_BYTES = 16
_SETS = 2048
_KEYS_OF_SET = 8
# A key, the microsecond of its first failure, and the number of failures.
_FAILED = struct.Struct(f"={_DIGEST_BYTES}sQI")

# A digest, since callers choose the length of names.
_Key = bytes


class LoginLimit:
    """The limit; each process uses it in one event loop."""

    def __init__(self, clock: Clock = system_clock) -> None:
        self._queue = FairQueue(
            CHECKS_AT_ONCE,
            most_waiting=MOST_WAITING,
            most_in_flow=MOST_WAITING_OF_ADDRESS,
            # Users that have logged in before may use the other half.
            most_others=MOST_WAITING // 2,
            refusal=too_many_at_once,
        )
        self._failures = _Failures(MOST_FAILURES, clock)
        self._failures_of_address = _Failures(MOST_FAILURES_OF_ADDRESS, clock)
        self._under_way: Counter[_Key] = Counter()
        # Users and addresses of right logins, the latest last.
        self._right: OrderedDict[_Key, None] = OrderedDict()

    @property
    def waiting(self) -> int:
        """The number of waiting logins."""
        return self._queue.waiting

    def lock(self, flow: str) -> AbstractAsyncContextManager[None]:
        """Wait for a slot for work as costly as a login. flow: its queue. Raises TooManyLoginsError."""
        return self._queue.lock(flow)

    @asynccontextmanager
    async def attempt(self, name: str, caller: ClientConnection) -> AsyncIterator[None]:
        """Admit one login with `name` in the block, and count an UnauthorizedError that leaves the block.

        Raises TooManyLoginsError after MOST_FAILURES within WINDOW_S, or when too many logins wait, and
        CallerLeftError.
        """
        pair, address = _key(name, caller.network), _key(caller.network)
        self._refuse_too_many(pair, address)
        is_known = pair in self._right
        async with self._queue.lock(pair if is_known else address, caller, is_preferred=is_known):
            # Check again, since earlier logins may have failed while this one waited.
            self._refuse_too_many(pair, address)
            if self._failures.count(pair) + self._under_way[pair] >= MOST_FAILURES:
                raise TooManyLoginsError(1)
            self._under_way[pair] += 1
            try:
                yield
            except UnauthorizedError:
                self._failures.add(pair)
                self._failures_of_address.add(address)
                raise
            else:
                self._failures.forget(pair)
                self._remember(pair)
            finally:
                self._under_way[pair] -= 1
                if not self._under_way[pair]:
                    del self._under_way[pair]

    def _refuse_too_many(self, pair: _Key, address: _Key) -> None:
        """Raise TooManyLoginsError; failures of the address do not count for users that have logged in from there,
        since it may be that of a proxy."""
        wait_us = self._failures.wait_us(pair)
        if pair not in self._right:
            wait_us = max(wait_us, self._failures_of_address.wait_us(address))
        if wait_us > 0:
            raise TooManyLoginsError(-(-wait_us // MICROSECONDS_PER_SECOND))

    def _remember(self, pair: _Key) -> None:
        self._right[pair] = None
        self._right.move_to_end(pair)
        if len(self._right) > _MOST_KEYS:
            self._right.popitem(last=False)


def too_many_at_once(_why: QueueRefusal) -> TooManyLoginsError:
    """Make the error of a caller that may not wait."""
    return TooManyLoginsError(_RETRY_AFTER_S, "Too many requests at once.")


class _Failures:
    """Counts of failures by key within WINDOW_S of its first failure, shared by this process and its forks.

    Keys are in sets of _KEYS_OF_SET; in a full set, the key that failed first gives way.
    """

    def __init__(self, most: int, clock: Clock) -> None:
        self._most = most
        self._clock = clock
        self._memory = SharedMemory(_SETS * _KEYS_OF_SET * _FAILED.size)
        # Secret, so that callers cannot choose names that fall into the set of another caller.
        self._secret = secrets.token_bytes(_DIGEST_BYTES)

    def count(self, key: _Key) -> int:
        with self._memory.locked() as memory:
            return self._found(memory, key)[2]

    def wait_us(self, key: _Key) -> int:
        """Return how long `key` has to wait; 0 if it need not."""
        with self._memory.locked() as memory:
            _, since, count = self._found(memory, key)
        return since + WINDOW_S * MICROSECONDS_PER_SECOND - self._clock() if count >= self._most else 0

    def add(self, key: _Key) -> None:
        with self._memory.locked() as memory:
            offset, since, count = self._found(memory, key)
            _FAILED.pack_into(memory, offset, key, since if count else self._clock(), count + 1)

    def forget(self, key: _Key) -> None:
        with self._memory.locked() as memory:
            offset, _, count = self._found(memory, key)
            if count:
                _FAILED.pack_into(memory, offset, b"", 0, 0)

    def _found(self, memory: mmap, key: _Key) -> tuple[int, int, int]:
        """Return the offset of `key`, or of a place for it, its first failure in microseconds, and its count or 0."""
        number = int.from_bytes(blake2b(key, digest_size=8, key=self._secret).digest()) % _SETS
        first = number * _KEYS_OF_SET * _FAILED.size
        offsets = range(first, first + _KEYS_OF_SET * _FAILED.size, _FAILED.size)
        known = {offset: _FAILED.unpack_from(memory, offset) for offset in offsets}
        for offset, (found, since, count) in known.items():
            if found == key and self._clock() < since + WINDOW_S * MICROSECONDS_PER_SECOND:
                return offset, since, count
            if found == key:
                return offset, 0, 0
        # A free place sorts as the oldest.
        return min(known, key=lambda offset: known[offset][1]), 0, 0


def _key(*parts: str) -> _Key:
    return blake2b(repr(parts).encode(), digest_size=_DIGEST_BYTES).digest()
