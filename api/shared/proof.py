"""Headers with the coverage of an answer (docs/architecture.md, "One merge, many sources")."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from starlette.datastructures import Headers

from fleetlight.api.caller import Caller
from fleetlight.api.http.errors import BadRequestError
from fleetlight.listing.admission import Admission
from fleetlight.listing.answer import CellAnswer, Consistency, Page, ReadOptions
from fleetlight.listing.consistency.read_your_writes import ReadYourWrites
from fleetlight.listing.consistency.tokens import ChangeToken, parse_tokens

CONSISTENCY_HEADER = "Fleetlight-Consistency"
AT_LEAST = "at-least"
TOKEN_HEADER = "Fleetlight-Token"  # noqa: S105  # the name of a header
CELL_TIMEOUT_HEADER = "Fleetlight-Cell-Timeout"
_SECONDS = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")
_DICTIONARY_KEY = re.compile(r"[a-z*][a-z0-9_.*-]*")
_ROUTE_OF_CELL = re.compile(
    r"(?:\*(?P<shared>[a-z-]+)=(?P<count>\d+)|(?P<cell>[^=,\s*][^=,\s]*)=(?P<route>[a-z-]+))(?:;watermark=(?P<watermark>\d+))?(?:;age=(?P<age_s>[\d.]+))?"
)
# By default nginx answers 502 if an answer has more than 4 KiB of headers.
_LONGEST_ROUTE = 3000


async def read_options(headers: Headers, caller: Caller, writes: ReadYourWrites, admission: Admission) -> ReadOptions:
    """Read the options from the headers of a request of `caller`. Raises BadRequestError, TokenError."""
    consistency, tokens = wanted_consistency(headers)
    cell_timeout_s = wanted_cell_timeout(headers, writes.cell_timeout_s)
    ask_live: Collection[str] = ()
    if tokens:
        ask_live = await writes.cells_to_ask(tokens, caller.may_see)
    elif consistency is Consistency.BOUNDED:
        ask_live = await writes.cells_behind(caller.reader)
    return ReadOptions(consistency, ask_live, cell_timeout_s, admission)


def wanted_consistency(headers: Headers) -> tuple[Consistency, Sequence[ChangeToken]]:
    """Parse the request header Fleetlight-Consistency (default `bounded`), and the tokens of `at-least`.

    Raises BadRequestError, TokenError.
    """
    value = headers.get(CONSISTENCY_HEADER, Consistency.BOUNDED).strip()
    word, _, rest = value.partition(" ")
    if word == AT_LEAST:
        return Consistency.BOUNDED, parse_tokens(rest)
    try:
        return Consistency(value), ()
    except ValueError:
        known = ", ".join([*Consistency, f"{AT_LEAST} TOKEN"])
        raise BadRequestError(f"header {CONSISTENCY_HEADER}: {value!r} is not one of {known}") from None


def wanted_cell_timeout(headers: Headers, longest_s: float) -> float:
    """Parse Fleetlight-Cell-Timeout, the time limit of one cell; at most `longest_s`, which is the default.

    Raises BadRequestError for a malformed value.
    """
    value = headers.get(CELL_TIMEOUT_HEADER)
    if value is None:
        return longest_s
    if not _SECONDS.fullmatch(value.strip()) or not (seconds := float(value)):
        raise BadRequestError(f"header {CELL_TIMEOUT_HEADER}: {value!r} is no number of seconds above 0, such as 0.5")
    return min(seconds, longest_s)


def proof_headers(page: Page, caller: Caller) -> dict[str, str]:
    """Make Fleetlight-Complete and Fleetlight-Route; only administrators see names and numbers of cells.

    For administrators the route is a dictionary of RFC 8941 with a member for each cell; if these are too many for a
    header, with one for each route.
    """
    if not caller.is_admin:
        route = page.summary
    elif len(route := ", ".join(map(_member, page.cells))) > _LONGEST_ROUTE:
        route = ", ".join(_summed_up(page.cells))
    return {"Fleetlight-Complete": "true" if page.is_complete else "false", "Fleetlight-Route": route}


@dataclass(frozen=True, slots=True)
class CellRoute:
    """A member of Fleetlight-Route: one cell, or several with the same route, then named like "57 cells"."""

    cell: str
    route: str
    watermark: int | None
    age_s: float | None


def routes_said(header: str) -> list[CellRoute]:
    """Parse Fleetlight-Route as sent to administrators; empty for the route alone, as sent to others."""
    return [
        CellRoute(
            said["cell"] or f"{said['count']} cells",
            said["route"] or said["shared"],
            int(said["watermark"]) if said["watermark"] else None,
            float(said["age_s"]) if said["age_s"] else None,
        )
        for said in _ROUTE_OF_CELL.finditer(header)
    ]


def _summed_up(cells: Sequence[CellAnswer]) -> Iterator[str]:
    """Yield a member for each route: its number of cells, and the largest age. (No cell's name begins with a star.)"""
    for route in sorted({answer.route for answer in cells}):
        taken = [answer for answer in cells if answer.route is route]
        ages = [answer.age_s for answer in taken if answer.age_s is not None]
        yield f"*{route}={len(taken)}" + (f";age={max(ages):.1f}" if ages else "")


def _member(answer: CellAnswer) -> str:
    name = answer.cell.name
    # A name that cannot be a key of such a dictionary is replaced by the uuid.
    member = f"{name if _DICTIONARY_KEY.fullmatch(name) else f'cell-{answer.cell.uuid}'}={answer.route}"
    if answer.watermark is not None:
        member += f";watermark={answer.watermark}"
    if answer.age_s is not None:
        member += f";age={answer.age_s:.1f}"
    return member
