"""Checks whether a relay reaches its bus, before it takes over and on standby."""

import time
from collections.abc import Callable

import structlog

from fleetlight.cells.model import Cell
from fleetlight.notifications.errors import BusError

_log = structlog.get_logger(__name__)

# Between two checks of the bus by a relay on standby.
_CHECK_INTERVAL_S = 60.0


class RelayBus:
    """The bus of a relay. check: raises BusError. is_reached: whether the last `require` reached the bus."""

    def __init__(self, cell: Cell, check: Callable[[], None]) -> None:
        self._cell = cell
        self._check = check
        self._is_away = False
        self.check_due_s = 0.0
        self.is_reached = False

    def require(self) -> None:
        """Raises BusError if the bus cannot be reached."""
        self.is_reached = False
        self._check()
        self.is_reached = True

    def look_now_and_then(self) -> None:
        """Log whether this relay could take over, since a wrong account or authority would show too late."""
        if time.monotonic() < self.check_due_s:
            return
        was_away, self._is_away = self._is_away, False
        try:
            self._check()
        except BusError as error:
            self._is_away = True
            if not was_away:
                _log.warning("relay.standby_without_bus", cell=self._cell.name, reason=str(error))
        else:
            if was_away:
                _log.info("relay.standby_has_bus_again", cell=self._cell.name)
        self.check_due_s = time.monotonic() + _CHECK_INTERVAL_S
