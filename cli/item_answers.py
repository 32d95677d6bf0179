"""Queries the API's application for `fleetlight list`: items, or counts by group."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fleetlight.api.query.named_items import (
    CALLED_BY_OTHERS,
    ItemLookupError,
    columns_of,
    found_of,
    is_uuid,
    looked_up,
    lost_job,
)
from fleetlight.cli.errors import CommandError, ConfigurationError
from fleetlight.cli.in_process import ApiInProcess, document_of
from fleetlight.cli.operator_api import OperatorApi
from fleetlight.query.filter_text import of_named
from fleetlight.resources.fields import Kind
from fleetlight.resources.query_fields.catalog import ITEM_TYPES
from fleetlight.resources.query_fields.definitions import QueryFields, ResultStatus

_COUNT = {"name": "count", "title": "Count", "kind": Kind.NUMBER.value, "doc": "How many there are"}
_OPTIONS = {"order": "--order", "by": "--group-by", "as_of": "--as-of", "fields": "-o", "filter": "filter"}
"""Maps names in the API's requests to options of the command."""


async def look_up(
    api: OperatorApi,
    known: QueryFields,
    wanted: Sequence[str | int] | None,
    asked: Mapping[str, Any],
    *,
    limit: int | None = None,
) -> Mapping[str, Any]:
    """All answers of a query. If it asks for items by name only, they come in the order of the names unless sorted.

    wanted: those names. limit: this many items are enough; `has_more` then says whether there are others.
    Raises CommandError, also if a name matches nothing.
    """
    if wanted is None or asked["order"]:
        return await _ask(api, asked, limit)
    if (others := CALLED_BY_OTHERS.get(known.name)) is not None:
        of_others = ["|", *(["==", "name", name] for name in wanted)]
        await look_up(api, ITEM_TYPES[others], wanted, {**asked, "what": others, "fields": [], "filter": of_others})
    before = columns_of(known, ())
    answer = await _ask(api, {**asked, "fields": [*before, *asked["fields"]]})
    found = [found_of(known, row, row[len(before) :]) for row in answer["data"]]

    def lost(number: str | int) -> Sequence[tuple[int, Any]]:
        return lost_job(known, asked["fields"], number, is_certain=answer["complete"])

    try:
        rows = looked_up(known, wanted, found, lost, is_certain=answer["complete"], finds_uuids=True)
    except ItemLookupError as error:
        raise CommandError(str(error)) from error
    return {**answer, "fields": answer["fields"][len(before) :], "data": rows}


async def _ask(api: OperatorApi, asked: Mapping[str, Any], limit: int | None = None) -> dict[str, Any]:
    async with api.opened() as app:
        return await all_pages(app, asked, limit)


async def all_pages(app: ApiInProcess, asked: Mapping[str, Any], limit: int | None = None) -> dict[str, Any]:
    """Fetch all pages of an answer, or those with the first `limit` items. Raises CommandError."""
    whole: dict[str, Any] = {"fields": [], "data": [], "complete": True}
    marker: str | None = None
    while True:
        answer = await app.call("POST", "/fleetlight/query", body=msgspec.json.encode({**asked, "marker": marker}))
        page = document_of(answer, _OPTIONS)
        whole["fields"] = page["fields"]
        whole["data"] += page["data"]
        whole["complete"] &= answer.headers["fleetlight-complete"] == "true"
        marker = page["marker"]
        if marker is None or (limit is not None and len(whole["data"]) >= limit):
            return {**whole, "has_more": marker is not None}


async def instance_uuid(api: OperatorApi, name: str) -> str:
    """The uuid of the instance with this name in any cell; a uuid is returned as it is, even if it is not listed.

    Raises CommandError if no instance has the name, and ConfigurationError, with their uuids, if several have it.
    """
    if is_uuid(name):
        return name
    known = ITEM_TYPES["instance"]
    asked = {
        "what": known.name,
        "fields": ["uuid", "cell"],
        "filter": of_named(known.name_field, ["==", known.name_field, name]),
        "order": [],
        "all_projects": True,
        "as_of": None,
    }
    rows = (await look_up(api, known, [name], asked))["data"]
    found = [(uuid, cell) for (_, uuid), (_, cell) in rows]
    if len(found) > 1:
        each = ", ".join(f"{uuid} in cell {cell}" for uuid, cell in found)
        raise ConfigurationError(f"'{name}' is the name of {len(found)} instances; say which by its uuid: {each}")
    return str(found[0][0])


async def count(api: OperatorApi, by: Sequence[str], asked: Mapping[str, Any]) -> dict[str, Any]:
    """Count items; returns rows with the values of the fields in `by`, then the count. Raises CommandError."""
    async with api.opened() as app:
        body = {**{name: asked[name] for name in ("what", "filter", "all_projects", "as_of")}, "by": by}
        answer = await app.call("POST", "/fleetlight/query/counts", body=msgspec.json.encode(body))
        counted = document_of(answer, _OPTIONS)
    rows = [
        [
            *((group["statuses"][name], value) for name, value in group["by"].items()),
            (ResultStatus.NORMAL, group["count"]),
        ]
        for group in counted["groups"]
    ]
    is_complete = answer.headers["fleetlight-complete"] == "true" and not counted["partial"]
    return {"fields": [*counted["fields"], _COUNT], "data": rows, "complete": is_complete, "has_more": False}
