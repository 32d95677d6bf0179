"""The calls of the socket: checks of their arguments, and their results (contracts/ganeti-query, 9)."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from pydantic import TypeAdapter, ValidationError

from fleetlight.api.caller import Caller
from fleetlight.api.http.errors import NotFoundError, status_of
from fleetlight.api.limits.admission import ListAdmission
from fleetlight.api.limits.large_bodies import made_aside
from fleetlight.api.query.cluster import FLEET, cluster_info
from fleetlight.api.query.engine import QueryEngine
from fleetlight.api.query.item_query import check_columns
from fleetlight.api.query.job_changes import WATCHED, JobLostError, next_change
from fleetlight.api.query.named_items import UNSURE, ItemLookupError, called_or_identified, kind_of, names_in
from fleetlight.api.query.scope import visible_fields
from fleetlight.api.query.whole_results import LookedUp, QueryContext, RowStream, WholeResults, parts_of, pieces_of
from fleetlight.listing.admission import Admission
from fleetlight.listing.answer import Consistency, ReadOptions
from fleetlight.listing.consistency.read_your_writes import ReadYourWrites
from fleetlight.query.errors import MalformedExpressionError, QueryError
from fleetlight.query.fields_query import definitions
from fleetlight.resources.query_fields.catalog import ITEM_TYPES
from fleetlight.views.query2.projection import Row, cells_of

_LONGEST_WAIT_S = 89.0
# The socket is for administrators of this machine: a user that can open it sees the whole fleet.
_CALLER = Caller("luxi", None, frozenset({"admin"}))
# Item types by the kind that a call names; None for the cluster, which is no item here.
_WITH_TAGS = {"instance": "instance", "node": "node", "nodegroup": "group", "network": "network", "cluster": None}
_MOST_DIGITS = 18
_CHANGING = (
    "SubmitJob SubmitManyJobs SubmitJobToDrainedQueue CancelJob ArchiveJob AutoArchiveJobs ChangeJobPriority "
    "SetDrainFlag SetWatcherPause ReplaceFilter DeleteFilter PickupJob"
)

_encode = msgspec.json.Encoder().encode

Names = list[str]


class LuxiError(Exception):
    """An error that the client raises, too. kind: one of Ganeti's classes. details: its arguments."""

    def __init__(self, kind: str, *details: Any) -> None:
        super().__init__(kind, *details)
        self.kind = kind
        self.details = details


class MalformedRequestError(Exception):
    """A request cannot be parsed; the text says why. The connection ends after the answer."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a call.

    parts: its JSON, made on demand. is_complete: returns after the last part whether all cells have answered.
    """

    parts: AsyncIterator[bytes]
    is_complete: Callable[[], bool] = lambda: True


@dataclass(frozen=True, slots=True)
class _Request:
    """A request. parts: of its message (fleetlight.api.limits.large_bodies). admission: the limits on its pages."""

    parts: int
    admission: Admission


@dataclass(frozen=True, slots=True)
class _Call:
    """A call. arguments: their types, in order. run: takes the arguments' values and the request."""

    arguments: TypeAdapter[tuple[Any, ...]]
    run: Callable[..., Awaitable[Result]]


class LuxiCalls:
    """Answers calls. admission: the limits on lists."""

    def __init__(self, query_engine: QueryEngine, writes: ReadYourWrites, admission: ListAdmission) -> None:
        self._answers = WholeResults(query_engine)
        self._writes = writes
        self._admission = admission
        self._calls: Mapping[str, _Call] = {
            "Query": _call(tuple[str, Names, list[Any] | None], self._query),
            "QueryFields": _call(tuple[str, Names | None], self._query_fields),
            **{
                f"Query{item_type.capitalize()}s": _call(tuple[Names | None, Names, bool], self._old_query(item_type))
                for item_type in ("instance", "node", "group", "network")
            },
            "QueryJobs": _call(tuple[list[int | str] | None, Names], self._query_jobs),
            "QueryExports": _call(tuple[Names | None, bool], self._query_exports),
            "QueryFilters": _call(tuple[Names | None, Names], self._query_filters),
            "QueryTags": _call(tuple[str, str], self._query_tags),
            "QueryClusterInfo": _call(tuple[()], self._query_cluster_info),
            "QueryConfigValues": _call(tuple[Names], self._query_config_values),
            "WaitForJobChange": _call(
                tuple[int | str, Names, list[Any] | None, int | None, float], self._wait_for_job_change
            ),
        }

    async def answer(self, method: str, arguments: Sequence[Any], parts: int = 0) -> Result:
        """Run a call. parts: number of the request's parts (fleetlight.api.limits.large_bodies).

        Raises LuxiError, MalformedRequestError.
        """
        if method in _CHANGING.split():
            raise LuxiError("GenericError", f"{method} changes something, and this socket only reads")
        call = self._calls.get(method)
        if call is None:
            raise MalformedRequestError(f"unknown method {method!r}")
        try:
            checked = await made_aside(parts, lambda: call.arguments.validate_python(tuple(arguments), strict=True))
        except ValidationError as error:
            wrong = error.errors(include_url=False, include_context=False, include_input=False)[0]
            place = ".".join(map(str, wrong["loc"]))
            raise MalformedRequestError(f"{method}: argument {place}: {wrong['msg']}") from None
        try:
            return await call.run(*checked, request=_Request(parts, self._admission.of(_CALLER)))
        except (MalformedExpressionError, NotFoundError) as error:
            raise MalformedRequestError(str(error)) from None
        except QueryError as error:
            raise LuxiError("ParameterError", str(error)) from error
        except ItemLookupError as error:
            code = "unknown_entity" if error.is_certain else "environment_error"
            raise LuxiError("OpPrereqError", str(error), code) from error
        except Exception as error:
            if isinstance(error, LuxiError) or status_of(error) is None:
                raise
            raise LuxiError("GenericError", str(error)) from error

    async def _asking(self, request: _Request) -> QueryContext:
        behind = await self._writes.cells_behind(_CALLER.reader)
        fresh = ReadOptions(Consistency.BOUNDED, behind, self._writes.cell_timeout_s, request.admission)
        return QueryContext(_CALLER, fresh, parts=request.parts)

    async def _query(self, what: str, fields: Names, expression: list[Any] | None, *, request: _Request) -> Result:
        known = visible_fields(what, _CALLER)
        check_columns(fields)
        asking = await self._asking(request)
        begin, end = b'{"fields":%b,"data":[' % _encode(definitions(known, fields)), b"]}"
        wanted = await made_aside(asking.parts, lambda: names_in(expression, known))
        if wanted is not None:
            found = await self._answers.look_up(asking, what, fields, wanted)
            return _result_of_names(found, lambda row: row, begin, end)
        rows = await self._answers.stream(asking, what, fields, expression)
        return _result_of(rows, lambda row: row[1], begin, end)

    async def _query_fields(self, what: str, fields: Names | None, *, request: _Request) -> Result:
        check_columns(fields or ())
        return _result({"fields": definitions(visible_fields(what, _CALLER), fields or None)})

    async def _values(
        self, item_type: str, fields: Names, items: Sequence[str | int] | None, *, request: _Request
    ) -> Result:
        """Answer in the old format: values, null unless normal. items: names or uuids; None for all items."""
        check_columns(fields)
        known = visible_fields(item_type, _CALLER)
        unknown = [name for name in fields if name not in known]
        if unknown:
            raise LuxiError("OpPrereqError", f"Unknown output fields selected: {', '.join(unknown)}", "wrong_input")
        wanted = await made_aside(request.parts, lambda: called_or_identified(known, items))
        rows = await self._answers.stream(await self._asking(request), item_type, fields, wanted)
        return _result_of(rows, lambda row: _values_of(row[1]), b"[", b"]")

    def _old_query(self, item_type: str) -> Callable[..., Awaitable[Result]]:
        async def query(names: Names | None, fields: Names, with_locks: bool, *, request: _Request) -> Result:
            if with_locks:
                raise LuxiError("OpPrereqError", "Sync queries are not allowed", "wrong_input")
            return await self._values(item_type, fields, names, request=request)

        return query

    async def _query_jobs(self, ids: list[int | str] | None, fields: Names, *, request: _Request) -> Result:
        check_columns(fields)
        numbers = await made_aside(request.parts, lambda: _numbers(ids or ()))
        if not numbers or any(name not in ITEM_TYPES["job"] for name in fields):
            return await self._values("job", fields, None, request=request)
        found = await self._answers.look_up(await self._asking(request), "job", fields, numbers)
        return _result_of_names(found, _values_of, b"[", b"]")

    async def _query_exports(self, nodes: Names | None, with_locks: bool, *, request: _Request) -> Result:
        return await self._old_query("export")(nodes, ["node", "export"], with_locks, request=request)

    async def _query_filters(self, uuids: Names | None, fields: Names, *, request: _Request) -> Result:
        return await self._values("filter", fields, uuids, request=request)

    async def _query_tags(self, kind: str, name: str, *, request: _Request) -> Result:
        if kind not in _WITH_TAGS:
            raise MalformedRequestError(f"there are no tags of {kind!r}; there are of {', '.join(_WITH_TAGS)}")
        item_type = _WITH_TAGS[kind]
        if item_type is None:
            return _result([])
        known = visible_fields(item_type, _CALLER)
        expression = called_or_identified(known, [name])
        fields = ["tags", known.name_field, "uuid"]
        found = await self._answers.collect(await self._asking(request), item_type, fields, expression)
        # Prefer items with the whole name to those that it abbreviates.
        rows = [row for row in found.rows if name in (row[1][1], row[2][1])] or found.rows
        if len(rows) != 1:
            many = "has multiple matches" if rows else "not found"
            is_certain = bool(rows) or found.proof.is_complete
            raise ItemLookupError(f"{kind_of(known)} name {name} {many}", is_certain=is_certain)
        [[(_, tags), *_]] = rows
        return _result(sorted(tags or []), is_complete=found.proof.is_complete)

    async def _query_cluster_info(self, *, request: _Request) -> Result:
        return _result(cluster_info(FLEET, None))

    async def _query_config_values(self, names: Names, *, request: _Request) -> Result:
        check_columns(names)
        values = {"cluster_name": FLEET, "drain_flag": False}
        return _result([values.get(name) for name in names])

    async def _wait_for_job_change(
        self,
        job: int | str,
        fields: Names,
        info: list[Any] | None,
        serial: int | None,
        timeout_s: float,
        *,
        request: _Request,
    ) -> Result:
        check_columns(fields)
        [number] = _numbers([job])
        is_certain = True

        async def look() -> Sequence[Any] | None:
            nonlocal is_certain
            expression = ["==", "id", number]
            found = await self._answers.collect(await self._asking(request), "job", [*WATCHED, *fields], expression)
            is_certain = found.proof.is_complete
            return [value for _, value in found.rows[0]] if found.rows else None

        try:
            change = await next_change(look, info, serial, longest_s=min(timeout_s, _LONGEST_WAIT_S))
        except JobLostError:
            if not is_certain:
                raise LuxiError("GenericError", f"Job {number} is not found, and {UNSURE}") from None
            raise LuxiError("JobLost", "Can't load job file") from None
        return _result("nochange" if change is None else [change.info, change.entries])


def _call(arguments: Any, run: Callable[..., Awaitable[Result]]) -> _Call:
    return _Call(TypeAdapter(arguments), run)


def _result(value: Any, *, is_complete: bool = True) -> Result:
    """Make a result of a complete value."""

    async def parts() -> AsyncIterator[bytes]:
        yield _encode(value)

    return Result(parts(), lambda: is_complete)


def _result_of(rows: RowStream, to_item: Callable[[Row], Any], begin: bytes, end: bytes) -> Result:
    return Result(parts_of(rows, to_item, begin, end), lambda: rows.is_complete)


def _result_of_names(found: LookedUp, to_item: Callable[[Any], Any], begin: bytes, end: bytes) -> Result:
    return Result(pieces_of(found, to_item, begin, end), lambda: found.proof.is_complete)


def _values_of(cells: msgspec.Raw) -> Sequence[Any]:
    return [value for _, value in cells_of(cells)]


def _numbers(ids: Sequence[int | str]) -> list[int]:
    """Return numbers of jobs, which clients may send as text."""
    for each in ids:
        if not str(each).isascii() or not str(each).isdigit() or len(str(each)) > _MOST_DIGITS:
            raise LuxiError("GenericError", f"Invalid value for job ID: {each!r}")
    return list(map(int, ids))
