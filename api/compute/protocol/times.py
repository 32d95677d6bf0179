"""Times as resources other than servers show them (contracts/nova-rest, sections 3 and 4)."""

from fleetlight.api.compute.protocol.endpoint import ComputeRequest
from fleetlight.api.compute.protocol.parameters import parse_time
from fleetlight.resources.fields import from_microseconds, to_microseconds


def without_zone(microseconds: int) -> str:
    """UTC with six digits of a second and no letter of a zone."""
    return from_microseconds(microseconds).strftime("%Y-%m-%dT%H:%M:%S.%f")


def time_of(request: ComputeRequest, name: str) -> int | None:
    """The time that the query parameter `name` says, UTC unless it has a zone, in microseconds; None without it.

    Raises ParameterError.
    """
    text = request.query.last(name)
    if text is None:
        return None
    return to_microseconds(parse_time(name, text))
