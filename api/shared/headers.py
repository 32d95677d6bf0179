"""The public headers of requests and answers, for the OpenAPI document."""

from collections.abc import Mapping
from typing import Any

from fleetlight.api.http.headers import Header
from fleetlight.api.shared.endpoint import LEGACY_HEADER, STANDARD_HEADER
from fleetlight.api.shared.proof import AT_LEAST, CELL_TIMEOUT_HEADER, CONSISTENCY_HEADER, TOKEN_HEADER
from fleetlight.listing.answer import Consistency

_TEXT: Mapping[str, Any] = {"type": "string"}
_TOKEN_PATTERN = "[0-9a-f-]{36}:[0-9]+"  # noqa: S105  # of the header's value


CONSISTENCY = Header(
    CONSISTENCY_HEADER,
    "How much the index may be behind",
    {"type": "string", "pattern": f"^({'|'.join(Consistency)}|{AT_LEAST} {_TOKEN_PATTERN}([ ,]+{_TOKEN_PATTERN})*)$"},
)
CELL_TIMEOUT = Header(
    CELL_TIMEOUT_HEADER,
    "Seconds that one cell may take, if that is less than is configured",
    {"type": "string", "pattern": r"^[0-9]{1,6}(\.[0-9]{1,6})?$"},
)
LAST_EVENT_ID = Header(
    "Last-Event-ID", "The id of the last event of a stream that broke off: it goes on behind it", _TEXT
)
COMPLETE = Header(
    "Fleetlight-Complete",
    "Whether every cell in scope is fully represented",
    {"type": "string", "enum": ["true", "false"]},
    is_required=True,
)
ROUTE = Header(
    "Fleetlight-Route",
    "What answered: of each cell for administrators, for others in one word",
    _TEXT,
    is_required=True,
)
TOKEN = Header(
    TOKEN_HEADER,
    f"The state of the server that this answer shows or made: lists of consistency `{AT_LEAST}` include it; of servers "
    "that were made in several cells one of each cell",
    {"type": "string", "pattern": f"^{_TOKEN_PATTERN}( {_TOKEN_PATTERN})*$"},
)
OF_EVERY_ANSWER = (
    Header("X-Openstack-Request-Id", "What the instance action of a change is found by", _TEXT, is_required=True),
    Header("X-Compute-Request-Id", "The same", _TEXT, is_required=True),
    Header(STANDARD_HEADER, "The microversion of the answer, behind the word `compute`", _TEXT, is_required=True),
    Header(LEGACY_HEADER, "The microversion of the answer", _TEXT, is_required=True),
)
