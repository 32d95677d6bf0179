"""Times as resources other than servers show them (contracts/nova-rest, sections 3 and 4)."""

from fleetlight.resources.fields import from_microseconds


def without_zone(microseconds: int) -> str:
    """UTC with six digits of a second and no letter of a zone."""
    return from_microseconds(microseconds).strftime("%Y-%m-%dT%H:%M:%S.%f")
