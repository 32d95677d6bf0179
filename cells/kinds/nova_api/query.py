"""Converts a filter to parameters of a compute API that find every matching server, and perhaps others; pure.

Meaning of the parameters: contracts/nova-servers, section 4.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

from fleetlight.cells.kinds.nova_api.client import Query
from fleetlight.query.filters import And, Eq, Filter, Ge, Has, In, IsNull, Ne, any_of, keys_in

_LIVE: Query = ()
DELETED_ONES = ("deleted", "True")
"""The parameter that makes the API list deleted and soft-deleted servers, and no others."""
_DELETED: Query = (DELETED_ONES,)
_CHANGED_SINCE = "changes-since"
SOFT_DELETED = "soft-delete"
_NOT_SOFT_DELETED = any_of(Ne("vm_state", SOFT_DELETED), IsNull("vm_state"))
# The API matches these exactly; a collation that ignores case finds more, never less.
_EXACT = {
    "project_id": "project_id",
    "user_id": "user_id",
    "host": "host",
    "vm_state": "vm_state",
    "task_state": "task_state",
    "image_ref": "image",
}


@dataclass(frozen=True, slots=True)
class UpstreamQuery:
    """lists: queries whose results are disjoint. uuids: the only servers that can match; None if there are others."""

    lists: tuple[Query, ...]
    uuids: tuple[str, ...] | None = None

    @property
    def is_for_all(self) -> bool:
        """Whether the lists contain every server, deleted or not."""
        return self.lists == (_LIVE, _DELETED)


def query_of(node: Filter) -> UpstreamQuery:
    """The queries that find everything that `node` may match."""
    terms = node.terms if isinstance(node, And) else (node,)
    lists = _lists(terms)
    if (uuids := keys_in(node, "uuid")) is not None:
        return UpstreamQuery(lists, tuple(sorted(uuids)))
    parameters = tuple(_parameters(terms))
    if _CHANGED_SINCE in dict(parameters) and lists == (_LIVE, _DELETED):
        # This list has them all.
        lists = (_LIVE,)
    return UpstreamQuery(tuple((*each, *parameters) for each in lists))


def _lists(terms: tuple[Filter, ...]) -> tuple[Query, ...]:
    """The lists to read: the API lists either live servers, or deleted and soft-deleted ones."""
    if Eq("deleted", True) in terms:
        return (_DELETED,)
    if Eq("deleted", False) in terms and any(map(_excludes_soft_deleted, terms)):
        return (_LIVE,)
    return (_LIVE, _DELETED)


def _excludes_soft_deleted(term: Filter) -> bool:
    match term:
        case Eq("vm_state", value):
            return value != SOFT_DELETED
        case In("vm_state", values):
            return SOFT_DELETED not in values
    return term == _NOT_SOFT_DELETED


def _parameters(terms: tuple[Filter, ...]) -> Iterator[tuple[str, str]]:
    tags = []
    for term in terms:
        match term:
            case Eq(field, str(value)) if field in _EXACT and value:
                yield _EXACT[field], value
            case Eq("locked", bool(value)):
                yield "locked", str(value)
            case Has("tags", str(value)) if value and "," not in value:
                tags.append(value)
            case Ge("updated_at", datetime() as value):
                yield _CHANGED_SINCE, value.astimezone(UTC).replace(microsecond=0).isoformat()
    if tags:
        yield "tags", ",".join(tags)
