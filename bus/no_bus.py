"""The bus of a cell without a bus: no message ever arrives, and dead letters cannot be published."""

import time
from collections.abc import Callable, Sequence

from fleetlight.bus.bus import Delivery, Message
from fleetlight.notifications.errors import BusUnavailableError


class NoBus:
    """Behaves like a Receiver (fleetlight.bus.bus), without a broker."""

    @property
    def is_active(self) -> bool:
        return False

    @property
    def is_durable(self) -> bool:
        return False

    def receive(
        self, max_messages: int, max_bytes: int, wait_s: float, *, first_within_s: float | None = None
    ) -> list[Delivery]:
        time.sleep(wait_s if first_within_s is None else first_within_s)
        return []

    def keep_alive(self) -> None:
        """Do nothing: there is no connection."""

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Do nothing: no message was delivered."""

    def dead_letter(self, message: Message, reason: str, detail: str) -> None:
        """Raises BusUnavailableError."""
        raise BusUnavailableError("(none)", "the cell has no bus")

    def waiting(self) -> int:
        return 0

    def take_dead(self, keep: Callable[[Sequence[Message]], None], limit: int) -> int:
        return 0

    def close(self) -> None:
        """Do nothing: there is no connection."""
