"""Pages of lists other than that of servers: `limit`, `marker` and the link to the next page."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fleetlight.api.http.errors import ParameterError
from fleetlight.api.shared.endpoint import ApiRequest

PAGING = {"limit": 1, "marker": 1}
_DIGITS = re.compile(r"[0-9]+")
# As large a limit as every database accepts.
_LARGEST = 10**18


@dataclass(frozen=True, slots=True)
class Paging:
    """A requested page. has_next: whether the list has several pages; otherwise it has one, and no link."""

    limit: int
    marker: str | None = None
    has_next: bool = False


def whole_number(request: ApiRequest, name: str, default: int) -> int:
    """Return the last value of a query parameter that is 0 or more.

    Raises ParameterError if any of its values is malformed.
    """
    number = default
    for text in request.query.all(name):
        if not _DIGITS.fullmatch(text):
            raise ParameterError(name, text, "Must be a whole number, 0 or more.")
        number = _LARGEST if len(text) > len(str(_LARGEST)) else min(int(text), _LARGEST)
    return number


def paging_of(request: ApiRequest, max_limit: int, *, since: int = 1) -> Paging:
    """Return the requested page; before microversion 2.`since` the whole list.

    Raises ParameterError for a limit that is no number.
    """
    if request.minor < since:
        return Paging(max_limit)
    limit = min(whole_number(request, "limit", max_limit), max_limit)
    return Paging(limit, request.query.last("marker"), has_next=True)


def next_link(request: ApiRequest, key: str, path: str, paging: Paging, markers: Sequence[str]) -> dict[str, Any]:
    """Return the member `key` with the link to the next page; empty on the last page. markers: of this page's items."""
    if not paging.has_next or not markers or len(markers) < paging.limit:
        return {}
    query = request.query.with_marker(markers[-1], frozenset())
    return {key: [{"rel": "next", "href": f"{request.links.versioned}/{path}?{query}"}]}
