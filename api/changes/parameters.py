"""Parameters of a request for changes, checked against its caller's rights."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fleetlight.api.caller import Caller
from fleetlight.api.http.errors import BadRequestError
from fleetlight.api.http.query_string import QueryString
from fleetlight.api.query.item_query import MAX_FIELDS, ItemQuery, flag, listed_up_to, query_of, refuse_unknown
from fleetlight.api.query.scope import choose_cells, visible_fields
from fleetlight.cells.model import Cell
from fleetlight.query.filters import leaves
from fleetlight.resources.indexed_items import INDEXED_ITEMS
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.resources.node import STORED_NODE_FIELDS
from fleetlight.resources.query_fields.definitions import QueryFields
from fleetlight.resources.query_fields.node import NODE
from fleetlight.views.query2.catalog import values_of

PARAMETERS = ("what", "fields", "filter", "after", "wait", "all_projects")
MAX_WAIT_S = 60.0
_NUMBERED_TYPES = (INSTANCE_FIELDS.name, *INDEXED_ITEMS)
_MADE_OF = {
    INSTANCE_FIELDS.name: "made of what is configured in the cell too",
    NODE.name: "made of what the node says itself, or of its instances",
}
_SECONDS = re.compile(r"[0-9]{1,4}(\.[0-9]{1,6})?")


@dataclass(frozen=True, slots=True)
class ChangesQuery:
    """A parsed request. question: items and fields. after: cursor; None for a new one. wait_s: wait for a change."""

    question: ItemQuery
    after: str | None
    wait_s: float


def filter_text(query: QueryString) -> str | None:
    """Return the text of the filter, without parsing it."""
    return query.last("filter") or None


def changes_query(query: QueryString, caller: Caller) -> ChangesQuery:
    """Parse a request. Raises BadRequestError, NotFoundError for an unknown type, and QueryError for a wrong filter."""
    refuse_unknown(query, PARAMETERS)
    known = visible_fields(query.last("what") or INSTANCE_FIELDS.name, caller)
    names = listed_up_to(MAX_FIELDS, "fields", query) if query.last("fields") else []
    question = query_of(known, names, filter_text(query), all_projects=flag(query, "all_projects"))
    return ChangesQuery(question, query.last("after") or None, _wait_s(query.last("wait")))


def what_is_asked(query: QueryString, asked: ChangesQuery, caller: Caller) -> Sequence[object]:
    """Return the question that a cursor is bound to: type, fields, text of the filter, and the caller's scope."""
    question = asked.question
    scope = None if question.all_projects else (caller.project_id, None if caller.project_id else caller.user_id)
    return question.known.name, question.names, filter_text(query), scope


def why_unnumbered(question: ItemQuery, cells: Sequence[Cell]) -> str | None:
    """Return why some changes of a question have no number, so that rows must be compared; None if all have.

    cells: those of the fleet.
    """
    known = question.known
    if known.name not in _NUMBERED_TYPES:
        return f"what: nothing numbers the changes of items of type '{known.name}'"
    named = {
        "fields": [name for name in question.names if name in known],
        "filter": [leaf.field for leaf in leaves(question.filter)],
    }
    for parameter, names in named.items():
        if unnumbered := [name for name in dict.fromkeys(names) if not _is_numbered(known, name)]:
            return f"{parameter}: {', '.join(unnumbered)}: {_MADE_OF[known.name]}, whose changes nothing numbers"
    if known.name != INSTANCE_FIELDS.name:
        only, _ = choose_cells(question.filter, known, cells, None)
        asked = [cell for cell in cells if only is None or cell.uuid in only]
        if lacking := [cell.name for cell in asked if not cell.can.numbers_changes]:
            return f"what: nothing numbers the changes of the {known.name}s of these cells: {', '.join(lacking)}"
    return None


def _is_numbered(known: QueryFields, name: str) -> bool:
    """Whether the changelog has the changes of a field."""
    if known.name == INSTANCE_FIELDS.name:
        return not values_of(known.name)[name].of_cell
    # Values that a node's agent reports live are in no changelog.
    return known[name].name in STORED_NODE_FIELDS and not values_of(known.name)[name].is_live


def _wait_s(text: str | None) -> float:
    if text is None:
        return 0.0
    if not _SECONDS.fullmatch(text) or float(text) > MAX_WAIT_S:
        raise BadRequestError(f"wait: '{text[:100]}' is no number of seconds from 0 to {MAX_WAIT_S:g}")
    return float(text)
