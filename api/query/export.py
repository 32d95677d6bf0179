"""`GET /fleetlight/query/export`: all rows of a query as a file, CSV or JSON lines, sent while they are read.

The first of JSON lines describes the content and its coverage at the start; the last gives the number of rows, and
whether they are complete. A file without it was cut off. CSV has only its header and rows, for programs and
spreadsheets: its file name says if cells were missing at the start. If a later cell fails, the transfer is cut off, as
HTTP shows, unless the request asks for a last record with a remark, of one field that begins with `#`.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
from starlette.responses import Response, StreamingResponse

from fleetlight.api.documented import ApiOperation
from fleetlight.api.http.errors import BadRequestError, CutExportError
from fleetlight.api.http.parts_response import HeadResponse
from fleetlight.api.http.shapes import TEXT
from fleetlight.api.limits.large_bodies import made_aside
from fleetlight.api.query.engine import QueryEngine
from fleetlight.api.query.handlers import query_of_body
from fleetlight.api.query.item_query import body_of_query, flag, refuse_unknown_fields, size_of
from fleetlight.api.query.whole_results import RowStream
from fleetlight.api.shared.endpoint import ApiRequest
from fleetlight.api.shared.headers import CELL_TIMEOUT, COMPLETE, CONSISTENCY, ROUTE
from fleetlight.api.shared.proof import proof_headers, read_options
from fleetlight.api.shared.times import with_zone
from fleetlight.resources.clock import Clock
from fleetlight.resources.fields import Field
from fleetlight.resources.query_fields.definitions import is_time
from fleetlight.views.csv_values import csv_records, csv_remark, csv_time, csv_value
from fleetlight.views.query2.projection import Row, cells_of

_PARAMETERS = ("what", "fields", "filter", "order", "all_projects", "as_of", "format", "remarks")
EXPORT = ApiOperation(
    "GET",
    "/fleetlight/query/export",
    TEXT,
    query=_PARAMETERS,
    takes=(CONSISTENCY, CELL_TIMEOUT),
    gives=(COMPLETE, ROUTE),
    media_type="text/csv",
    faults=(400, 403, 404),
    summary="All rows of a query as CSV, or as lines of JSON (format=jsonl) between two lines on what they cover",
)

_encode = msgspec.json.Encoder().encode


class Form(Protocol):
    """A format of files; its methods return lines with ends. says_end: whether its last line tells if it is whole."""

    media_type: str
    says_end: bool

    def head(self, covers: Mapping[str, Any], fields: Sequence[Field]) -> bytes: ...

    def rows(self, rows: Sequence[Row], fields: Sequence[Field]) -> bytes: ...

    def end(self, covers: Mapping[str, Any], end: Mapping[str, Any]) -> bytes:
        """Return the last lines. covers: as in `head`. end: number of rows, and whether they are complete."""
        ...


class _JsonLines:
    """JSON lines: an object, the rows as in the member `data` of a query, and an object."""

    media_type = "application/jsonl"
    says_end = True

    def head(self, covers: Mapping[str, Any], fields: Sequence[Field]) -> bytes:
        return _encode({**covers, "fields": [field.name for field in fields]}) + b"\n"

    def rows(self, rows: Sequence[Row], fields: Sequence[Field]) -> bytes:  # the form needs none
        return b"".join(bytes(cells) + b"\n" for _, cells in rows)

    def end(self, covers: Mapping[str, Any], end: Mapping[str, Any]) -> bytes:  # the head has said it
        return _encode(end) + b"\n"


class _Csv:
    """CSV: the names of the fields, and the rows, without extensions.

    A missing value is empty, a time is in ISO 8601, and a list is JSON.
    """

    media_type = "text/csv"
    says_end = False

    def head(self, covers: Mapping[str, Any], fields: Sequence[Field]) -> bytes:  # it says nothing of itself
        return csv_records([[field.name for field in fields]])

    def rows(self, rows: Sequence[Row], fields: Sequence[Field]) -> bytes:
        shown = [csv_time if is_time(field) else csv_value for field in fields]
        return csv_records(
            [[show(value) for show, (_, value) in zip(shown, cells_of(cells), strict=True)] for _, cells in rows]
        )

    def end(self, covers: Mapping[str, Any], end: Mapping[str, Any]) -> bytes:
        return b""


class _RemarkedCsv(_Csv):
    """CSV with a last remark on the coverage of the file."""

    says_end = True

    def end(self, covers: Mapping[str, Any], end: Mapping[str, Any]) -> bytes:
        return csv_records([[csv_remark({**covers, **end})]])


FORMS: Mapping[str, Form] = {"csv": _Csv(), "jsonl": _JsonLines()}
"""By the name of the format."""
_REMARKED: Form = _RemarkedCsv()


@dataclass(frozen=True, slots=True)
class _File:
    """A file. covers: content of its first line, beside the names of the fields."""

    form: Form
    fields: Sequence[Field]
    rows: RowStream
    covers: Mapping[str, Any]

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield its bytes, batch by batch.

        Raises CutExportError instead of an end if cells failed after the file's name said that none is missing.
        """
        count = 0
        yield self.form.head(self.covers, self.fields)
        async for batch in self.rows.batches():
            count += len(batch)
            yield self.form.rows(batch, self.fields)
        if self.covers["complete"] and not self.rows.is_complete and not self.form.says_end:
            raise CutExportError
        yield self.form.end(self.covers, {"rows": count, "complete": self.rows.is_complete})


class ExportHandler:
    """The handler of exports. clock: the moment of an export without `as_of`."""

    def __init__(self, query_engine: QueryEngine, *, clock: Clock) -> None:
        self._query_engine = query_engine
        self._clock = clock

    async def get(self, request: ApiRequest) -> Response:
        """`GET /fleetlight/query/export`. Raises BadRequestError."""
        caller, kind = request.caller, request.query.last("format") or "csv"
        if kind not in FORMS:
            raise BadRequestError(f"format: '{kind}' is not one of {', '.join(FORMS)}")
        remarks = flag(request.query, "remarks")
        if remarks and kind != "csv":
            raise BadRequestError("remarks: only csv has them; the first and last line of jsonl say the same")
        asked = body_of_query(request.query, _PARAMETERS)
        # Most readers refuse repeated columns.
        body = asked.model_copy(update={"fields": list(dict.fromkeys(asked.fields))})
        question = await made_aside(size_of(body.filter), lambda: query_of_body(body, caller))
        refuse_unknown_fields("fields", question.names, question.known)
        fresh = await read_options(request.http.headers, caller, request.writes, request.admission)
        moment = self._clock() if question.as_of is None else question.as_of
        batches = self._query_engine.all_rows(question, caller, fresh)
        rows = RowStream(await anext(batches), batches)
        proof = proof_headers(rows.proof, caller)
        covers = {
            "what": body.what,
            "filter": body.filter,
            "as_of": with_zone(moment),
            "complete": rows.is_complete,
            "route": proof["Fleetlight-Route"],
        }
        form = _REMARKED if remarks else FORMS[kind]
        name = f"{body.what}{'' if rows.is_complete else '-incomplete'}.{kind}"
        named = {"Content-Disposition": f'attachment; filename="{name}"'}
        fields = [question.known[name] for name in question.names]
        lines = _File(form, fields, rows, covers).lines()
        answer = StreamingResponse(lines, headers=proof | named, media_type=form.media_type)
        return HeadResponse(answer) if request.http.method == "HEAD" else answer
