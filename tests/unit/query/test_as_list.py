"""What is shown of filters, and of times that patterns look at."""

import pytest

from fleetlight.query.as_list import as_list
from fleetlight.query.filters import EVERYTHING, NOTHING, And, Eq, Filter, In, IsNotNull, Matches, Not, Or
from fleetlight.query.operators.text import text_form, time_text
from fleetlight.resources.fields import Kind


@pytest.mark.parametrize(
    ("node", "shown"),
    [
        (EVERYTHING, ["and"]),
        (NOTHING, ["or"]),
        (And((Eq("a", 1), Or((IsNotNull("b"),)))), ["and", ["eq", "a", 1], ["or", ["is_not_null", "b"]]]),
        (In("a", ("x", "y")), ["in", "a", ("x", "y")]),
        (Not("a", Matches("a", "^x")), ["not", "a", ["matches", "a", "^x"]]),
    ],
)
def test_filter_is_shown_as_lists_that_begin_with_the_operator(node: Filter, shown: list[object]) -> None:
    assert as_list(node) == shown


def test_time_is_written_as_a_database_shows_it() -> None:
    assert time_text(1_700_000_000_999_999) == "2023-11-14 22:13:20"
    assert text_form(Kind.TIMESTAMP) is time_text
    assert {kind for kind in Kind if text_form(kind) is None} == {Kind.BOOL, Kind.FLOAT, Kind.OTHER, Kind.UNKNOWN}
