"""What comes of one attempt to deliver an event, and what a target is."""

from dataclasses import dataclass
from typing import Protocol

from fleetlight.api.subscriptions.events import Event


@dataclass(frozen=True, slots=True)
class Delivered:
    """The target has taken the event."""


@dataclass(frozen=True, slots=True)
class Refused:
    """It did not take this event; it may take others."""

    reason: str


@dataclass(frozen=True, slots=True)
class Away:
    """It takes nothing now. retry_after_s: how long it wants to be left alone, where it says so."""

    reason: str
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Unwanted:
    """It wants no event of this subscription any more."""

    reason: str


Outcome = Delivered | Refused | Away | Unwanted


class Target(Protocol):
    """Where one subscription is delivered to."""

    async def send(self, event: Event) -> Outcome: ...
