"""What a request for changes asks for, checked against what its caller may see."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from fleetlight.api.caller import Caller
from fleetlight.api.http.errors import BadRequestError
from fleetlight.api.http.query_string import QueryString
from fleetlight.api.query.item_query import MAX_FIELDS, ItemQuery, flag, listed_up_to, query_of, refuse_unknown
from fleetlight.api.query.visible_fields import visible_fields
from fleetlight.query.filters import leaves
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.resources.query_fields.definitions import QueryFields
from fleetlight.views.query2.catalog import values_of

PARAMETERS = ("what", "fields", "filter", "after", "wait", "all_projects")
MAX_WAIT_S = 60.0
_SECONDS = re.compile(r"[0-9]{1,4}(\.[0-9]{1,6})?")


@dataclass(frozen=True, slots=True)
class ChangesQuery:
    """question: which items, and which of their fields. after: a cursor; None for a new one. wait_s: for a change."""

    question: ItemQuery
    after: str | None
    wait_s: float


def filter_text(query: QueryString) -> str | None:
    """The text of the filter, unread."""
    return query.last("filter") or None


def changes_query(query: QueryString, caller: Caller) -> ChangesQuery:
    """Raises BadRequestError, NotFoundError and QueryError."""
    refuse_unknown(query, PARAMETERS)
    known = visible_fields(query.last("what") or INSTANCE_FIELDS.name, caller)
    if known.name != INSTANCE_FIELDS.name:
        raise BadRequestError(f"what: changes of items of type '{known.name}' are not followed; of 'instance' they are")
    names = listed_up_to(MAX_FIELDS, "fields", query) if query.last("fields") else []
    question = query_of(known, names, filter_text(query), all_projects=flag(query, "all_projects"))
    _refuse_unfollowed("fields", [name for name in names if name in known], known)
    _refuse_unfollowed("filter", [leaf.field for leaf in leaves(question.filter)], known)
    return ChangesQuery(question, query.last("after") or None, _wait_s(query.last("wait")))


def _refuse_unfollowed(parameter: str, names: Sequence[str], known: QueryFields) -> None:
    """Refuse what changes with the configuration of a cell, and not with the instance."""
    values = values_of(known.name)
    unfollowed = [name for name in dict.fromkeys(names) if values[name].of_cell]
    if unfollowed:
        raise BadRequestError(
            f"{parameter}: {', '.join(unfollowed)}: made of what is configured in the cell too, whose changes are not "
            "followed; ask /fleetlight/query"
        )


def _wait_s(text: str | None) -> float:
    if text is None:
        return 0.0
    if not _SECONDS.fullmatch(text) or float(text) > MAX_WAIT_S:
        raise BadRequestError(f"wait: '{text[:100]}' is no number of seconds from 0 to {MAX_WAIT_S:g}")
    return float(text)
