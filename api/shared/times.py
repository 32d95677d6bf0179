"""Times as resources other than servers show them."""

from fleetlight.resources.fields import from_microseconds


def without_zone(microseconds: int) -> str:
    """UTC with six digits of a second and no letter of a zone (contracts/nova-rest, sections 3 and 4)."""
    return from_microseconds(microseconds).strftime("%Y-%m-%dT%H:%M:%S.%f")


def with_zone(microseconds: int) -> str:
    """The same with the letter of its zone, as RFC 3339 has it: what is not Nova's shows this."""
    return f"{without_zone(microseconds)}Z"


def time_shown(microseconds: int | None) -> str | None:
    """`with_zone`, of a moment that may not be known."""
    return None if microseconds is None else with_zone(microseconds)
