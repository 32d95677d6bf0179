"""Lookups of objects that a request's body names; a missing one gets 400, and not 404 as in an address."""

from collections.abc import Mapping
from typing import Any

from fleetlight.api.http.errors import BadRequestError
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.fleet_access import FleetAccess
from fleetlight.cells.errors import ResourceNotFoundError
from fleetlight.cells.fleet.compute.flavors import Flavor
from fleetlight.cells.fleet.compute.quotas import check

# Every call queries the fleet database, and so blocks.


def named_flavor(access: FleetAccess, request: ApiRequest, flavor_id: str) -> Flavor:
    """Find a flavor that the caller may use, even a disabled one. Raises BadRequestError if there is none."""
    caller = request.caller
    try:
        return access.fleet.flavors.find(flavor_id, project_id=caller.project_id, is_admin=caller.is_admin)
    except ResourceNotFoundError as error:
        raise BadRequestError(f"Flavor {flavor_id} could not be found.") from error


def named_keypairs(access: FleetAccess, request: ApiRequest, name: str | None) -> list[dict[str, Any]]:
    """Find the caller's key pair in the form stored in servers; empty without a name. Raises BadRequestError."""
    if not name:
        return []
    try:
        return [access.fleet.keypairs.find(request.caller.user_id, name).payload()]
    except ResourceNotFoundError as error:
        raise BadRequestError("Invalid key_name provided.") from error


def check_metadata(access: FleetAccess, request: ApiRequest, metadata: Mapping[str, str]) -> None:
    """Raise QuotaExceededError for more items than the project's servers may have."""
    limits = access.fleet.quotas.limits(request.caller.project_id or "")
    check(limits, {}, {"metadata_items": len(metadata)})
