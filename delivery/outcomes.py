"""What comes of one attempt to deliver an event, and what a target is."""

from dataclasses import dataclass
from typing import Protocol

from fleetlight.api.subscriptions.events import Event

INNER = "its address is an inner one, which the operator has not allowed"
UNTRUSTED = "its certificate is not one that is trusted"
UNREACHABLE = "it cannot be reached"
"""Reasons, which say nothing of the inner network."""


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

    async def close(self) -> None:
        """Close what belongs to this target alone; nothing is sent afterwards."""
