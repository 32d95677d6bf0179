"""What the doctor finds."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """Of a finding. UNKNOWN: it may not be looked at, or cannot be seen from here; nothing has to be done for that."""

    OK = "ok"
    UNKNOWN = "unknown"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """about: what was looked at. says: what was found. remedy: what to do, where something is wrong."""

    about: str
    state: State
    says: str
    remedy: str | None = None


Findings = Sequence[Finding]


def ok(about: str, says: str) -> Finding:
    return Finding(about, State.OK, says)


def unknown(about: str, says: str) -> Finding:
    return Finding(about, State.UNKNOWN, says)


def wrong(about: str, says: str, remedy: str) -> Finding:
    return Finding(about, State.WRONG, says, remedy)
