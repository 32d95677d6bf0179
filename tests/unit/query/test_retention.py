"""Which questions an index without the rows from before its horizon can answer."""

from datetime import timedelta
from typing import Any

import pytest

from fleetlight.query.filters import (
    EVERYTHING,
    NOTHING,
    And,
    Eq,
    Filter,
    Ge,
    Gt,
    Has,
    In,
    IsNotNull,
    IsNull,
    Le,
    Lt,
    Ne,
    NotIn,
    Or,
)
from fleetlight.query.retention import forgotten, may_match_forgotten, remembered
from fleetlight.resources.fields import from_microseconds
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.support.oracles.filter_oracle import is_kept

HORIZON = 1_700_000_000_000_000
AT = from_microseconds(HORIZON)
BEFORE, BEHIND = AT - timedelta(microseconds=1), AT + timedelta(microseconds=1)
DELETED = Eq("deleted", True)


@pytest.mark.parametrize(
    ("wanted", "may_match"),
    [
        (Eq("deleted", False), False),
        (DELETED, True),
        (Ne("deleted", True), False),
        (Ne("deleted", False), True),
        (Ne("host", "a"), True),
        (In("deleted", (False,)), False),
        (In("deleted", (False, True)), True),
        (In("deleted", ()), False),
        (NotIn("deleted", (True,)), False),
        (NotIn("deleted", (False,)), True),
        (NotIn("host", (True,)), True),
        (IsNull("deleted"), False),
        (IsNull("deleted_at"), False),
        (IsNull("updated_at"), True),
        (IsNotNull("deleted_at"), True),
        (Eq("deleted_at", BEFORE), True),
        (Eq("deleted_at", AT), False),
        (In("updated_at", (AT, BEFORE)), True),
        (In("updated_at", (AT, BEHIND)), False),
        (Ge("deleted_at", BEFORE), True),
        (Ge("deleted_at", AT), False),
        (Ge("updated_at", BEFORE), True),
        (Ge("updated_at", AT), False),
        (Gt("updated_at", BEFORE), True),
        (Gt("deleted_at", AT), False),
        (Ge("created_at", BEHIND), True),
        (Eq("created_at", BEHIND), True),
        (Lt("deleted_at", AT), True),
        (Le("updated_at", BEHIND), True),
        (Has("tags", "a"), True),
        (EVERYTHING, True),
        (NOTHING, False),
        (And((DELETED, Ge("updated_at", AT))), False),
        (And((DELETED, Ge("updated_at", BEFORE))), True),
        (Or((Eq("deleted", False), Ge("updated_at", AT))), False),
        (Or((Eq("deleted", False), Ge("updated_at", BEFORE))), True),
    ],
    ids=repr,
)
def test_question_may_want_forgotten_rows_unless_it_is_certain_that_it_does_not(
    wanted: Filter, may_match: bool
) -> None:
    assert may_match_forgotten(wanted, HORIZON) is may_match
    assert not may_match_forgotten(wanted, 0), "every row is there"


@pytest.mark.parametrize("deleted_at", [None, HORIZON - 1, HORIZON])
@pytest.mark.parametrize("updated_at", [None, HORIZON - 1, HORIZON])
@pytest.mark.parametrize("deleted", [None, False, True])
def test_only_what_was_deleted_and_changed_last_before_the_horizon_is_forgotten(
    deleted: bool | None, updated_at: int | None, deleted_at: int | None
) -> None:
    record: dict[str, Any] = {"deleted": deleted, "updated_at": updated_at, "deleted_at": deleted_at}
    is_old = deleted is True and deleted_at == HORIZON - 1 and updated_at != HORIZON
    assert is_kept(forgotten(HORIZON), record, INSTANCE_FIELDS) is is_old
    assert is_kept(remembered(HORIZON), record, INSTANCE_FIELDS) is not is_old
    assert not is_kept(forgotten(0), record, INSTANCE_FIELDS)
    assert is_kept(remembered(0), record, INSTANCE_FIELDS)
