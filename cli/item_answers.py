"""The answers of the application to `fleetlight list`: items, or how many there are of each group."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fleetlight.api.query.named_items import (
    CALLED_BY_OTHERS,
    ItemLookupError,
    columns_of,
    found_of,
    looked_up,
    lost_job,
)
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cli.errors import CommandError
from fleetlight.cli.in_process import document_of, opened_api
from fleetlight.cli.settings import Settings
from fleetlight.resources.fields import Kind
from fleetlight.resources.query_fields.catalog import ITEM_TYPES
from fleetlight.resources.query_fields.definitions import QueryFields, ResultStatus

_COUNT = {"name": "count", "title": "Count", "kind": Kind.NUMBER.value, "doc": "How many there are"}


async def look_up(
    settings: Settings,
    fleet: Fleet,
    known: QueryFields,
    wanted: Sequence[str | int] | None,
    asked: Mapping[str, Any],
) -> Mapping[str, Any]:
    """The whole answer; of names alone what they name, in their order unless another one is asked for.

    wanted: those names. Raises CommandError, also for a name of nothing.
    """
    if wanted is None or asked["order"]:
        return await _ask(settings, fleet, asked)
    if (others := CALLED_BY_OTHERS.get(known.name)) is not None:
        of_others = ["|", *(["==", "name", name] for name in wanted)]
        await look_up(
            settings, fleet, ITEM_TYPES[others], wanted, {**asked, "what": others, "fields": [], "filter": of_others}
        )
    before = columns_of(known, ())
    answer = await _ask(settings, fleet, {**asked, "fields": [*before, *asked["fields"]]})
    found = [found_of(known, row, row[len(before) :]) for row in answer["data"]]

    def lost(number: str | int) -> Sequence[tuple[int, Any]]:
        return lost_job(known, asked["fields"], number, is_certain=answer["complete"])

    try:
        rows = looked_up(known, wanted, found, lost, is_certain=answer["complete"])
    except ItemLookupError as error:
        raise CommandError(str(error)) from error
    return {**answer, "fields": answer["fields"][len(before) :], "data": rows}


async def _ask(settings: Settings, fleet: Fleet, asked: Mapping[str, Any]) -> dict[str, Any]:
    """The whole answer, from all its pages. Raises CommandError."""
    whole: dict[str, Any] = {"fields": [], "data": [], "complete": True}
    async with opened_api(settings, fleet) as api:
        marker: str | None = None
        while True:
            body = msgspec.json.encode({**asked, "marker": marker})
            answer = await api.call("POST", "/fleetlight/query", body=body)
            page = document_of(answer)
            whole["fields"] = page["fields"]
            whole["data"] += page["data"]
            whole["complete"] &= answer.headers["fleetlight-complete"] == "true"
            marker = page["marker"]
            if marker is None:
                break
    return whole


async def count(settings: Settings, fleet: Fleet, by: Sequence[str], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Groups as rows: the values of the fields in `by`, then how many there are. Raises CommandError."""
    async with opened_api(settings, fleet) as api:
        body = {**{name: asked[name] for name in ("what", "filter", "all_projects", "as_of")}, "by": by}
        answer = await api.call("POST", "/fleetlight/query/counts", body=msgspec.json.encode(body))
        counted = document_of(answer)
    rows = [
        [
            *((group["statuses"][name], value) for name, value in group["by"].items()),
            (ResultStatus.NORMAL, group["count"]),
        ]
        for group in counted["groups"]
    ]
    is_complete = answer.headers["fleetlight-complete"] == "true" and not counted["partial"]
    return {"fields": [*counted["fields"], _COUNT], "data": rows, "complete": is_complete}
