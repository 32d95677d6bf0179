"""Lists of items and single ones, in the old format: values by name, null for whatever has none."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import msgspec
from starlette.responses import Response, StreamingResponse

from api.compute.protocol.proof import proof_headers
from api.http.errors import NotFoundError
from api.query.answering import Answer, Answerer
from api.query.named_items import ItemLookupError, looked_up
from api.query.question import question_of
from api.query.visible_fields import visible_fields
from api.rapi.bulk_fields import BULK_FIELDS, MORE_OF_ONE
from api.rapi.endpoint import RapiRequest
from api.rapi.faults import RapiError
from resources.query_fields.definitions import QueryFields
from views.query2.projection import Cells, Row, cells_of

_encode = msgspec.json.Encoder().encode


class CutOffError(Exception):
    """Part of the fleet was lost in the middle of an answer that has begun as complete."""


class RapiItems:
    """Asks the engine of queries on behalf of a request."""

    def __init__(self, answerer: Answerer) -> None:
        self._answerer = answerer

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
        """All items that the expression lets pass, each as `to_item` has it; sent while they are read.

        around: what the items stand between. An answer that is not whole ends without its end.
        """
        batches = self._batches(request, item_type, names, expression)
        first = await anext(batches)
        headers = proof_headers(first.proof, request.caller)
        body = _body(first, batches, to_item, around)
        if first.after is None:
            return Response(b"".join([part async for part in body]), headers=headers, media_type="application/json")
        return StreamingResponse(body, headers=headers, media_type="application/json")

    async def collected(
        self, request: RapiRequest, item_type: str, names: Sequence[str], expression: Any = None
    ) -> tuple[list[Cells], dict[str, str]]:
        """The cells of all items that the expression lets pass, and the headers that say what they cover."""
        rows: list[Cells] = []
        headers: dict[str, str] = {}
        async for batch in self._batches(request, item_type, names, expression):
            rows += (cells_of(cells) for _, cells in batch.rows)
            if not headers or not batch.proof.is_complete:
                headers = proof_headers(batch.proof, request.caller)
        return rows, headers

    async def looked_up(
        self, request: RapiRequest, known: QueryFields, names: Sequence[str], expression: Any, wanted: Sequence[Any]
    ) -> tuple[list[Cells], dict[str, str]]:
        """As `collected`, of an expression that names the items `wanted`: these, in that order.

        Raises RapiError for a name of no item, or of several.
        """
        found, headers = await self.collected(request, known.name, [known.name_field, *names], expression)
        try:
            return looked_up(known, names, wanted, found), headers
        except ItemLookupError as error:
            if headers["Fleetlight-Complete"] == "true":
                raise RapiError(HTTPStatus.BAD_REQUEST, str(error)) from error
            text = f"{error}, and part of the fleet does not answer"
            raise RapiError(HTTPStatus.SERVICE_UNAVAILABLE, text) from error

    async def one(self, request: RapiRequest, item_type: str, name: str) -> tuple[Mapping[str, Any], dict[str, str]]:
        """The item of a name, an abbreviation of it at a dot, or a uuid, by the names of its fields.

        The first in nice order where an abbreviation fits several. Raises NotFoundError.
        """
        known = visible_fields(item_type, request.caller)
        names = [*BULK_FIELDS[item_type], *MORE_OF_ONE.get(item_type, ())]
        rows, headers = await self.collected(request, item_type, names, _called(known, name))
        found = [_object(names, cells) for cells in rows]
        for item in sorted(found, key=lambda item: name not in {str(item.get(known.name_field)), item.get("uuid")}):
            return item, headers
        raise NotFoundError(f"There is no {item_type} '{name}'")

    def _batches(
        self, request: RapiRequest, item_type: str, names: Sequence[str], expression: Any
    ) -> AsyncIterator[Answer]:
        known = visible_fields(item_type, request.caller)
        question = question_of(known, names, expression, all_projects=request.caller.is_admin)
        return self._answerer.batches(question, request.caller, request.fresh, request.only)


def as_object(names: Sequence[str]) -> Callable[[Row], Any]:
    """Makes an object of a row with these columns."""
    return lambda row: _object(names, cells_of(row[1]))


def _object(names: Sequence[str], cells: Cells) -> dict[str, Any]:
    """Values by name. Backend parameters have the memory under its old name too."""
    found = {name: value for name, (_, value) in zip(names, cells, strict=True)}
    parameters = found.get("beparams")
    if isinstance(parameters, dict) and "maxmem" in parameters:
        found["beparams"] = {**parameters, "memory": parameters["maxmem"]}
    return found


def answer(document: Any, headers: Mapping[str, str] | None = None) -> Response:
    """A success, which always has the status 200 here."""
    return Response(_encode(document) + b"\n", headers=headers, media_type="application/json")


def _called(known: QueryFields, name: str) -> Any:
    if known.name == "job":
        return ["==", "id", int(name)]
    if known.name_field == "uuid":
        # Of kind `other`, whose equality is that of any value.
        return ["==", "uuid", name]
    by_name = ["==", known.name_field, name]
    return ["|", by_name, ["==", "uuid", name]] if "uuid" in known else by_name


async def _body(
    first: Answer, batches: AsyncIterator[Answer], to_item: Callable[[Row], Any], around: tuple[bytes, bytes]
) -> AsyncIterator[bytes]:
    begin, end = around
    yield begin
    separator = b""
    batch: Answer | None = first
    while batch is not None:
        if batch.rows:
            yield separator + b",".join(_encode(to_item(row)) for row in batch.rows)
            separator = b","
        batch = await anext(batches, None)
        if batch is not None and first.proof.is_complete and not batch.proof.is_complete:
            raise CutOffError("cells were lost while they were listed")
    yield end
