"""What `scripts/bench faults` finds wrong with the copy of a consumer of the feed."""

from dataclasses import replace

import pytest

from bench.faults.damage import Damage
from bench.faults.follower import damage_of_copy
from tests.support.feed_consumer import Changed, Copy, Rows

ANNOUNCED = [("a", 1), ("b", 1), ("a", 2), ("a", 3), ("b", 2)]
ROWS: Rows = {"a": [[0, "a"], [0, 3], [0, "web"]]}
COPY = Copy("cursor", {"cell": 0}, {"cell": 5}, ROWS, ANNOUNCED, is_complete=True)


def test_a_copy_that_has_each_change_once_and_the_rows_of_the_list_is_not_damaged() -> None:
    assert damage_of_copy(COPY, ANNOUNCED, ROWS) == Damage()
    in_another_order_of_instances = [("b", 1), ("b", 2), ("a", 1), ("a", 2), ("a", 3)]
    assert damage_of_copy(replace(COPY, changes=in_another_order_of_instances), ANNOUNCED, ROWS) == Damage()


@pytest.mark.parametrize(
    ("got", "found"),
    [
        ([("a", 1), ("b", 1), ("a", 3), ("b", 2)], Damage(feed_lost=1)),
        ([*ANNOUNCED, ("b", 2)], Damage(feed_doubled=1)),
        ([*ANNOUNCED, ("a", 2)], Damage(feed_doubled=1, feed_disordered=1)),
        ([("a", 1), ("b", 1), ("a", 3), ("a", 2), ("b", 2)], Damage(feed_disordered=1)),
        ([*ANNOUNCED, ("c", 1)], Damage(feed_doubled=1)),
    ],
    ids=["lost", "doubled", "doubled later", "out of order", "made up"],
)
def test_a_change_that_is_lost_doubled_or_out_of_order_is_counted(got: list[Changed], found: Damage) -> None:
    assert damage_of_copy(replace(COPY, changes=got), ANNOUNCED, ROWS) == found


@pytest.mark.parametrize(
    "rows",
    [{}, {"a": [[0, "a"], [0, 2], [0, "web"]]}, {**ROWS, "b": [[0, "b"], [0, 1], [0, "db"]]}],
    ids=["missing", "old", "deleted"],
)
def test_a_row_of_the_copy_that_the_list_does_not_have_as_it_is_counts_as_lost(rows: Rows) -> None:
    assert damage_of_copy(replace(COPY, rows=rows), ANNOUNCED, ROWS) == Damage(feed_lost=1)
