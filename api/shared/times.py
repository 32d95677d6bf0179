"""Times in answers about resources other than servers."""

from datetime import datetime

from fleetlight.api.http.errors import BadRequestError
from fleetlight.resources.fields import from_microseconds, to_microseconds


def without_zone(microseconds: int) -> str:
    """Format UTC with six digits of a second and without a zone (contracts/nova-rest, sections 3 and 4)."""
    return from_microseconds(microseconds).strftime("%Y-%m-%dT%H:%M:%S.%f")


def with_zone(microseconds: int) -> str:
    """Format UTC by RFC 3339, with its zone, for all answers that are not Nova's."""
    return f"{without_zone(microseconds)}Z"


def time_shown(microseconds: int | None) -> str | None:
    """As `with_zone`; None for an unknown moment."""
    return None if microseconds is None else with_zone(microseconds)


def moment_in(name: str, text: str) -> int:
    """Parse the moment in a parameter; returns microseconds. Raises BadRequestError for a malformed moment."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return to_microseconds(moment)
    except (ValueError, OverflowError):
        pass
    raise BadRequestError(f"{name}: '{text[:100]}' is no time with its zone, such as 2026-11-24T10:00:00Z")
