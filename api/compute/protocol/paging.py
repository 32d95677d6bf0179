"""Pages of lists other than that of servers: `limit`, `marker` and the link to the next page."""

import re
from dataclasses import dataclass
from typing import Any

from fleetlight.api.http.errors import ParameterError
from fleetlight.api.shared.endpoint import ApiRequest

PAGING = {"limit": 1, "marker": 1}
_DIGITS = re.compile(r"[0-9]+")
# As many as any database takes.
_LARGEST = 10**18


@dataclass(frozen=True, slots=True)
class Paging:
    limit: int
    marker: str | None


def whole_number(request: ApiRequest, name: str, default: int) -> int:
    """The value of a query parameter that is 0 or more; every occurrence is checked, and the last one counts.

    Raises ParameterError.
    """
    number = default
    for text in request.query.all(name):
        if not _DIGITS.fullmatch(text):
            raise ParameterError(name, text, "Must be a whole number, 0 or more.")
        number = _LARGEST if len(text) > len(str(_LARGEST)) else min(int(text), _LARGEST)
    return number


def paging_of(request: ApiRequest, max_limit: int) -> Paging:
    """Raises ParameterError for a limit that is no number."""
    return Paging(min(whole_number(request, "limit", max_limit), max_limit), request.query.last("marker"))


def next_link(request: ApiRequest, path: str, paging: Paging, markers: list[str]) -> list[dict[str, Any]]:
    """The link to the page behind `markers`, those of this page; none when the page is not full."""
    if not markers or len(markers) < paging.limit:
        return []
    query = request.query.with_marker(markers[-1], frozenset())
    return [{"rel": "next", "href": f"{request.links.versioned}/{path}?{query}"}]
