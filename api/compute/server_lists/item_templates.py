"""How the items of an answer are put together for one request."""

from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.views.compute.view import HostStatuses, ItemTemplate


def full_template(request: ApiRequest, host_statuses: HostStatuses | None) -> ItemTemplate:
    """The item of `GET /servers/detail` and `GET /servers/{id}`; without `host_status` unless statuses are given."""
    versioned, plain = request.links.as_json
    return ItemTemplate.full(
        request.minor,
        is_admin=request.caller.is_admin,
        versioned_base=versioned,
        plain_base=plain,
        host_statuses=host_statuses,
    )
