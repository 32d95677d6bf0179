import pytest

from fleetlight.query.errors import QueryError, RegularExpressionError
from fleetlight.query.filters import (
    And,
    Eq,
    Filter,
    Has,
    HasAddress,
    In,
    IsNull,
    Lacks,
    LacksAddress,
    Lt,
    Matches,
    Ne,
    NotMatches,
    Or,
    check,
)
from fleetlight.resources.errors import FieldError, FilterValueError, UnknownFieldError
from fleetlight.resources.instance import INSTANCE_FIELDS


@pytest.mark.parametrize(
    ("node", "error"),
    [
        (Eq("nope", "x"), UnknownFieldError),
        (Eq("metadata", "x"), UnknownFieldError),
        (IsNull("fault"), UnknownFieldError),
        (Eq("host", 1), FilterValueError),
        (Ne("host", "\ud800"), FilterValueError),
        (In("progress", (1, "2")), FilterValueError),
        (Lt("created_at", 5), FilterValueError),
        (Eq("tags", "x"), FilterValueError),
        (Has("host", "x"), FilterValueError),
        (Matches("locked", "1"), FilterValueError),
        (HasAddress("tags", "1"), FilterValueError),
        (LacksAddress("ip_addresses", "\ud800"), FilterValueError),
        (Matches("tags", "x"), FilterValueError),
        (NotMatches("host", "("), RegularExpressionError),
    ],
)
def test_leaf_that_does_not_fit_is_refused_wherever_it_is(node: Filter, error: type[FieldError | QueryError]) -> None:
    with pytest.raises(error):
        check(Or((Eq("host", "a"), And((node,)))), INSTANCE_FIELDS)


def test_fitting_tree_passes() -> None:
    tree = And((Eq("host", "a\0"), In("progress", ()), Lacks("tags", "x"), IsNull("tags"), Eq("progress", 10**30)))
    check(tree, INSTANCE_FIELDS)
