"""Which keys a filter leaves: never fewer than the items that it lets pass have."""

import pytest

from fleetlight.query.expressions import to_filter
from fleetlight.query.filters import keys_in
from fleetlight.resources.query_fields.job import JOB


@pytest.mark.parametrize(
    ("expression", "keys"),
    [
        (["==", "id", 5], {5}),
        (["|", ["==", "id", 5], ["=", "id", 7]], {5, 7}),
        (["|", ["==", "id", 5], ["==", "status", "error"]], None),
        (["&", ["==", "status", "error"], ["==", "id", 5]], {5}),
        (["&", ["|", ["==", "id", 5], ["==", "id", 7]], ["|", ["==", "id", 7], ["==", "id", 9]]], {7}),
        (["!", ["==", "id", 5]], None),
        (["|"], set()),
        (["<", "id", 5], None),
        (None, None),
    ],
)
def test_keys_of_a_filter(expression: object, keys: object) -> None:
    assert keys_in(to_filter(expression, JOB), "id") == keys
