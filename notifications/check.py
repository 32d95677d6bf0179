"""Checks whether a notification is valid, and if not, what is wrong where."""

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path

from fleetlight.notifications.envelope import Notification, read_sample
from fleetlight.notifications.errors import (
    EnvelopeError,
    PayloadError,
    Problem,
    UnknownPayloadError,
    UnsupportedVersionError,
)
from fleetlight.notifications.event_types import PAYLOADS_OF_EVENT, expected_payloads, is_well_formed
from fleetlight.notifications.registry import parse_payload
from fleetlight.notifications.versioned import NAME_KEY, NAMESPACE_KEY, VERSION_KEY

PRIORITIES = ("AUDIT", "CRITICAL", "DEBUG", "ERROR", "INFO", "SAMPLE", "WARN")
_PUBLISHER_ID = re.compile(r"[A-Za-z0-9_-]+:\S+")


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The findings for one file; event_type and payload (name and version) as far as they could be read."""

    path: Path
    problems: tuple[Problem, ...]
    event_type: str | None = None
    payload: str | None = None

    @property
    def is_valid(self) -> bool:
        return not self.problems


def check_file(path: Path) -> CheckReport:
    """Check a file that holds one notification: in the envelope, without it, or as a bare sample.

    A sample has event_type, payload, priority and publisher_id; message_id and timestamp may be missing.
    """
    try:
        notification = read_sample(path.read_bytes(), now=datetime.now(UTC))
    except OSError as error:
        return CheckReport(path, (Problem("file", f"cannot be read: {error.strerror}"),))
    except EnvelopeError as error:
        return CheckReport(path, (error.problem,))
    name, version = notification.payload.get(NAME_KEY), notification.payload.get(VERSION_KEY)
    payload = f"{name} {version}" if name and version else None
    return CheckReport(path, tuple(find_problems(notification)), notification.event_type, payload)


def find_problems(notification: Notification) -> list[Problem]:
    """Everything a strict reader would object to; empty for a valid notification."""
    problems = []
    if not is_well_formed(notification.event_type):
        problems.append(
            Problem("event_type", f"must be object.action or object.action.phase, not {notification.event_type!r}")
        )
    if notification.priority not in PRIORITIES:
        problems.append(Problem("priority", f"must be one of {', '.join(PRIORITIES)}, not {notification.priority!r}"))
    if not _PUBLISHER_ID.fullmatch(notification.publisher_id):
        problems.append(Problem("publisher_id", f"must be service:host, not {notification.publisher_id!r}"))
    return problems + _payload_problems(notification)


def unknown_event(notification: Notification) -> Problem | None:
    """The problem with an event type that is not known to carry its payload; None if it is known.

    For producers only: readers accept such an event, since new events appear without notice.
    """
    event_type = notification.event_type
    sent = (str(notification.payload.get(NAMESPACE_KEY)), str(notification.payload.get(NAME_KEY)))
    if sent in expected_payloads(event_type):
        return None
    name = " ".join(sent)
    known = [each for each, payloads in PAYLOADS_OF_EVENT.items() if sent in payloads]
    if not known:
        return Problem("event_type", f"no event is known to carry {name}, which is a part of others")
    like = ", ".join(get_close_matches(event_type, known, n=3) or known[:3])
    return Problem("event_type", f"{event_type!r} is not known to carry {name}, as {like} do")


def _payload_problems(notification: Notification) -> list[Problem]:
    try:
        payload = parse_payload(notification.payload)
    except EnvelopeError as error:
        return [error.problem]
    except UnknownPayloadError as error:
        return [Problem(f"payload.{NAME_KEY}", str(error))]
    except UnsupportedVersionError as error:
        return [Problem(f"payload.{error.where}", str(error))]
    except PayloadError as error:
        return [Problem(f"payload.{problem.where}", problem.what) for problem in error.problems]
    expected = expected_payloads(notification.event_type)
    if expected and (payload.NAMESPACE, payload.NAME) not in expected:
        wanted = " or ".join(f"{namespace} {name}" for namespace, name in expected)
        return [
            Problem("event_type", f"{notification.event_type} carries {wanted}, not {payload.NAMESPACE} {payload.NAME}")
        ]
    return []
