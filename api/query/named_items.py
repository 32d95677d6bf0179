"""Lookups of items by name: the filters that are lookups, and their results (contracts/ganeti-query, 5)."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar, cast

from fleetlight.api.http.errors import BadRequestError
from fleetlight.query.expressions import MAX_LEVELS, named_one_of, one_of
from fleetlight.query.filter_text import Expression
from fleetlight.query.filters import EVERYTHING, Filter, any_of
from fleetlight.resources.query_fields.definitions import FieldFlag, QueryField, QueryFields, ResultStatus
from fleetlight.views.query2.projection import Cells

_EQUAL = ("=", "==")
_OF_COMPARISON = 2
# Types with lookups; for other types a missing item is no error.
_KINDS = {"instance": "Instance", "node": "Node", "group": "NodeGroup", "network": "Network", "export": "Node"}
CALLED_BY_OTHERS = {"export": "node"}
"""Types whose items have the names of items of another type; only the other item has to exist."""
_JOB = "job"
UNSURE = "part of the fleet does not answer"
T = TypeVar("T")

_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


class ItemLookupError(Exception):
    """A name matches no item, or several; the text says which.

    is_certain: whether every cell that may have the item has answered.
    """

    def __init__(self, message: str, *, is_certain: bool) -> None:
        super().__init__(message if is_certain else f"{message}, and {UNSURE}")
        self.is_certain = is_certain


def names_in(expression: Expression | None, known: QueryFields) -> Sequence[str | int] | None:
    """Return the names in an expression that is a lookup: only equalities with names, and OR of them.

    None for every other expression, and for types without lookups.
    """
    if known.name not in _KINDS and known.name != _JOB:
        return None
    names: list[str | int] = []
    return names if _add_names(names, expression, known.name_field, MAX_LEVELS - 1) and names else None


def _add_names(names: list[str | int], expression: object, name_field: str, levels: int) -> bool:
    """Whether an expression is a lookup; adds its names to the list."""
    if not isinstance(expression, list) or not expression:
        return False
    operator, *operands = expression
    if operator == "|":
        return levels > 0 and all(_add_names(names, operand, name_field, levels - 1) for operand in operands)
    if operator in _EQUAL and len(operands) == _OF_COMPARISON and operands[0] == name_field:
        names.append(operands[1])
        return isinstance(operands[1], str | int)
    return False


def columns_of(known: QueryFields, names: Sequence[str]) -> Sequence[str]:
    """Return the columns that `looked_up` needs to return the fields `names`."""
    return [known.name_field, *["uuid"] * ("uuid" in known), *names]


def filter_of(known: QueryFields, wanted: Sequence[str | int]) -> Filter:
    """Make the filter for the items that `looked_up` needs.

    Raises ExpressionError for a malformed name, and BadRequestError for a malformed job number.
    """
    if known.name == _JOB:
        for number in wanted:
            if isinstance(number, int) and number < 0:
                raise BadRequestError(f"Invalid value for job ID: {number}")
        return one_of(field_of(known, known.name_field), wanted)
    uuids = uuids_in(known, wanted)
    of_names = named_one_of(field_of(known, known.name_field), wanted)
    return any_of(of_names, named_one_of(field_of(known, "uuid"), uuids)) if uuids else of_names


def uuids_in(known: QueryFields, wanted: Sequence[str | int]) -> Sequence[str]:
    """Return the names that may be uuids of items."""
    return [name.lower() for name in wanted if "uuid" in known and isinstance(name, str) and is_uuid(name)]


def is_uuid(name: str) -> bool:
    """Whether the name has the form of a uuid."""
    return _UUID.fullmatch(name) is not None


class NamedItem(NamedTuple, Generic[T]):
    """An item found by `filter_of`: the values of the first columns, and the rest."""

    name: Any
    uuid: Any
    rest: T


def found_of(known: QueryFields, cells: Cells, rest: T) -> NamedItem[T]:
    """Make a found item. cells: the values of the first columns of `columns_of`."""
    return NamedItem(cells[0][1], cells[1][1] if "uuid" in known else None, rest)


def looked_up(
    known: QueryFields,
    wanted: Sequence[str | int],
    found: Sequence[NamedItem[T]],
    lost: Callable[[str | int], T],
    *,
    is_certain: bool,
    finds_uuids: bool = False,
) -> list[T]:
    """Return the items named `wanted`, in that order and as often; jobs only once.

    found: the items that match `filter_of`. lost: makes the substitute of a missing job. is_certain: whether `found` is
    complete. finds_uuids: whether a uuid finds an item whose name is not wanted. Takes time linear in both sequences.
    Raises ItemLookupError when a name matches no item, or several.
    """
    if known.name == _JOB:
        # Each cell has job numbers of its own; the first job with a number counts.
        by_number = {item.name: item.rest for item in reversed(found)}
        return [by_number[number] if number in by_number else lost(number) for number in dict.fromkeys(wanted)]
    called = _Called(known, wanted, found, is_certain=is_certain, finds_uuids=finds_uuids)
    return [item for name in wanted for item in called.by(str(name).lower(), str(name))]


class _Called(Generic[T]):
    """Items by their names and abbreviations."""

    def __init__(
        self,
        known: QueryFields,
        wanted: Sequence[str | int],
        found: Sequence[NamedItem[T]],
        *,
        is_certain: bool,
        finds_uuids: bool,
    ) -> None:
        self._known = known
        self._is_certain = is_certain
        self._by_name: dict[str, list[T]] = {}
        for item in found:
            if item.name is not None:  # an item without a name was found by uuid
                self._by_name.setdefault(str(item.name).lower(), []).append(item.rest)
        self._full: dict[str, list[str]] = {}
        is_abbreviated = FieldFlag.HOSTNAME in field_of(known, known.name_field).flags
        for full in self._by_name if is_abbreviated else ():
            for number in (number for number, character in enumerate(full) if character == "."):
                self._full.setdefault(full[:number], []).append(full)
        # Ganeti finds an item by uuid only if the expression has its name, too.
        names = {str(name).lower() for name in wanted}
        asked = names | {full for short in names for full in self._full.get(short, ())}
        self._by_uuid = {
            item.uuid: [item.rest] if finds_uuids or str(item.name).lower() in asked else []
            for item in found
            if item.uuid is not None
        }

    def by(self, wanted: str, name: str) -> Sequence[T]:
        """Return the items named `wanted`, else those of the only name that it abbreviates. name: as written.

        Raises ItemLookupError.
        """
        if wanted in self._by_name:
            return self._by_name[wanted]
        if wanted in self._by_uuid:
            return self._by_uuid[wanted]
        full = self._full.get(wanted, ())
        if len(full) > 1:
            raise ItemLookupError(f"{kind_of(self._known)} name {name} has multiple matches", is_certain=True)
        if not full and self._known.name in CALLED_BY_OTHERS:
            return ()
        if not full:
            raise ItemLookupError(f"{kind_of(self._known)} name {name} not found", is_certain=self._is_certain)
        return self._by_name[full[0]]


def kind_of(known: QueryFields) -> str:
    """Return the word for items in Ganeti's errors."""
    return _KINDS.get(known.name, known.name.capitalize())


def lost_job(known: QueryFields, names: Sequence[str], number: str | int, *, is_certain: bool) -> Cells:
    """Make the row of a missing job. is_certain: see `looked_up`."""
    missing = ResultStatus.UNAVAILABLE if is_certain else ResultStatus.NO_DATA
    of_known: Mapping[str, tuple[int, Any]] = {"id": (int(ResultStatus.NORMAL), number)}
    unknown = (int(ResultStatus.UNKNOWN), None)
    return [of_known.get(name, (int(missing), None)) if name in known else unknown for name in names]


def called_or_identified(known: QueryFields, items: Sequence[str | int] | None) -> Filter:
    """Make the filter of the old calls: items by names, abbreviations or uuids; all items for None or no names.

    Raises ExpressionError for a malformed name.
    """
    if not items:
        return EVERYTHING
    fields = [known.name_field] + ["uuid"] * ("uuid" in known and known.name_field != "uuid")
    texts = list(map(str, items))
    return any_of(*(named_one_of(field_of(known, field), texts) for field in fields))


def field_of(known: QueryFields, name: str) -> QueryField:
    """Return a field that is known to exist."""
    return cast(QueryField, known[name])
