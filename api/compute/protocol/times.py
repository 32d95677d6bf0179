"""Times in query parameters of resources other than servers (contracts/nova-rest, sections 3 and 4)."""

from fleetlight.api.compute.protocol.parameters import parse_time
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.resources.fields import to_microseconds


def time_of(request: ApiRequest, name: str) -> int | None:
    """The time that the query parameter `name` says, UTC unless it has a zone, in microseconds; None without it.

    Raises ParameterError.
    """
    text = request.query.last(name)
    if text is None:
        return None
    return to_microseconds(parse_time(name, text))
