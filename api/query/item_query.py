"""Queries parsed from the parameters of a GET or the body of a POST, and checked against the caller's rights."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from pydantic import Field

from fleetlight.api.bodies.request_body import RequestModel
from fleetlight.api.http.errors import BadRequestError
from fleetlight.api.http.query_string import QueryString
from fleetlight.api.limits.large_bodies import parts_in
from fleetlight.api.shared.times import moment_in
from fleetlight.query.expressions import at_moment, conditions_in, to_filter
from fleetlight.query.filter_text import Expression, parse_filter
from fleetlight.query.filters import And, Filter, Leaf, Matches, Negation, Or, leaves
from fleetlight.query.operators.anything import Finds
from fleetlight.query.sort import Collation, Direction, SortKey, SortOrder
from fleetlight.resources.clock import system_clock
from fleetlight.resources.errors import FilterValueError
from fleetlight.resources.fields import Field as StoredField
from fleetlight.resources.fields import Kind, from_microseconds
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.resources.query_fields.definitions import FieldFlag, QueryField, QueryFields
from fleetlight.resources.suggestions import did_you_mean
from fleetlight.views.query2.catalog import values_of
from fleetlight.views.query2.items import CELL

MAX_FIELDS = 200
MAX_COLUMNS = 1000
"""More than the fields of any item type; Ganeti's clients ask for all of them."""
MAX_REPEATS = 4
MAX_CONDITIONS = 250
MAX_PATTERNS = 10
MAX_ORDER = 8
_MAX_BY = 4
_PARAMETERS = frozenset({"what", "fields", "filter", "order", "limit", "marker", "all_projects", "as_of"})
_PARAMETERS_OF_COUNTS = frozenset({"what", "by", "filter", "all_projects", "as_of"})
_YES, _NO = ("1", "true"), ("0", "false")
_DIGITS = 9
# Parsing a condition of a text takes as long as three parts of a list.
_TEXT_OF_PART = 4

_encode = msgspec.json.Encoder().encode

Wanted = Expression | str | Filter | None
"""A filter: an expression, its text, or its tree."""


class QueryBody(RequestModel):
    """The body of `POST /fleetlight/query`.

    filter: a list with its operator first, or the text of a filter. as_of: a time with its zone, as of ISO 8601.
    """

    what: str
    fields: Annotated[list[str], Field(max_length=MAX_FIELDS)]
    filter: list[Any] | str | None = None
    order: Annotated[list[str], Field(max_length=MAX_ORDER)] = Field(default_factory=list)
    limit: Annotated[int, Field(ge=1)] | None = None
    marker: str | None = None
    all_projects: bool = False
    as_of: str | None = None


class CountBody(RequestModel):
    """The body of `POST /fleetlight/query/counts`; see QueryBody."""

    what: str
    by: list[str] = Field(default_factory=list)
    filter: list[Any] | str | None = None
    all_projects: bool = False
    as_of: str | None = None


@dataclass(frozen=True, slots=True)
class ItemQuery:
    """A query. known: the fields that the caller may use. names: fields of the answer's columns, in order.

    filter: on the fields of Query2. order: by stored fields. limit: number of rows; None for a full page. after: the
    position after which the page begins, values of the order's keys. all_projects: whether to include other projects.
    as_of: the moment of the answer, microseconds; None for now.
    by_cell: the order of cells by name, each with its instances in `order`; then a position begins with the name. None
    for instances of all cells in one order, and for items of other types.
    """

    known: QueryFields
    names: Sequence[str]
    filter: Filter
    order: SortOrder
    limit: int | None
    after: tuple[Any, ...] | None
    all_projects: bool
    as_of: int | None = None
    by_cell: SortKey | None = None

    @property
    def rows_move(self) -> bool:
        """Whether a row may change its place in the order while the query is answered."""
        return self.known.name == INSTANCE_FIELDS.name and self.as_of is None and not self.order.keeps_places

    def comparable(self, position: Sequence[Any]) -> tuple[Any, ...]:
        """Return a sort key of a position, in the order of the rows."""
        if self.by_cell is None:
            return self.order.comparable(position)
        return self.by_cell.comparable(position[0]), *self.order.comparable(position[1:])


@dataclass(frozen=True, slots=True)
class CountQuery:
    """A query for counts. known: the fields that the caller may use. by: fields of the grouping. See ItemQuery."""

    known: QueryFields
    by: Sequence[str]
    filter: Filter
    all_projects: bool
    as_of: int | None = None


def body_of_query(query: QueryString, parameters: Collection[str] = _PARAMETERS) -> QueryBody:
    """Convert the parameters of a GET to the body of a POST.

    parameters: the permitted ones; others raise BadRequestError.
    """
    refuse_unknown(query, parameters)
    return QueryBody(
        what=query.last("what") or "instance",
        fields=listed_up_to(MAX_FIELDS, "fields", query),
        filter=query.last("filter") or None,
        order=listed_up_to(MAX_ORDER, "order", query),
        limit=number_in("limit", query),
        marker=query.last("marker"),
        all_projects=flag(query, "all_projects"),
        as_of=query.last("as_of"),
    )


def count_body_of_query(query: QueryString) -> CountBody:
    """As `body_of_query`, for counts. Raises BadRequestError."""
    refuse_unknown(query, _PARAMETERS_OF_COUNTS)
    return CountBody(
        what=query.last("what") or "instance",
        by=listed_up_to(_MAX_BY, "by", query),
        filter=query.last("filter") or None,
        all_projects=flag(query, "all_projects"),
        as_of=query.last("as_of"),
    )


def counting_of(body: CountBody, known: QueryFields) -> CountQuery:
    """Check a body of counts; returns the query. Raises BadRequestError, and QueryError for a malformed filter."""
    values = values_of(known.name)
    if len(body.by) > _MAX_BY:
        raise BadRequestError(f"by: {len(body.by)} of them; there may be {_MAX_BY}")
    refuse_unknown_fields("by", body.by, known)
    if len({values[name].stored or values[name].make for name in body.by}) < len(body.by):
        raise BadRequestError("by: a field is there twice")
    moment = moment_of(body.as_of, known)
    kept = _filter_of(body.filter, known, system_clock() if moment is None else moment)
    return CountQuery(known, body.by, kept, all_projects=body.all_projects, as_of=moment)


def refuse_unknown_fields(parameter: str, names: Iterable[str], known: QueryFields) -> None:
    """Raise BadRequestError if a name is no known field. parameter: the name of the parameter for the message."""

    for name in names:
        if name not in known:
            raise BadRequestError(
                f"{parameter}: there is no field '{name}' of '{known.name}'{did_you_mean(name, known)}"
            )


def moment_of(text: str | None, known: QueryFields) -> int | None:
    """Parse `as_of`; returns microseconds, or None for now. Raises BadRequestError for a malformed moment."""
    if text is None:
        return None
    if known.name != INSTANCE_FIELDS.name:
        raise BadRequestError(f"as_of: only instances are known as they were, and not items of type '{known.name}'")
    return moment_in("as_of", text)


def _filter_of(expression: Wanted, known: QueryFields, moment: int | None = None) -> Filter:
    """Build the tree of a filter. Raises BadRequestError for a filter that is too costly for stores.

    moment: the reference of times such as '10m ago'; None refuses them. The cost is estimated before the tree is built:
    a text has fewer conditions than characters.
    """
    if isinstance(expression, And | Or | Leaf):
        return expression
    listed = parse_filter(expression) if isinstance(expression, str) else expression
    _refuse_costs(*((0, 0) if listed is None else conditions_in(listed, known)))
    node = to_filter(listed if moment is None else at_moment(moment, listed, known), known)
    # For some fields a membership becomes a pattern.
    _refuse_costs(0, sum(isinstance(_plain(leaf), Matches | Finds) for leaf in leaves(node)))
    return node


def _refuse_costs(conditions: int, patterns: int) -> None:
    if conditions > MAX_CONDITIONS:
        raise BadRequestError(f"filter: {conditions} conditions; there may be {MAX_CONDITIONS}")
    if patterns > MAX_PATTERNS:
        raise BadRequestError(f"filter: {patterns} patterns; there may be {MAX_PATTERNS}")


def size_of(expression: Wanted) -> int:
    """Count the parts of a decoded expression, or of its text (fleetlight.api.limits.large_bodies)."""
    if isinstance(expression, str):
        return len(expression) // _TEXT_OF_PART
    return parts_in(_encode(expression)) if isinstance(expression, list) else 0


def _plain(leaf: Leaf) -> Leaf:
    return leaf.negated() if isinstance(leaf, Negation) else leaf


def query_of(
    known: QueryFields,
    names: Sequence[str],
    expression: Wanted = None,
    *,
    order: Sequence[str] = (),
    limit: int | None = None,
    marker: str | None = None,
    all_projects: bool = False,
    as_of: int | None = None,
    now: int | None = None,
) -> ItemQuery:
    """Make the query for the fields `names` of the items that match an expression, its text or its tree.

    order: names of fields; by default the items' names. now: the moment of the query, unless as_of sets another; None
    for a query that runs on, such as a feed of changes. For the rest see ItemQuery.
    Raises BadRequestError, and QueryError for a malformed filter.
    """
    values = values_of(known.name)
    check_columns(names)
    for _, times in Counter(values[name].make if name in known else name for name in names).most_common(1):
        if times > MAX_REPEATS:
            raise BadRequestError(f"fields: one is there {times} times; it may be {MAX_REPEATS} times")
    by_cell = None
    if known.name == INSTANCE_FIELDS.name and CELL in known and order and order[0] in (CELL, f"-{CELL}"):
        by_cell = SortKey(CELL, Direction.ASC if order[0] == CELL else Direction.DESC)
        order = order[1:]
    keys = _order(order or [known.name_field], known)
    after = None if marker is None else position_in(marker, keys, has_cell=by_cell is not None)
    kept = _filter_of(expression, known, now if as_of is None else as_of)
    return ItemQuery(known, names, kept, keys, limit, after, all_projects=all_projects, as_of=as_of, by_cell=by_cell)


def check_columns(names: Sequence[str]) -> None:
    """Raise BadRequestError for too many fields."""
    if len(names) > MAX_COLUMNS:
        raise BadRequestError(f"fields: {len(names)} of them; there may be {MAX_COLUMNS}")


def marker_of(position: Sequence[Any]) -> str:
    """Make the marker of a row from its position in the order, so that it means the same on every route."""
    return urlsafe_b64encode(_encode(position)).decode().rstrip("=")


def position_in(marker: str, order: SortOrder, *, has_cell: bool = False) -> tuple[Any, ...]:
    """Parse a marker that `marker_of` made for this order. Raises BadRequestError for any other text.

    has_cell: whether the name of a cell precedes the position; only nulls after it mean the beginning of that cell.
    """
    cell: list[str] = []
    try:
        values = msgspec.json.decode(urlsafe_b64decode(marker + "=" * (-len(marker) % 4)), type=list[Any])
        if has_cell:
            cell = msgspec.convert(values[:1], list[str])
            values = values[1:]
        for key, value in zip(order.keys, values, strict=True):
            field = order.item_type[key.field]
            if value is not None and field.kind is not Kind.OTHER:
                field.stored(_from_stored(field, value))
    except (ValueError, TypeError, OverflowError, msgspec.MsgspecError, FilterValueError):
        values = []
    if not values or (values[-1] is None and not (cell and values == [None] * len(values))):
        raise BadRequestError(f"marker: '{marker[:100]}' is none that an answer in this order had")
    return *cell, *values


def _from_stored(field: StoredField, value: Any) -> Any:
    if field.kind is not Kind.TIMESTAMP:
        return value
    if not isinstance(value, int):
        raise TypeError
    return from_microseconds(value)


def _order(names: Sequence[str], known: QueryFields) -> SortOrder:
    """Make the order by these fields: of instances by stored fields, of other items by those of their type."""
    keys = [_sort_key(name, known) for name in names]
    if known.name == INSTANCE_FIELDS.name:
        return SortOrder.of(INSTANCE_FIELDS, keys)
    # Add the cell, since two cells may have items of the same name.
    last = [SortKey(name) for name in (known.unique, CELL) if name not in {key.field for key in keys}]
    return SortOrder(known, (*keys, *last))


def default_order(known: QueryFields) -> SortOrder:
    """Return the default order in which items are read: by their immutable keys."""
    return SortOrder.of(INSTANCE_FIELDS, ()) if known.name == INSTANCE_FIELDS.name else _order([], known)


def sorted_by(name: str, known: QueryFields) -> str | None:
    """Return the field by which items are sorted for field `name`; None if they cannot be sorted by it.

    For instances it is a stored field, or CELL, which is not stored: see `ItemQuery.by_cell`.
    """
    field = known.get(name)
    if not isinstance(field, QueryField):
        return None
    if field.kind is Kind.OTHER and FieldFlag.SPLIT_TIMESTAMP not in field.flags and name != known.name_field:
        return None
    return values_of(known.name)[name].stored if known.name == INSTANCE_FIELDS.name and name != CELL else name


def _sort_key(text: str, known: QueryFields) -> SortKey:
    """Parse `name`, or `-name` for descending. Names of items and hosts sort in nice order."""
    name = text.removeprefix("-")
    stored, field = sorted_by(name, known), known.get(name)
    if stored is None or not isinstance(field, QueryField):
        raise BadRequestError(f"order: '{name}' is no field to sort by")
    if name == CELL and known.name == INSTANCE_FIELDS.name:
        raise BadRequestError(f"order: '{name}' sorts instances only as the first field")
    is_of_names = name == known.name_field or FieldFlag.HOSTNAME in field.flags
    return SortKey(
        stored,
        Direction.DESC if text.startswith("-") else Direction.ASC,
        Collation.NICE if is_of_names and field.kind is not Kind.NUMBER else Collation.CODE_POINT,
    )


def refuse_unknown(query: QueryString, known: Collection[str]) -> None:
    """Raise BadRequestError for a parameter that is not one of `known`."""
    unknown = sorted(set(query) - set(known))
    if unknown:
        raise BadRequestError(f"there is no parameter '{unknown[0]}'; there is: {', '.join(sorted(known))}")


def flag(query: QueryString, name: str) -> bool:
    """Whether the parameter `name` is present and true. Raises BadRequestError for any value but true or false."""
    text = query.last(name)
    if text is not None and text not in _YES + _NO:
        raise BadRequestError(f"{name}: '{text}' is neither true nor false")
    return text in _YES


def listed_up_to(most: int, name: str, query: QueryString) -> list[str]:
    """Return the names in the parameter `name`. Raises BadRequestError for more than `most`."""
    names = listed(query.last(name))
    if len(names) > most:
        raise BadRequestError(f"{name}: {len(names)} of them; there may be {most}")
    return names


def listed(text: str | None) -> list[str]:
    """Split a list of names at commas."""
    return [] if text is None else [name.strip() for name in text.split(",")]


def number_in(name: str, query: QueryString) -> int | None:
    """Return the number, at least 1, in the parameter `name`, or None. Raises BadRequestError for other values."""
    text = query.last(name)
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or len(text) > _DIGITS:
        raise BadRequestError(f"{name}: '{text}' is no whole number of at most {_DIGITS} digits")
    if not int(text):
        raise BadRequestError(f"{name}: 0; it is at least 1")
    return int(text)
