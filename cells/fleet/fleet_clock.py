"""The time of a fleet: that of its database, one for all its processes, whatever the clocks of their machines say."""

import time
from collections.abc import Callable

from sqlalchemy import text

from cells.fleet.database import FleetDatabase
from resources.clock import Clock, system_clock

_NOW = text("SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS bigint)")


class FleetClock:
    """Microseconds since the epoch, by the clock of the fleet database when it was last looked at.

    Since then it goes on as the machine's monotonic clock does, which nobody sets. So a machine whose own clock is
    wrong, or is set, is right all the time, and one that was suspended is right again after the next look.
    A fleet in SQLite is on one machine, whose clock is that of the fleet. Any thread may ask.
    own: that clock, and any machine's before the first look. monotonic_ns: what goes on in between.
    """

    def __init__(
        self, database: FleetDatabase, own: Clock = system_clock, monotonic_ns: Callable[[], int] = time.monotonic_ns
    ) -> None:
        self._database = database
        self._own = own
        self._monotonic_ns = monotonic_ns
        self._ahead_us: int | None = None

    def look(self) -> None:
        """Look at the clock of the database; raises FleetUnreachableError."""
        if self._database.engine.dialect.name == "sqlite":
            return
        with self._database.reading() as connection:
            begun = self._monotonic_us()
            now = connection.execute(_NOW).scalar_one()
            # It was asked at some moment in between.
            self._ahead_us = now - (begun + self._monotonic_us()) // 2

    def __call__(self) -> int:
        ahead_us = self._ahead_us
        return self._own() if ahead_us is None else self._monotonic_us() + ahead_us

    def _monotonic_us(self) -> int:
        return self._monotonic_ns() // 1000
