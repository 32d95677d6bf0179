"""Items that are asked for by their names: lookups, and the old calls (contracts/ganeti-query, 5 and 9)."""

from collections.abc import Mapping, Sequence
from typing import Any

from api.compute.protocol.proof import AskedFreshness
from api.identity.caller import Caller
from api.query.answering import Answerer
from api.query.question import question_of
from api.query.visible_fields import visible_fields
from query.filter_text import Expression
from resources.query_fields.definitions import CellStatus, FieldFlag, QueryField, QueryFields
from views.query2.projection import Cells, cells_of

_EQUAL = {"=", "=="}
_KINDS = {"group": "NodeGroup", "export": "Node"}
_UNAVAILABLE = (int(CellStatus.UNAVAILABLE), None)


class ItemLookupError(Exception):
    """A name of no item, or of several; the text says which."""


class UnknownFieldsError(Exception):
    """An old call asks for fields that do not exist; the text names them."""


class NamedItems:
    """Asks the engine of queries for whole answers, on behalf of one caller."""

    def __init__(self, answerer: Answerer, caller: Caller) -> None:
        self._answerer = answerer
        self._caller = caller

    async def rows(
        self, item_type: str, names: Sequence[str], expression: Expression | None, fresh: AskedFreshness
    ) -> list[Cells]:
        """The cells of all items that an expression lets pass. An expression of names alone is a lookup.

        A lookup gives the items in the order in which they were named, as often as they were. Raises ItemLookupError,
        QueryError, BadRequestError.
        """
        known = visible_fields(item_type, self._caller)
        wanted = names_in(expression, known.name_field)
        if not wanted:
            return await self._ask(known, names, expression, fresh)
        found = await self._ask(known, [known.name_field, *names], expression, fresh)
        return looked_up(known, names, wanted, found)

    async def values(
        self, item_type: str, names: Sequence[str], items: Sequence[str | int] | None, fresh: AskedFreshness
    ) -> list[list[Any]]:
        """The old format: values, null for every status but normal; of all items, or those called or identified so.

        Raises UnknownFieldsError, QueryError, BadRequestError.
        """
        known = visible_fields(item_type, self._caller)
        unknown = [name for name in names if name not in known]
        if unknown:
            raise UnknownFieldsError(f"Unknown output fields selected: {', '.join(unknown)}")
        if known.name_field == "id" and items:
            rows = await self.rows(item_type, names, ["|", *(["==", "id", int(item)] for item in items)], fresh)
        else:
            rows = await self._ask(known, names, _named_or_identified(known, items), fresh)
        return [[value for _, value in cells] for cells in rows]

    async def _ask(
        self, known: QueryFields, names: Sequence[str], expression: Expression | None, fresh: AskedFreshness
    ) -> list[Cells]:
        question = question_of(known, names, expression, all_projects=self._caller.is_admin)
        return [
            cells_of(cells)
            async for batch in self._answerer.batches(question, self._caller, fresh)
            for _, cells in batch.rows
        ]


def looked_up(known: QueryFields, names: Sequence[str], wanted: Sequence[Any], found: Sequence[Cells]) -> list[Cells]:
    """The items called `wanted`, in that order and as often.

    found: the cells of those that there are, their names before those of the fields `names`. Raises ItemLookupError.
    """
    if known.name_field == "id":
        by_number = {cells[0][1]: cells[1:] for cells in found}
        return [by_number.get(number) or _lost_job(known, names, number) for number in wanted]
    return [cells for name in wanted for cells in _called(known, str(name), found)]


def names_in(expression: Expression | None, name_field: str) -> list[Any] | None:
    """The names of an expression that is of equalities with names, and of OR of them, alone; None of any other."""
    match expression:
        case ["|", *terms]:
            parts = [names_in(term, name_field) for term in terms]
            return None if not parts or None in parts else [name for part in parts for name in part or ()]
        case [operator, field, str() | int() as name] if operator in _EQUAL and field == name_field:
            return [name]
    return None


def _called(known: QueryFields, name: str, found: Sequence[Cells]) -> list[Cells]:
    """The items of that name, without the column of names before; else the one that it abbreviates."""
    exact = [cells[1:] for cells in found if str(cells[0][1]).lower() == name.lower()]
    if exact:
        return exact
    fits = [cells for cells in found if _has_flag(known) and str(cells[0][1]).lower().startswith(f"{name.lower()}.")]
    if len(fits) > 1:
        raise ItemLookupError(f"{_kind(known)} name {name} has multiple matches")
    if not fits:
        raise ItemLookupError(f"{_kind(known)} name {name} not found")
    return [fits[0][1:]]


def _kind(known: QueryFields) -> str:
    """In the words of Ganeti's errors."""
    return _KINDS.get(known.name) or known.name.capitalize()


def _has_flag(known: QueryFields) -> bool:
    field = known[known.name_field]
    return isinstance(field, QueryField) and FieldFlag.HOSTNAME in field.flags


def _lost_job(known: QueryFields, names: Sequence[str], number: int) -> Cells:
    of_known: Mapping[str, tuple[int, Any]] = {"id": (int(CellStatus.NORMAL), number)}
    unknown = (int(CellStatus.UNKNOWN), None)
    return [of_known.get(name, _UNAVAILABLE) if name in known else unknown for name in names]


def _named_or_identified(known: QueryFields, items: Sequence[str | int] | None) -> Expression | None:
    if not items:
        return None
    fields = [known.name_field] + ["uuid"] * ("uuid" in known and known.name_field != "uuid")
    return ["|", *(["==", field, str(item)] for item in items for field in fields)]
