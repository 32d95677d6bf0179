"""The span of a request: what it was by its route, and what its answer says of the list; no names of users."""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from starlette.datastructures import Headers

from fleetlight.api.http.request_metrics import UNKNOWN, AnsweredRequest

if TYPE_CHECKING:
    from fleetlight.bus.traces import Traces

_OF_REQUEST = {"Fleetlight-Consistency": "fleetlight.consistency"}
_OF_ANSWER = {
    "Fleetlight-Complete": "fleetlight.complete",
    "Fleetlight-Route": "fleetlight.route",
    "Fleetlight-Token": "fleetlight.token",
}
# As many as may be the tokens that a list is asked to include.
_LONGEST = 3000


def trace_request(traces: "Traces", request: AnsweredRequest) -> None:
    """Record the span of a request that has a request id and is sampled."""
    scope, start = request.scope, request.start
    request_id = scope.get("state", {}).get("request_id")
    trace_id = traces.trace_of(request_id)
    if trace_id is None:
        return
    now = time.time_ns() // 1000
    status = 0 if start is None else start["status"]
    asked = Headers(scope=scope)
    answered = Headers(raw=[] if start is None else start["headers"])
    attributes: dict[str, str | int | bool] = {
        "http.request.method": request.method,
        "http.route": request.route,
        "fleetlight.request_id": request_id,
        **({"http.response.status_code": status} if status else {}),
        **({"fleetlight.project_id": request.project} if request.project else {}),
        # A wrong value could be any text.
        **(_values(asked, _OF_REQUEST) if 0 < status < 400 else {}),
        **_values(answered, _OF_ANSWER),
    }
    traces.answered(
        trace_id,
        request.method if request.route == UNKNOWN else f"{request.method} {request.route}",
        now - round(request.duration_s * 1_000_000),
        now,
        attributes,
        has_failed=not 0 < status < 500,
        caller=asked.get("traceparent"),
    )


def _values(headers: Headers, names: Mapping[str, str]) -> dict[str, str]:
    return {name: headers[header][:_LONGEST] for header, name in names.items() if header in headers}
