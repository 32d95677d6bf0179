"""The time of a fleet: that of its database, one for all its processes, whatever the clocks of their machines say."""

import time
from collections.abc import Callable

import structlog
from sqlalchemy import text

from fleetlight.cells.fleet.database import FleetDatabase
from fleetlight.resources.clock import Clock, system_clock
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

_log = structlog.get_logger(__name__)

POSTGRESQL_NOW = text("SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS bigint)")
# What NTP keeps by far, and a small part of what lists call fresh.
_TOLERANCE_US = 1_000_000


class FleetClock:
    """Microseconds since the epoch, by the clock of the fleet database when it was last looked at.

    Since then it goes on as the machine's monotonic clock does, which is never set. So a machine whose own clock is
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
        self._own_ahead_us = 0
        self._disagrees = False

    def look(self) -> None:
        """Look at the clock of the database; raises FleetUnreachableError.

        An answer that took more than a second counts for nothing, since nothing tells when in that time it was made:
        what an earlier look has told stays, and before there is one nothing is sure.
        """
        if self._is_own:
            return
        with self._database.reading() as connection:
            begun = self._monotonic_us()
            now = connection.execute(POSTGRESQL_NOW).scalar_one()
            ended = self._monotonic_us()
        if ended - begun > _TOLERANCE_US:
            return
        # It was asked at some moment in between.
        self._ahead_us = now - (begun + ended) // 2
        self._own_ahead_us = self._own() - self()
        self._tell()

    def __call__(self) -> int:
        ahead_us = self._ahead_us
        return self._own() if ahead_us is None else self._monotonic_us() + ahead_us

    @property
    def offset_s(self) -> float:
        """How far the machine's own clock is ahead of the fleet's, in seconds; 0 before the first look."""
        return (self._own() - self()) / MICROSECONDS_PER_SECOND

    @property
    def agrees(self) -> bool:
        """Whether the machine's own clock shows the time of the fleet, to a second."""
        return abs(self._own() - self()) <= _TOLERANCE_US

    @property
    def is_sure(self) -> bool:
        """Whether this is the time of the fleet: the database was looked at, and the machine went on as usual since.

        When its two clocks have not gone on alike, either the one was set or the other stood still, as in a machine
        that was suspended; which of them can be told by the next look.
        """
        if self._is_own:
            return True
        return self._ahead_us is not None and abs(self._own() - self() - self._own_ahead_us) <= _TOLERANCE_US

    @property
    def _is_own(self) -> bool:
        return self._database.engine.dialect.name == "sqlite"

    def _tell(self) -> None:
        disagreed, self._disagrees = self._disagrees, not self.agrees
        if self._disagrees and not disagreed:
            _log.warning("clock.disagrees", offset_s=round(self.offset_s, 3))
        elif disagreed and not self._disagrees:
            _log.info("clock.agrees_again", offset_s=round(self.offset_s, 3))

    def _monotonic_us(self) -> int:
        return self._monotonic_ns() // 1000
