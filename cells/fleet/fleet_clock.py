"""The clock of a fleet: its database's, the same for all processes, whatever the clocks of their machines show."""

import time
from collections.abc import Callable

import structlog
from sqlalchemy import text

from fleetlight.cells.fleet.database import FleetDatabase
from fleetlight.resources.clock import Clock, system_clock
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

_log = structlog.get_logger(__name__)

POSTGRESQL_NOW = text("SELECT CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS bigint)")
# NTP is far more exact, and lists tolerate far more.
_TOLERANCE_US = 1_000_000


class FleetClock:
    """Microseconds since the epoch: the clock of the fleet database at the last `look`, plus the monotonic time since.

    The monotonic clock is never set, so a machine whose own clock is wrong has the right time, and one that was
    suspended has it again after the next look. A fleet in SQLite is on one machine, and uses its clock. Thread-safe.
    own: the clock of the machine, used for SQLite, and before the first look. monotonic_ns: replaced by tests.
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
        """Read the clock of the database. Raises FleetUnreachableError.

        An answer that took more than a second is ignored, since its moment is unknown: the result of an earlier look
        stays, if there was one.
        """
        if self._is_own:
            return
        with self._database.reading() as connection:
            begun = self._monotonic_us()
            now = connection.execute(POSTGRESQL_NOW).scalar_one()
            ended = self._monotonic_us()
        if ended - begun > _TOLERANCE_US:
            return
        # Assume that the database read its clock halfway.
        self._ahead_us = now - (begun + ended) // 2
        self._own_ahead_us = self._own() - self()
        self._tell()

    def __call__(self) -> int:
        ahead_us = self._ahead_us
        return self._own() if ahead_us is None else self._monotonic_us() + ahead_us

    @property
    def offset_s(self) -> float:
        """Seconds by which the machine's own clock is ahead of the fleet's; 0 before the first look."""
        return (self._own() - self()) / MICROSECONDS_PER_SECOND

    @property
    def agrees(self) -> bool:
        """Whether the machine's own clock shows the time of the fleet, to a second."""
        return abs(self._own() - self()) <= _TOLERANCE_US

    @property
    def is_sure(self) -> bool:
        """Whether this is surely the time of the fleet: there was a look, and the machine's two clocks agree since.

        If they differ, the machine's own clock was set, or the monotonic clock stood still while the machine was
        suspended; the next look shows which.
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
