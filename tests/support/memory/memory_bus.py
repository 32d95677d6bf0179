"""A bus that lives in memory and can be made to fail."""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fleetlight.bus.bus import Delivery, Message
from fleetlight.bus.topology import DETAIL_HEADER, REASON_HEADER
from fleetlight.notifications.errors import BusUnavailableError


@dataclass
class MemoryBus:
    """What a receiver receives from, one receiver after the other.

    is_away: the broker cannot be reached. is_durable: as a broker is, and the bus of `fleetlight up` is not.
    waits_s: how long each call of a receiver would have waited for more messages behind the first one.
    """

    waiting: deque[Message] = field(default_factory=deque)
    held: list[Message] = field(default_factory=list)
    dead_lettered: list[tuple[Message, str, str]] = field(default_factory=list)
    acknowledged: int = 0
    kept_alive: int = 0
    is_away: bool = False
    is_durable: bool = True
    waits_s: list[float] = field(default_factory=list)

    def receiver(self) -> "MemoryReceiver":
        return MemoryReceiver(self)


class MemoryReceiver:
    """The Receiver of a MemoryBus; never waits."""

    def __init__(self, bus: MemoryBus) -> None:
        self._bus = bus
        self._tag = 0
        self._held: dict[int, Message] = {}

    @property
    def is_active(self) -> bool:
        return bool(self._tag)

    @property
    def is_durable(self) -> bool:
        return self._bus.is_durable

    def receive(
        self, max_messages: int, max_bytes: int, wait_s: float, *, first_within_s: float | None = None
    ) -> list[Delivery]:
        self._require_bus()
        self._bus.waits_s.append(wait_s)
        batch: list[Delivery] = []
        size = 0
        while self._bus.waiting and len(batch) < max_messages and size < max_bytes:
            message = self._bus.waiting.popleft()
            self._tag += 1
            self._held[self._tag] = message
            size += len(message.body)
            batch.append(
                Delivery(message.body, message.routing_key, message.headers, False, self._tag, self)  # type: ignore[arg-type]
            )
        return batch

    def keep_alive(self) -> None:
        self._bus.kept_alive += 1

    def ack(self, deliveries: Sequence[Delivery]) -> None:
        for delivery in deliveries:
            del self._held[int(delivery.tag)]
            self._bus.acknowledged += 1

    def dead_letter(self, message: Message, reason: str, detail: str) -> None:
        self._require_bus()
        self._bus.dead_lettered.append((message, reason, detail))

    def waiting(self) -> int:
        return len(self._bus.waiting)

    def take_dead(self, keep: Callable[[Sequence[Message]], None], limit: int) -> int:
        self._require_bus()
        taken = [
            Message(
                message.body, message.routing_key, {**message.headers, REASON_HEADER: reason, DETAIL_HEADER: detail}
            )
            for message, reason, detail in self._bus.dead_lettered[:limit]
        ]
        if taken:
            keep(taken)
        del self._bus.dead_lettered[: len(taken)]
        return len(taken)

    def close(self) -> None:
        self._bus.waiting.extendleft(reversed(self._held.values()))
        self._held.clear()

    def _require_bus(self) -> None:
        if self._bus.is_away:
            raise BusUnavailableError("memory://", "the broker is away")
