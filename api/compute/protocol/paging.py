"""Pages of lists other than that of servers: `limit`, `marker` and the link to the next page."""

import re
from collections.abc import Sequence
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
    """has_next: whether pages follow each other; otherwise a list has one page, and no link to another."""

    limit: int
    marker: str | None = None
    has_next: bool = False


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


def paging_of(request: ApiRequest, max_limit: int, *, since: int = 1) -> Paging:
    """The page that is asked for; before microversion 2.`since` the only one.

    Raises ParameterError for a limit that is no number.
    """
    if request.minor < since:
        return Paging(max_limit)
    limit = min(whole_number(request, "limit", max_limit), max_limit)
    return Paging(limit, request.query.last("marker"), has_next=True)


def next_link(request: ApiRequest, key: str, path: str, paging: Paging, markers: Sequence[str]) -> dict[str, Any]:
    """The member `key` of a page with the link to the one behind `markers`, those of this page; none without one."""
    if not paging.has_next or not markers or len(markers) < paging.limit:
        return {}
    query = request.query.with_marker(markers[-1], frozenset())
    return {key: [{"rel": "next", "href": f"{request.links.versioned}/{path}?{query}"}]}
