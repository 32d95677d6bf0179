"""A limit on wrong logins, so that nobody can try one password after the other.

It goes by the name that is logged in with, whether there is such a user or not, since an address says little behind a
proxy. Each process counts for itself. Tokens, and passwords that a process knows to be right, are not held up.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from api.http.errors import TooManyLoginsError, UnauthorizedError
from resources.clock import Clock, system_clock

MOST_FAILURES = 10
WINDOW_S = 60
_SECOND = 1_000_000
_MOST_NAMES = 10_000


@dataclass(slots=True)
class _Failures:
    """When the last wrong logins of one name were, in microseconds. turn: logins of one name wait for each other."""

    times: deque[int] = field(default_factory=lambda: deque(maxlen=MOST_FAILURES))
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


class LoginLimit:
    """For one event loop."""

    def __init__(self, clock: Clock = system_clock) -> None:
        self._clock = clock
        self._by_name: OrderedDict[str, _Failures] = OrderedDict()

    @asynccontextmanager
    async def attempt(self, name: str) -> AsyncIterator[None]:
        """One login with `name`; an UnauthorizedError that leaves the block is counted.

        Raises TooManyLoginsError after MOST_FAILURES within WINDOW_S.
        """
        failures = self._by_name.setdefault(name, _Failures())
        self._by_name.move_to_end(name)
        failures.waiting += 1
        try:
            # One after the other: of many guesses at once none may be looked at before those before it are counted.
            async with failures.lock:
                self._refuse_too_many(failures)
                try:
                    yield
                except UnauthorizedError:
                    failures.times.append(self._clock())
                    raise
                failures.times.clear()
        finally:
            failures.waiting -= 1
            self._forget(name, failures)

    def _refuse_too_many(self, failures: _Failures) -> None:
        now = self._clock()
        if len(failures.times) < MOST_FAILURES:
            return
        wait_us = failures.times[0] + WINDOW_S * _SECOND - now
        if wait_us > 0:
            raise TooManyLoginsError(-(-wait_us // _SECOND))

    def _forget(self, name: str, failures: _Failures) -> None:
        """Names without failures, and of too many names the one that was used least recently."""
        if not failures.times and not failures.waiting and self._by_name.get(name) is failures:
            del self._by_name[name]
        oldest = next(iter(self._by_name), None)
        if len(self._by_name) > _MOST_NAMES and oldest is not None and not self._by_name[oldest].waiting:
            del self._by_name[oldest]
