"""Forgotten rows, which an index need not have: instances that were deleted long ago and have not changed since.

The *horizon* is the moment, in microseconds since the epoch, before which rows are forgotten; 0 forgets none. A row
with unknown times is never forgotten.
"""

from datetime import datetime

from fleetlight.query.filters import EVERYTHING, NOTHING, And, Eq, Filter, Ge, Gt, In, IsNull, Leaf, Lt, Ne, NotIn, Or
from fleetlight.resources.fields import Scalar, from_microseconds

_DELETED, _DELETED_AT, _UPDATED_AT = "deleted", "deleted_at", "updated_at"


def forgotten(horizon: int) -> Filter:
    """The filter of forgotten rows."""
    if not horizon:
        return NOTHING
    moment = from_microseconds(horizon)
    is_old = Or((Lt(_UPDATED_AT, moment), IsNull(_UPDATED_AT)))
    return And((Eq(_DELETED, True), Lt(_DELETED_AT, moment), is_old))


def remembered(horizon: int) -> Filter:
    """The filter of all rows that are not forgotten."""
    if not horizon:
        return EVERYTHING
    moment = from_microseconds(horizon)
    is_live = (Eq(_DELETED, False), IsNull(_DELETED))
    return Or((*is_live, IsNull(_DELETED_AT), Ge(_DELETED_AT, moment), Ge(_UPDATED_AT, moment)))


def may_match_forgotten(node: Filter, horizon: int) -> bool:
    """Whether `node` may match a forgotten row; False is certain."""
    return bool(horizon) and _may_match(node, from_microseconds(horizon))


def _may_match(node: Filter, horizon: datetime) -> bool:
    match node:
        case And(terms):
            return all(_may_match(term, horizon) for term in terms)
        case Or(terms):
            return any(_may_match(term, horizon) for term in terms)
        case _:
            return _leaf_may_match(node, horizon)


def _leaf_may_match(leaf: Leaf, horizon: datetime) -> bool:
    """Whether a leaf may match a row that is deleted, and whose times are null or before the horizon."""
    match leaf:
        case Eq(field, value):
            return _may_be(field, value, horizon)
        case In(field, values):
            return any(_may_be(field, value, horizon) for value in values)
        case Ne(field, value):
            return field != _DELETED or value is not True
        case NotIn(field, values):
            return field != _DELETED or True not in values
        case Ge(field, value) | Gt(field, value):
            return field not in {_DELETED_AT, _UPDATED_AT} or _is_before(value, horizon)
        case IsNull(field):
            return field not in {_DELETED, _DELETED_AT}
    # Other leaves may match, which costs no more than a query to the cells.
    return True


def _may_be(field: str, value: Scalar, horizon: datetime) -> bool:
    if field == _DELETED:
        return value is True
    return field not in {_DELETED_AT, _UPDATED_AT} or _is_before(value, horizon)


def _is_before(value: Scalar, horizon: datetime) -> bool:
    return not isinstance(value, datetime) or value < horizon
