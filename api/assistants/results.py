"""Results of tools: the data and its coverage, as fields and as a sentence that comes first."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from pydantic import BaseModel, Field

from fleetlight.api.http.in_process import InProcessResponse
from fleetlight.api.shared.proof import routes_said
from fleetlight.api.shared.times import with_zone
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

_WHOLE = {"index", "live", "changelog"}


class CellSaid(BaseModel):
    """The source of one cell's part of an answer."""

    name: str
    route: str
    age_s: float | None = Field(None, description="How old this part is, in seconds; null: it was read just now.")


class Result(BaseModel):
    """The result of a tool."""

    summary: str = Field(description="What this answer is, and what it lacks. Repeat what it lacks to the user.")
    complete: bool = Field(description="Whether every cell in scope gave all that it has. False: something is missing.")
    has_more: bool = Field(description="Whether this is only the first part of what was found.")
    next: str | None = Field(description="How to get the next part; null where there is none.")
    as_of: str | None = Field(
        description="The moment of which the oldest part of the answer is; null: of some seconds ago at the most."
    )
    cells: list[CellSaid] = Field(description='By cell, where administrators ask; "57 cells" are too many to name.')
    missing: list[str] = Field(description="What is missing, and why, as far as it is known.")
    data: Any


def result_of(
    answer: InProcessResponse,
    data: Any,
    what: str,
    now: int,
    *,
    following: str | None = None,
    whole: str = "This is everything.",
    moment: str | None = None,
    is_complete: bool | None = None,
    missing: Sequence[str] = (),
) -> Result:
    """Make the result of a tool from an answer of the API.

    what: the data in words, such as "17 instances". now: microseconds since the epoch. following: how to get the next
    part; None at the end, where the result says `whole`. moment: the moment that the caller asked for. is_complete:
    completeness as the body says it, for answers without the header.
    """
    route = answer.headers.get("fleetlight-route", "")
    cells = [CellSaid(name=said.cell, route=said.route, age_s=said.age_s) for said in routes_said(route)]
    missing = [
        *missing,
        *(
            f"{cell.name if ' ' in cell.name else f'cell {cell.name}'}: {cell.route}"
            for cell in cells
            if cell.route not in _WHOLE
        ),
    ]
    if is_complete is None:
        is_complete = answer.headers.get("fleetlight-complete", "true") == "true"
    as_of = moment
    if moment is None and (cells or not route):
        oldest_s = max((cell.age_s or 0.0 for cell in cells), default=0.0)
        as_of = with_zone(now - round(oldest_s * MICROSECONDS_PER_SECOND))
    parts = [f"{what}, {'as of some seconds ago at the most' if as_of is None else f'as of {as_of}'}."]
    if following is not None:
        parts.insert(0, "ONLY A PART: there is more than what is shown here.")
        parts.append(f"For the next part {following}.")
    if not is_complete:
        parts.insert(0, "INCOMPLETE: some of the fleet did not answer, so anything may be missing here.")
        parts += [f"Missing: {'; '.join(missing)}."] if missing else []
    elif following is None:
        parts.append(whole)
    return Result(
        summary=" ".join(parts),
        complete=is_complete,
        has_more=following is not None,
        next=following,
        as_of=as_of,
        cells=cells,
        missing=missing,
        data=data,
    )


def fault_said(answer: InProcessResponse) -> str:
    """Return the API's message about a request that it refused, or that failed."""
    try:
        [fault] = msgspec.json.decode(answer.body).values()
        return str(fault["message"])
    except (msgspec.DecodeError, ValueError, TypeError, KeyError, AttributeError):
        return f"the API answered {answer.status}"


def rows_shown(fields: Sequence[Mapping[str, Any]], rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
    """Return rows of Query2 as objects; `missing` gives the reason of each null (contracts/ganeti-query, 2)."""
    names = [field["name"] for field in fields]
    shown: list[dict[str, Any]] = []
    for row in rows:
        item: dict[str, Any] = {name: value for name, (_, value) in zip(names, row, strict=True)}
        if why := {name: _STATUSES[status] for name, (status, _) in zip(names, row, strict=True) if status}:
            item["missing"] = why
        shown.append(item)
    return shown


_STATUSES = {1: "unknown field", 2: "no data", 3: "not available", 4: "offline"}
