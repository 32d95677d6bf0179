"""Times as resources other than servers show them."""

from datetime import datetime

from fleetlight.api.http.errors import BadRequestError
from fleetlight.resources.fields import from_microseconds, to_microseconds


def without_zone(microseconds: int) -> str:
    """UTC with six digits of a second and no letter of a zone (contracts/nova-rest, sections 3 and 4)."""
    return from_microseconds(microseconds).strftime("%Y-%m-%dT%H:%M:%S.%f")


def with_zone(microseconds: int) -> str:
    """The same with the letter of its zone, as RFC 3339 has it: what is not Nova's shows this."""
    return f"{without_zone(microseconds)}Z"


def time_shown(microseconds: int | None) -> str | None:
    """`with_zone`, of a moment that may not be known."""
    return None if microseconds is None else with_zone(microseconds)


def moment_in(name: str, text: str) -> int:
    """The moment that a parameter says, microseconds. Raises BadRequestError."""
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return to_microseconds(moment)
    except (ValueError, OverflowError):
        pass
    raise BadRequestError(f"{name}: '{text[:100]}' is no time with its zone, such as 2026-11-24T10:00:00Z")
