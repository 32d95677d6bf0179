"""A bus that duplicates, reorders, loses and damages messages on purpose: it stands where a relay publishes."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from fleetlight.bus.bus import Message
from fleetlight.bus.topology import SEQUENCE_HEADER


@dataclass(frozen=True, slots=True)
class Mischief:
    """How many of the changes, as shares: repeated, held back behind later ones, lost, cut in half."""

    repeated: float = 0.0
    held_back: float = 0.0
    lost: float = 0.0
    damaged: float = 0.0


class _Publishes(Protocol):
    def publish(self, messages: Sequence[Message]) -> None: ...
    def close(self) -> None: ...


class UnrulyPublisher:
    """Publishes, and does mischief until it is told to behave; heartbeats are left alone."""

    def __init__(self, publisher: _Publishes, mischief: Mischief, seed: int) -> None:
        self._publisher = publisher
        self._mischief: Mischief = mischief
        self._random = random.Random(seed)
        self._held_back: list[Message] = []

    def behave(self) -> None:
        """From now on what is published arrives once, and in order; what was held back comes at last."""
        self._mischief = Mischief()

    def publish(self, messages: Sequence[Message]) -> None:
        mischief = self._mischief
        before, self._held_back = self._held_back, []
        passed: list[Message] = []
        for message in messages:
            if SEQUENCE_HEADER not in message.headers or not self._happens(mischief.lost):
                passed.extend(self._changed(message, mischief))
        self._publisher.publish([*passed, *before])

    def close(self) -> None:
        self._publisher.close()

    def _changed(self, message: Message, mischief: Mischief) -> list[Message]:
        if SEQUENCE_HEADER not in message.headers:
            return [message]
        if self._happens(mischief.damaged):
            message = replace(message, body=message.body[: len(message.body) // 2])
        if self._happens(mischief.held_back):
            self._held_back.append(message)
            return []
        return [message] * (2 if self._happens(mischief.repeated) else 1)

    def _happens(self, share: float) -> bool:
        return self._random.random() < share
