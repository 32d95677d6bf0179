"""The outcome of one attempt to deliver an event, and the interface of targets."""

from dataclasses import dataclass
from typing import Protocol

from fleetlight.api.subscriptions.events import Event

INNER = "its address is an inner one, which the operator has not allowed"
UNTRUSTED = "its certificate is not one that is trusted"
UNREACHABLE = "it cannot be reached"
"""Reasons that reveal nothing of the internal network."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """The target has accepted the event."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The target did not accept this event, but may accept others."""

    reason: str


@dataclass(frozen=True, slots=True)
class Away:
    """The target accepts nothing now. retry_after_s: how long it asks to be left alone, if it does."""

    reason: str
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class Unwanted:
    """The target wants no more events of this subscription."""

    reason: str


Outcome = Delivered | Refused | Away | Unwanted


class Target(Protocol):
    """The target of one subscription."""

    async def send(self, event: Event) -> Outcome: ...

    async def close(self) -> None:
        """Close what belongs to this target alone; nothing is sent after this."""
