"""The right to operate, which only administrators have."""

from fleetlight.api.http.errors import ForbiddenError
from fleetlight.api.shared.endpoint import ApiRequest


def require_admin(request: ApiRequest, policy: str) -> None:
    """Raise ForbiddenError, naming `policy`, for a caller that is no administrator."""
    if not request.caller.is_admin:
        raise ForbiddenError(policy)
