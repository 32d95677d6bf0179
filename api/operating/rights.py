"""The right to operate: of administrators alone."""

from fleetlight.api.http.errors import ForbiddenError
from fleetlight.api.shared.endpoint import ApiRequest


def require_admin(request: ApiRequest, policy: str) -> None:
    """Raise ForbiddenError naming `policy` for anyone else."""
    if not request.caller.is_admin:
        raise ForbiddenError(policy)
