"""The bus of a cell that has none: nothing ever comes, and dead letters have no refuge there."""

import time
from collections.abc import Callable, Sequence

from fleetlight.bus.bus import Delivery, Message
from fleetlight.notifications.errors import BusUnavailableError


class NoBus:
    """A Receiver (fleetlight.bus.bus) without a broker."""

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
        """There is no connection."""

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        """There is nothing to acknowledge."""

    def dead_letter(self, message: Message, reason: str, detail: str) -> None:
        raise BusUnavailableError("(none)", "the cell has no bus")

    def waiting(self) -> int:
        return 0

    def take_dead(self, keep: Callable[[Sequence[Message]], None], limit: int) -> int:
        return 0

    def close(self) -> None:
        """There is nothing to close."""
