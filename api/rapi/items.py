"""Lists of items and single items, in the old format: values by name, null for missing ones."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

import msgspec
from starlette.responses import Response, StreamingResponse

from fleetlight.api.http.errors import NotFoundError
from fleetlight.api.query.named_items import UNSURE, called_or_identified
from fleetlight.api.query.scope import visible_fields
from fleetlight.api.query.whole_results import RowStream, WholeResults, parts_of
from fleetlight.api.rapi.bulk_fields import BULK_FIELDS, MORE_OF_ONE
from fleetlight.api.rapi.endpoint import RapiRequest
from fleetlight.api.rapi.faults import UnsureError
from fleetlight.api.shared.proof import proof_headers
from fleetlight.views.query2.projection import Cells, Row, cells_of

_encode = msgspec.json.Encoder().encode


class CutOffError(Exception):
    """A cell failed during an answer whose headers had promised its rows."""


class RapiItems:
    """Queries items on behalf of a request."""

    def __init__(self, answers: WholeResults) -> None:
        self.answers = answers

    async def streamed(
        self,
        request: RapiRequest,
        item_type: str,
        names: Sequence[str],
        expression: Any,
        to_item: Callable[[Row], Any],
        *,
        around: tuple[bytes, bytes] = (b"[", b"]\n"),
    ) -> Response:
        """Stream all items that match the expression, each converted by `to_item`.

        around: the bytes before and after the items. An answer that lacks rows promised by its headers is cut off.
        """
        rows = await self.answers.stream(request, item_type, names, expression)
        headers = proof_headers(rows.proof, request.caller)
        body = _body(rows, to_item, around)
        if rows.is_one_batch:
            return Response(b"".join([part async for part in body]), headers=headers, media_type="application/json")
        return StreamingResponse(body, headers=headers, media_type="application/json")

    async def collected(
        self, request: RapiRequest, item_type: str, names: Sequence[str], expression: Any = None
    ) -> tuple[Sequence[Cells], dict[str, str]]:
        """Return the values of all items that match the expression, and the headers with their coverage."""
        found = await self.answers.collect(request, item_type, names, expression)
        return found.rows, proof_headers(found.proof, request.caller)

    async def one(self, request: RapiRequest, item_type: str, name: str) -> tuple[Mapping[str, Any], dict[str, str]]:
        """Find an item by name, by an abbreviation of it at a dot, or by uuid; returns its fields by name.

        An abbreviation of several names finds the first in nice order. Raises NotFoundError, and RapiError if a cell
        that may have the item does not answer.
        """
        known = visible_fields(item_type, request.caller)
        names = [*BULK_FIELDS[item_type], *MORE_OF_ONE.get(item_type, ())]
        called = ["==", "id", int(name)] if item_type == "job" else called_or_identified(known, [name])
        rows, headers = await self.collected(request.for_one_item(), item_type, names, called)
        found = [_object(names, cells) for cells in rows]
        for item in sorted(found, key=lambda item: name not in {str(item.get(known.name_field)), item.get("uuid")}):
            return item, headers
        raise not_found(f"There is no {item_type} '{name}'", headers)


def not_found(message: str, headers: Mapping[str, str]) -> Exception:
    """Make the error for an item that is missing in an answer with these headers."""
    if headers["Fleetlight-Complete"] == "true":
        return NotFoundError(message)
    return UnsureError(f"{message}, and {UNSURE}")


def as_object(names: Sequence[str]) -> Callable[[Row], Any]:
    """Return a function that makes an object of a row with these columns."""
    return lambda row: _object(names, cells_of(row[1]))


def _object(names: Sequence[str], cells: Cells) -> dict[str, Any]:
    """Return values by name. Backend parameters also have the memory under its old name."""
    found = {name: value for name, (_, value) in zip(names, cells, strict=True)}
    parameters = found.get("beparams")
    if isinstance(parameters, dict) and "maxmem" in parameters:
        found["beparams"] = {**parameters, "memory": parameters["maxmem"]}
    return found


def answer(document: Any, headers: Mapping[str, str] | None = None) -> Response:
    """Make a success, which always has the status 200 here."""
    return Response(_encode(document) + b"\n", headers=headers, media_type="application/json")


async def _body(rows: RowStream, to_item: Callable[[Row], Any], around: tuple[bytes, bytes]) -> AsyncIterator[bytes]:
    begin, end = around
    async for part in parts_of(rows, to_item, begin, end):
        if rows.has_lost:
            raise CutOffError("cells were lost while they were listed")
        yield part
