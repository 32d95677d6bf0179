"""A relay's view of its bus, which has to be reachable before it takes over and while it stands by."""

import time
from collections.abc import Callable

import structlog

from fleetlight.cells.model import Cell
from fleetlight.notifications.errors import BusError

_log = structlog.get_logger(__name__)

# Between two looks at the bus by a relay that stands by.
_CHECK_INTERVAL_S = 60.0


class RelayBus:
    """check: raises BusError. is_reached: whether the last look that was required found the bus."""

    def __init__(self, cell: Cell, check: Callable[[], None]) -> None:
        self._cell = cell
        self._check = check
        self._is_away = False
        self.check_due_s = 0.0
        self.is_reached = False

    def require(self) -> None:
        """Raises BusError."""
        self.is_reached = False
        self._check()
        self.is_reached = True

    def look_now_and_then(self) -> None:
        """See that this relay could take over: a wrong account or authority would show too late."""
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
