"""Groups of a count: which an item is in, and how many one answer has."""

import pytest

from fleetlight.query.counts import CountRequest, Counts, limited, merged
from fleetlight.query.filters import EVERYTHING
from fleetlight.resources.errors import UnknownFieldError
from tests.property.query_strategies import FIELDS


@pytest.mark.parametrize(
    ("by", "groups"),
    [
        ((), [()]),
        (("name",), [("a",)]),
        (("size",), [(None,)]),
        (("tags",), [("x",), ("y",)]),
        (("name", "tags", "size"), [("a", "x", None), ("a", "y", None)]),
    ],
)
def test_item_is_in_the_group_of_each_member_of_a_list(by: tuple[str, ...], groups: list[tuple[object, ...]]) -> None:
    record = {"name": "a", "size": None, "tags": ["x", "y", "x"]}
    assert list(CountRequest(EVERYTHING, FIELDS, by).groups_of(record)) == groups


@pytest.mark.parametrize("tags", [[], None])
def test_item_with_an_empty_list_is_in_the_group_of_null(tags: list[str] | None) -> None:
    assert list(CountRequest(EVERYTHING, FIELDS, ("tags",)).groups_of({"tags": tags})) == [(None,)]


@pytest.mark.parametrize("name", ["nope", "addresses"])
def test_field_that_makes_no_groups_is_refused(name: str) -> None:
    with pytest.raises(UnknownFieldError, match=f"'{name}' to group by"):
        CountRequest(EVERYTHING, FIELDS, (name,))


def test_sum_of_counts_has_the_groups_of_all_of_them_and_is_whole_only_if_they_are() -> None:
    one, other = Counts({("a",): 1, ("b",): 2}), Counts({("b",): 3, ("c",): 4})
    assert merged([one, other], 3) == Counts({("a",): 1, ("b",): 5, ("c",): 4})
    assert merged([one, Counts({}, is_partial=True), other], 3).is_partial
    assert merged([], 3) == Counts()


def test_answer_has_the_first_groups_and_says_that_there_are_more() -> None:
    groups = {("a",): 1, ("b",): 2}
    assert limited(groups, 2) == Counts(groups)
    assert limited(groups, 2, is_partial=True) == Counts(groups, is_partial=True)
    assert limited(groups, 1) == Counts({("a",): 1}, is_partial=True)
