"""Items that are asked for by their names: which filter is a lookup, and what it finds (contracts/ganeti-query, 5)."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from fleetlight.api.http.errors import BadRequestError
from fleetlight.query.expressions import MAX_LEVELS
from fleetlight.query.filter_text import Expression, of_named
from fleetlight.resources.query_fields.definitions import CellStatus, FieldFlag, QueryField, QueryFields
from fleetlight.views.query2.projection import Cells

_EQUAL = ("=", "==")
# What is looked up; items of other types that are not there are no rows, and no error.
_KINDS = {"instance": "Instance", "node": "Node", "group": "NodeGroup", "network": "Network"}
_JOB = "job"
UNSURE = "part of the fleet does not answer"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


class ItemLookupError(Exception):
    """A name of no item, or of several; the text says which.

    is_certain: whether every cell was asked that may have it.
    """

    def __init__(self, message: str, *, is_certain: bool) -> None:
        super().__init__(message if is_certain else f"{message}, and {UNSURE}")
        self.is_certain = is_certain


def names_in(expression: Expression | None, known: QueryFields) -> Sequence[str | int] | None:
    """The names of an expression that looks items up: of equalities with names, and of OR of them, alone.

    None for every other expression, and for items that are not looked up.
    """
    if known.name not in _KINDS and known.name != _JOB:
        return None
    return _names(expression, known.name_field, MAX_LEVELS - 1) or None


def _names(expression: Expression | None, name_field: str, levels: int) -> list[str | int] | None:
    match expression:
        case ["|", *terms] if levels:
            parts = [_names(term, name_field, levels - 1) for term in terms]
            return None if None in parts else [name for part in parts for name in part or ()]
        case [operator, field, str() | int() as name] if operator in _EQUAL and field == name_field:
            return [name]
    return None


def columns_of(known: QueryFields, names: Sequence[str]) -> Sequence[str]:
    """The columns that `looked_up` needs of each item, to tell of the fields `names`."""
    return [known.name_field, *["uuid"] * _has_uuid(known), *names]


def expression_of(known: QueryFields, wanted: Sequence[str | int]) -> Expression:
    """The filter for the items that `looked_up` looks at. Raises BadRequestError for what is no number of a job."""
    if known.name == _JOB:
        for number in wanted:
            if isinstance(number, int) and number < 0:
                raise BadRequestError(f"Invalid value for job ID: {number}")
        return ["|", *(["==", known.name_field, number] for number in dict.fromkeys(wanted))]
    names = list(dict.fromkeys(wanted))
    uuids = [name.lower() for name in names if _has_uuid(known) and isinstance(name, str) and _UUID.fullmatch(name)]
    return ["|", _one_of(known.name_field, names), *[_one_of("uuid", uuids)] * bool(uuids)]


def _one_of(name_field: str, names: Sequence[str | int]) -> Expression:
    """The filter for what has one of these names."""
    return of_named(name_field, ["|", *(["==", name_field, name] for name in names)])


def looked_up(
    known: QueryFields,
    names: Sequence[str],
    wanted: Sequence[str | int],
    found: Sequence[Cells],
    *,
    is_certain: bool,
) -> list[Cells]:
    """The items called `wanted`, in that order and as often; of jobs each once.

    found: the rows that `expression_of` finds, with the columns of `columns_of`. is_certain: whether they are all.
    Raises ItemLookupError.
    """
    if known.name == _JOB:
        # Cells number their jobs each by themselves; the first one with a number is meant.
        by_number = {cells[0][1]: cells[1:] for cells in reversed(found)}
        missing = CellStatus.UNAVAILABLE if is_certain else CellStatus.NO_DATA
        return [by_number.get(number) or _lost_job(known, names, number, missing) for number in dict.fromkeys(wanted)]
    return [cells for name in wanted for cells in _called(known, str(name), found, is_certain=is_certain)]


def _called(known: QueryFields, name: str, found: Sequence[Cells], *, is_certain: bool) -> list[Cells]:
    """The items of that name, without the columns before; else those of the one name that it abbreviates."""
    before = len(columns_of(known, ()))
    called: dict[str, list[Cells]] = {}
    for cells in found:
        if cells[0][1] is not None:  # one without a name is here for its uuid
            called.setdefault(str(cells[0][1]).lower(), []).append(cells[before:])
    wanted = name.lower()
    if wanted in called:
        return called[wanted]
    if _has_uuid(known) and any(cells[1][1] == wanted for cells in found):
        # A uuid names an item, and is not its name, which the expression asks for.
        return []
    fits = [full for full in called if _is_abbreviated(known) and full.startswith(f"{wanted}.")]
    if len(fits) > 1:
        raise ItemLookupError(f"{kind_of(known)} name {name} has multiple matches", is_certain=True)
    if not fits:
        raise ItemLookupError(f"{kind_of(known)} name {name} not found", is_certain=is_certain)
    return called[fits[0]]


def kind_of(known: QueryFields) -> str:
    """What items are called in the words of Ganeti's errors."""
    return _KINDS.get(known.name, known.name.capitalize())


def _has_uuid(known: QueryFields) -> bool:
    return "uuid" in known


def _is_abbreviated(known: QueryFields) -> bool:
    field = known[known.name_field]
    return isinstance(field, QueryField) and FieldFlag.HOSTNAME in field.flags


def _lost_job(known: QueryFields, names: Sequence[str], number: str | int, missing: CellStatus) -> Cells:
    of_known: Mapping[str, tuple[int, Any]] = {"id": (int(CellStatus.NORMAL), number)}
    unknown = (int(CellStatus.UNKNOWN), None)
    return [of_known.get(name, (int(missing), None)) if name in known else unknown for name in names]


def called_or_identified(known: QueryFields, items: Sequence[str | int] | None) -> Expression | None:
    """The expression of the old calls for items by their names, abbreviations or uuids; None for all items."""
    if not items:
        return None
    fields = [known.name_field] + ["uuid"] * ("uuid" in known and known.name_field != "uuid")
    return ["|", *(_one_of(field, [str(item) for item in items]) for field in fields)]
