"""The calls of the socket: what each takes, checked, and what it answers (contracts/ganeti-query, 9)."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import TypeAdapter, ValidationError

from api.compute.protocol.proof import AskedFreshness
from api.http.errors import NotFoundError, status_of
from api.identity.caller import Caller
from api.query.answering import Answerer
from api.query.cluster import FLEET, cluster_info
from api.query.job_changes import WATCHED, JobLostError, next_change
from api.query.named_items import ItemLookupError, NamedItems, UnknownFieldsError
from listing.answer import Consistency
from listing.consistency.read_your_writes import ReadYourWrites
from query.errors import QueryError
from query.fields_query import definitions
from resources.query_fields.catalog import ITEM_TYPES

_LONGEST_WAIT_S = 89.0
# The socket is for administrators of this machine: who can open it sees the whole fleet.
_CALLER = Caller("luxi", None, frozenset({"admin"}))
_WITH_TAGS = ("instance", "node", "nodegroup", "network", "cluster")
_CHANGING = (
    "SubmitJob SubmitManyJobs SubmitJobToDrainedQueue CancelJob ArchiveJob AutoArchiveJobs ChangeJobPriority "
    "SetDrainFlag SetWatcherPause ReplaceFilter DeleteFilter PickupJob"
)

Names = list[str]


class LuxiError(Exception):
    """An error that the client raises again. kind: one of Ganeti's classes. details: its arguments."""

    def __init__(self, kind: str, *details: Any) -> None:
        super().__init__(kind, *details)
        self.kind = kind
        self.details = details


class MalformedRequestError(Exception):
    """A request that cannot be parsed; the text says why. The connection ends behind the answer."""


@dataclass(frozen=True, slots=True)
class _Call:
    """arguments: their types, in order. run: with them."""

    arguments: TypeAdapter[tuple[Any, ...]]
    run: Callable[..., Awaitable[Any]]


class LuxiCalls:
    """cell_timeout_s: what one cell may cost."""

    def __init__(self, answerer: Answerer, writes: ReadYourWrites, *, cell_timeout_s: float) -> None:
        self._items = NamedItems(answerer, _CALLER)
        self._writes = writes
        self._cell_timeout_s = cell_timeout_s
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

    async def answer(self, method: str, arguments: Sequence[Any]) -> Any:
        """What a call returns. Raises LuxiError, MalformedRequestError."""
        if method in _CHANGING.split():
            raise LuxiError("GenericError", f"{method} changes something, and this socket only reads")
        call = self._calls.get(method)
        if call is None:
            raise MalformedRequestError(f"unknown method {method!r}")
        try:
            checked = call.arguments.validate_python(tuple(arguments), strict=True)
        except ValidationError as error:
            wrong = error.errors(include_url=False, include_context=False, include_input=False)[0]
            place = ".".join(map(str, wrong["loc"]))
            raise MalformedRequestError(f"{method}: argument {place}: {wrong['msg']}") from None
        try:
            return await call.run(*checked)
        except (UnknownFieldsError, QueryError) as error:
            raise LuxiError("OpPrereqError", str(error), "wrong_input") from error
        except ItemLookupError as error:
            raise LuxiError("OpPrereqError", str(error), "unknown_entity") from error
        except NotFoundError as error:
            raise MalformedRequestError(str(error)) from None
        except Exception as error:
            if isinstance(error, LuxiError) or status_of(error) is None:
                raise
            raise LuxiError("GenericError", str(error)) from error

    async def _fresh(self) -> AskedFreshness:
        behind = await self._writes.cells_behind(_CALLER.reader)
        return AskedFreshness(Consistency.BOUNDED, behind, self._cell_timeout_s)

    async def _query(self, what: str, fields: Names, expression: list[Any] | None) -> Any:
        rows = await self._items.rows(what, fields, expression, await self._fresh())
        return {"fields": definitions(ITEM_TYPES[what], fields), "data": rows}

    async def _query_fields(self, what: str, fields: Names | None) -> Any:
        if what not in ITEM_TYPES:
            raise MalformedRequestError(f"unknown item type {what!r}")
        return {"fields": definitions(ITEM_TYPES[what], fields or None)}

    def _old_query(self, item_type: str) -> Callable[[Names | None, Names, bool], Awaitable[Any]]:
        async def query(names: Names | None, fields: Names, with_locks: bool) -> Any:
            if with_locks:
                raise LuxiError("OpPrereqError", "Sync queries are not allowed", "wrong_input")
            return await self._items.values(item_type, fields, names, await self._fresh())

        return query

    async def _query_jobs(self, ids: list[int | str] | None, fields: Names) -> Any:
        return await self._items.values("job", fields, _numbers(ids), await self._fresh())

    async def _query_exports(self, nodes: Names | None, with_locks: bool) -> Any:
        return await self._old_query("export")(nodes, ["node", "export"], with_locks)

    async def _query_filters(self, uuids: Names | None, fields: Names) -> Any:
        return await self._items.values("filter", fields, uuids, await self._fresh())

    async def _query_tags(self, kind: str, name: str) -> Any:
        if kind not in _WITH_TAGS:
            raise MalformedRequestError(f"there are no tags of {kind!r}; there are of {', '.join(_WITH_TAGS)}")
        if kind == "cluster":
            return []
        item_type = "group" if kind == "nodegroup" else kind
        found = await self._items.values(item_type, ["tags"], [name], await self._fresh())
        if len(found) != 1:
            many = "has multiple matches" if found else "not found"
            raise LuxiError("OpPrereqError", f"{item_type.capitalize()} {name} {many}", "unknown_entity")
        return sorted(found[0][0] or [])

    async def _query_cluster_info(self) -> Any:
        return cluster_info(FLEET, None)

    async def _query_config_values(self, names: Names) -> Any:
        values = {"cluster_name": FLEET, "drain_flag": False}
        return [values.get(name) for name in names]

    async def _wait_for_job_change(
        self, job: int | str, fields: Names, info: list[Any] | None, serial: int | None, timeout_s: float
    ) -> Any:
        [number] = _numbers([job]) or [0]
        expression = ["&", ["==", "id", number]]

        async def look() -> Sequence[Any] | None:
            rows = await self._items.rows("job", [*WATCHED, *fields], expression, await self._fresh())
            return [value for _, value in rows[0]] if rows else None

        try:
            change = await next_change(look, info, serial, longest_s=min(timeout_s, _LONGEST_WAIT_S))
        except JobLostError:
            raise LuxiError("JobLost", "Can't load job file") from None
        return "nochange" if change is None else [change.info, change.entries]


def _call(arguments: Any, run: Callable[..., Awaitable[Any]]) -> _Call:
    return _Call(TypeAdapter(arguments), run)


def _numbers(ids: Sequence[int | str] | None) -> list[int] | None:
    """Numbers of jobs, which may come as their digits."""
    numbers = []
    for each in ids or ():
        if not str(each).isascii() or not str(each).isdigit() or len(str(each)) > 18:
            raise LuxiError("GenericError", f"Invalid value for job ID: {each!r}")
        numbers.append(int(each))
    return numbers or None
