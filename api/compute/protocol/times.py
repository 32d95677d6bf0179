"""Times in query parameters of resources other than servers (contracts/nova-rest, sections 3 and 4)."""

from fleetlight.api.compute.protocol.parameters import parse_time
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.resources.fields import to_microseconds


def time_of(request: ApiRequest, name: str) -> int | None:
    """Parse the time in the query parameter `name`, in UTC unless it has a zone. Returns microseconds, or None.

    Raises ParameterError for a malformed time.
    """
    text = request.query.last(name)
    if text is None:
        return None
    return to_microseconds(parse_time(name, text))
