"""The filter by which a cluster is asked: it finds all that a request means, and perhaps more; pure."""

from collections.abc import Collection

from fleetlight.cells.kinds.ganeti.client import Expression
from fleetlight.query.filters import And, Eq, Filter, In
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import Direction


def expression_of(request: PageRequest) -> Expression | None:
    """The filter of Ganeti's for the instances that a page may have; None for all."""
    terms = request.filter.terms if isinstance(request.filter, And) else (request.filter,)
    named = [set(uuids) for term in terms if (uuids := _uuids(term)) is not None]
    if named:
        return ["|", *(["==", "uuid", uuid] for uuid in sorted(set.intersection(*named)))]
    first = request.order.keys[0]
    if request.after is not None and first.field == "uuid" and first.direction is Direction.ASC:
        return [">", "uuid", request.after[0]]
    return None


def _uuids(term: Filter) -> Collection[str] | None:
    match term:
        case Eq("uuid", str(uuid)):
            return (uuid,)
        case In("uuid", values):
            return [str(value) for value in values]
    return None
