"""`GET /fleetlight/query/export`: all rows of a query as a file, CSV or JSON lines, sent while they are read.

The first line of a file says what is in it and what its beginning covers, the last one how many rows came and whether
they are all there are: a file without a last line was cut off. In CSV these two are records of one cell that begins
with `#`, which no other record does.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from starlette.responses import Response, StreamingResponse

from fleetlight.api.documented import ApiOperation
from fleetlight.api.http.errors import BadRequestError
from fleetlight.api.http.parts_response import HeadResponse
from fleetlight.api.http.shapes import TEXT
from fleetlight.api.limits.large_bodies import made_aside
from fleetlight.api.query.engine import QueryEngine
from fleetlight.api.query.handlers import query_of_body
from fleetlight.api.query.item_query import body_of_query, refuse_unknown_fields, size_of
from fleetlight.api.query.whole_results import RowStream
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.headers import CELL_TIMEOUT, COMPLETE, CONSISTENCY, ROUTE
from fleetlight.api.shared.proof import proof_headers, read_options
from fleetlight.api.shared.times import with_zone
from fleetlight.listing.consistency.read_your_writes import ReadYourWrites
from fleetlight.resources.clock import Clock
from fleetlight.views.csv_values import csv_records, csv_remark, csv_value
from fleetlight.views.query2.projection import Row, cells_of

_PARAMETERS = ("what", "fields", "filter", "order", "all_projects", "as_of", "format")
EXPORT = ApiOperation(
    "GET",
    "/fleetlight/query/export",
    TEXT,
    query=_PARAMETERS,
    takes=(CONSISTENCY, CELL_TIMEOUT),
    gives=(COMPLETE, ROUTE),
    media_type="text/csv",
    faults=(400, 403, 404),
    summary="All rows of a query as CSV, or as lines of JSON (format=jsonl), between two lines on what they cover",
)

_encode = msgspec.json.Encoder().encode


class Form(Protocol):
    """A form of files: its lines, each with its end."""

    media_type: str

    def head(self, covers: Mapping[str, Any], names: Sequence[str]) -> bytes: ...

    def rows(self, rows: Sequence[Row]) -> bytes: ...

    def end(self, covers: Mapping[str, Any]) -> bytes: ...


class _JsonLines:
    """An object, the rows as `data` of a query has them, and an object."""

    media_type = "application/jsonl"

    def head(self, covers: Mapping[str, Any], names: Sequence[str]) -> bytes:
        return _encode({**covers, "fields": names}) + b"\n"

    def rows(self, rows: Sequence[Row]) -> bytes:
        return b"".join(bytes(cells) + b"\n" for _, cells in rows)

    def end(self, covers: Mapping[str, Any]) -> bytes:
        return _encode(covers) + b"\n"


class _Csv:
    """A remark, the names of the fields, the rows, and a remark. What has no value is empty; a list is its JSON."""

    media_type = "text/csv"

    def head(self, covers: Mapping[str, Any], names: Sequence[str]) -> bytes:
        return csv_records([[csv_remark(covers)], [*names]])

    def rows(self, rows: Sequence[Row]) -> bytes:
        return csv_records([[csv_value(value) for _, value in cells_of(cells)] for _, cells in rows])

    def end(self, covers: Mapping[str, Any]) -> bytes:
        return csv_records([[csv_remark(covers)]])


FORMS: Mapping[str, Form] = {"csv": _Csv(), "jsonl": _JsonLines()}
"""By the name of the format."""


@dataclass(frozen=True, slots=True)
class _File:
    """covers: what its first line says, beside the names of the fields."""

    form: Form
    names: Sequence[str]
    rows: RowStream
    covers: Mapping[str, Any]

    async def lines(self) -> AsyncIterator[bytes]:
        """Its bytes, batch by batch; nothing of what was sent is kept."""
        count = 0
        yield self.form.head(self.covers, self.names)
        async for batch in self.rows.batches():
            count += len(batch)
            yield self.form.rows(batch)
        yield self.form.end({"rows": count, "complete": self.rows.is_complete})


class ExportHandler:
    """timeout_s: what one cell may cost. clock: says as of when an export is that asks for no moment."""

    def __init__(self, query_engine: QueryEngine, writes: ReadYourWrites, *, timeout_s: float, clock: Clock) -> None:
        self._query_engine = query_engine
        self._writes = writes
        self._timeout_s = timeout_s
        self._clock = clock

    async def get(self, request: ApiRequest) -> Response:
        """`GET /fleetlight/query/export`"""
        caller, kind = request.caller, request.query.last("format") or "csv"
        if kind not in FORMS:
            raise BadRequestError(f"format: '{kind}' is not one of {', '.join(FORMS)}")
        body = body_of_query(request.query, _PARAMETERS)
        question = await made_aside(size_of(body.filter), lambda: query_of_body(body, caller))
        refuse_unknown_fields("fields", question.names, question.known)
        fresh = await read_options(request.http.headers, caller, self._writes, self._timeout_s, request.admission)
        moment = self._clock() if question.as_of is None else question.as_of
        batches = self._query_engine.batches(question, caller, fresh)
        rows = RowStream(await anext(batches), batches)
        proof = proof_headers(rows.proof, caller)
        covers = {
            "what": body.what,
            "filter": body.filter,
            "as_of": with_zone(moment),
            "complete": rows.is_complete,
            "route": proof["Fleetlight-Route"],
        }
        form = FORMS[kind]
        named = {"Content-Disposition": f'attachment; filename="{body.what}.{kind}"'}
        lines = _File(form, question.names, rows, covers).lines()
        answer = StreamingResponse(lines, headers=proof | named, media_type=form.media_type)
        return HeadResponse(answer) if request.http.method == "HEAD" else answer
