"""What a caller asks for, out of the query of a GET or the body of a POST, checked against what it may see."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from api.http.errors import BadRequestError
from api.http.query_string import QueryString
from api.http.request_body import RequestModel
from query.expressions import to_filter
from query.filter_text import parse_filter
from query.filters import Filter
from query.sort import Collation, Direction, SortKey
from resources.fields import Kind
from resources.query_fields.definitions import FieldFlag, QueryFields
from resources.uuids import is_uuid
from views.query2.values import Values

MAX_FIELDS = 200
_MAX_ORDER = 8
_PARAMETERS = frozenset({"what", "fields", "filter", "order", "limit", "marker", "all_projects"})
_DIGITS = 9


class QuestionBody(RequestModel):
    """The body of `POST /fleetlight/query`.

    filter: a list with its operator first, or the text of a filter.
    """

    what: str
    fields: Annotated[list[str], Field(max_length=MAX_FIELDS)]
    filter: list[Any] | str | None = None
    order: Annotated[list[str], Field(max_length=_MAX_ORDER)] = Field(default_factory=list)
    limit: Annotated[int, Field(ge=0)] | None = None
    marker: str | None = None
    all_projects: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """names: of the fields, in the order of the answer's columns. filter: on the fields of Query2.

    order: keys by stored fields. limit: rows that are wanted; None for as many as a page has. marker: the uuid of the
    row to go on after. all_projects: whether the caller wants to see those of others too.
    """

    names: Sequence[str]
    filter: Filter
    order: Sequence[SortKey]
    limit: int | None
    marker: str | None
    all_projects: bool


def body_of_query(query: QueryString) -> QuestionBody:
    """What the parameters of a GET say, as the body of a POST would. Raises BadRequestError."""
    unknown = sorted(set(query) - _PARAMETERS)
    if unknown:
        known = ", ".join(sorted(_PARAMETERS))
        raise BadRequestError(f"there is no parameter '{unknown[0]}'; there is: {known}")
    names = listed(query.last("fields"))
    if len(names) > MAX_FIELDS:
        raise BadRequestError(f"fields: {len(names)} of them; there may be {MAX_FIELDS}")
    return QuestionBody(
        what=query.last("what") or "instance",
        fields=names,
        filter=query.last("filter") or None,
        order=listed(query.last("order"))[:_MAX_ORDER],
        limit=_limit(query.last("limit")),
        marker=query.last("marker"),
        all_projects=query.last("all_projects") in {"1", "true"},
    )


def question_of(body: QuestionBody, known: QueryFields, values: Values) -> Question:
    """Raises BadRequestError, and QueryError for a filter that is none."""
    if not body.fields:
        raise BadRequestError("fields: none is asked for; GET /fleetlight/query/fields tells which there are")
    if body.marker is not None and not is_uuid(body.marker):
        raise BadRequestError(f"marker: '{body.marker}' is no uuid")
    expression = parse_filter(body.filter) if isinstance(body.filter, str) else body.filter
    order = [_sort_key(text, known, values) for text in body.order or ["name"]]
    return Question(
        body.fields, to_filter(expression, known), order, body.limit, body.marker, all_projects=body.all_projects
    )


def _sort_key(text: str, known: QueryFields, values: Values) -> SortKey:
    """`name`, or `-name` for the other direction. Names of hosts and instances are in nice order."""
    name = text.removeprefix("-")
    field = known.get(name)
    stored = values[name].stored if field is not None else None
    if field is None or stored is None or field.kind is Kind.OTHER:
        raise BadRequestError(f"order: '{name}' is no field to sort by")
    is_of_names = FieldFlag.HOSTNAME in getattr(field, "flags", FieldFlag.NONE)
    return SortKey(
        stored,
        Direction.DESC if text.startswith("-") else Direction.ASC,
        Collation.NICE if is_of_names else Collation.CODE_POINT,
    )


def listed(text: str | None) -> list[str]:
    """The names of a list with commas between them."""
    return [] if text is None else [name.strip() for name in text.split(",")]


def _limit(text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS:
        raise BadRequestError(f"limit: '{text}' is no whole number of at most {_DIGITS} digits")
    return int(text)
