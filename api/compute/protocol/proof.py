"""The headers by which an answer says what it covers (docs/architecture.md, "One merge, many sources")."""

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from starlette.datastructures import Headers

from api.http.errors import BadRequestError
from api.identity.caller import Caller
from listing.answer import CellAnswer, Consistency, Page
from listing.consistency.read_your_writes import ReadYourWrites
from listing.consistency.tokens import ChangeToken, parse_tokens

CONSISTENCY_HEADER = "Fleetlight-Consistency"
AT_LEAST = "at-least"
TOKEN_HEADER = "Fleetlight-Token"  # noqa: S105  # the name of a header
CELL_TIMEOUT_HEADER = "Fleetlight-Cell-Timeout"
_SECONDS = re.compile(r"[0-9]{1,6}(\.[0-9]{1,6})?")
_DICTIONARY_KEY = re.compile(r"[a-z*][a-z0-9_.*-]*")


@dataclass(frozen=True, slots=True)
class AskedFreshness:
    """How fresh the answer to a request has to be.

    ask_live: uuids of the cells that are asked themselves, since the index may lack what the caller knows to be there.
    cell_timeout_s: what one cell may cost.
    """

    consistency: Consistency
    ask_live: Collection[str]
    cell_timeout_s: float


async def asked_freshness(headers: Headers, caller: Caller, writes: ReadYourWrites, longest_s: float) -> AskedFreshness:
    """What the headers of a request of `caller` ask for. longest_s: what one cell may cost at the most.

    Raises BadRequestError, TokenError.
    """
    consistency, tokens = wanted_consistency(headers)
    cell_timeout_s = wanted_cell_timeout(headers, longest_s)
    ask_live: Collection[str] = ()
    if tokens:
        ask_live = await writes.cells_to_ask(tokens, caller.may_see)
    elif consistency is Consistency.BOUNDED:
        ask_live = await writes.cells_behind(caller.reader)
    return AskedFreshness(consistency, ask_live, cell_timeout_s)


def wanted_consistency(headers: Headers) -> tuple[Consistency, Sequence[ChangeToken]]:
    """What the request header Fleetlight-Consistency asks for, `bounded` without it, and the tokens of `at-least`.

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
    """How long the request lets one cell take: what Fleetlight-Cell-Timeout says, and never more than `longest_s`.

    Raises BadRequestError.
    """
    value = headers.get(CELL_TIMEOUT_HEADER)
    if value is None:
        return longest_s
    if not _SECONDS.fullmatch(value.strip()) or not (seconds := float(value)):
        raise BadRequestError(f"header {CELL_TIMEOUT_HEADER}: {value!r} is no number of seconds above 0, such as 0.5")
    return min(seconds, longest_s)


def proof_headers(page: Page, caller: Caller) -> dict[str, str]:
    """Fleetlight-Complete and Fleetlight-Route; others than administrators learn neither names nor number of cells.

    For administrators the route is a dictionary of RFC 8941, with a member for each cell.
    """
    route = ", ".join(map(_member, page.cells)) if caller.is_admin else page.summary
    return {"Fleetlight-Complete": "true" if page.is_complete else "false", "Fleetlight-Route": route}


def _member(answer: CellAnswer) -> str:
    name = answer.cell.name
    # Not every name can be a key of such a dictionary; then the cell is told by its uuid.
    member = f"{name if _DICTIONARY_KEY.fullmatch(name) else f'cell-{answer.cell.uuid}'}={answer.route}"
    if answer.watermark is not None:
        member += f";watermark={answer.watermark}"
    if answer.age_s is not None:
        member += f";age={answer.age_s:.1f}"
    return member
