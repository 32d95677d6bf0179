"""Names of one field are one condition, however many there are."""

import sqlite3
from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import Column, MetaData, Table, Text, create_engine, event, select

from fleetlight.query.errors import ExpressionError, NotExpressibleError
from fleetlight.query.expressions import conditions_in, to_filter
from fleetlight.query.filters import And, Filter, HasOneName, In, IsNotNull, IsNull, Not, Or, any_of, leaves
from fleetlight.query.operators.anything import SameAsOne
from fleetlight.query.sqlite_functions import register_functions
from fleetlight.query.to_dsl import to_dsl
from fleetlight.query.to_sql import to_sql
from fleetlight.resources.fields import Field, ItemType, Kind
from fleetlight.resources.query_fields.catalog import ITEM_TYPES

INSTANCE = ITEM_TYPES["instance"]
THING = ItemType("thing", (Field("uuid", "UUID", Kind.TEXT, "Identifier"), Field("name", "Name", Kind.TEXT, "A name")))


def built(expression: Any) -> Filter:
    return to_filter(expression, INSTANCE)


def test_equalities_of_one_field_are_one_membership() -> None:
    expression = ["|", ["=", "name", "a"], ["==", "os_type", "x"], ["==", "name", "b"], ["=", "name", "a"]]
    others = built(["==", "os_type", "x"])
    assert built(expression) == any_of(HasOneName("name", ("a", "b")), IsNull("name"), others)
    assert built(["|", ["==", "uuid", "a"], ["==", "uuid", "b"]]) == Or((In("uuid", ("a", "b")), IsNull("uuid")))
    assert built(["|", ["==", "osparams", "a"], ["==", "osparams", 1]]) == Or(
        (SameAsOne("osparams", ("a", 1)), IsNull("osparams"))
    )


def test_inequalities_of_one_field_are_one_membership_that_is_denied() -> None:
    expression = ["&", ["!=", "name", "a"], ["!=", "name", "b"]]
    leaf = HasOneName("name", ("a", "b"))
    assert built(expression) == And((Not("name", leaf), IsNotNull("name")))


@pytest.mark.parametrize(
    ("expression", "count"),
    [
        (None, (1, 0)),
        (["|", *[["=", "name", str(number)] for number in range(5000)]], (1, 0)),
        (["&", *[["=", "name", str(number)] for number in range(5000)]], (5000, 0)),
        (["!", ["|", ["=", "name", "a"], ["=", "uuid", "b"], ["=~", "name", "c"], ["?", "name"]]], (4, 1)),
        (["&", ["!=", "name", "a"], ["!=", "name", "b"], ["!=", "nope", "b"]], (2, 0)),
        (["|", *[["<", "be/memory", 1]] * 300], (300, 0)),
        (["|", *[["&", ["=", "name", "a"]]] * 300], (300, 0)),
        (["|", [["=="], "name", "x"], 7, [], ["=", "name", None]], (4, 0)),
    ],
)
def test_conditions_are_counted_with_memberships_as_one(expression: Any, count: tuple[int, int]) -> None:
    assert conditions_in(expression, INSTANCE) == count


@pytest.mark.parametrize(
    "expression",
    [
        ["|", *[["=", "name", "a"], ["=", "uuid", "b"], ["=", "name", "c"], ["?", "name"]] * 3],
        ["&", ["!=", "name", "a"], ["!=", "name", "b"], ["|", ["==", "be/memory", 1], ["==", "be/memory", 2]]],
        ["|", *[["=", "osparams", value] for value in ("a", 1, 2.5, True)]],
    ],
)
def test_what_is_built_has_as_many_conditions_as_are_counted(expression: Any) -> None:
    conditions = [leaf for leaf in leaves(built(expression)) if not isinstance(leaf, IsNull | IsNotNull)]
    assert len(conditions) <= conditions_in(expression, INSTANCE)[0]


def test_value_that_does_not_fit_is_named_among_many() -> None:
    with pytest.raises(ExpressionError, match=r"'be/memory'.*by '==' with 'x'"):
        built(["|", ["==", "be/memory", 1], ["==", "be/memory", "x"]])
    with pytest.raises(ExpressionError, match=r"'name'.*by '==' with 7"):
        built(["|", ["==", "name", "a"], ["==", "name", 7]])
    with pytest.raises(ExpressionError, match="with True"):
        built(["|", ["==", "be/memory", 1], ["==", "be/memory", True]])


def test_index_is_not_asked_for_more_names_than_it_has_room_for() -> None:
    names = tuple(str(number) for number in range(251))
    with pytest.raises(NotExpressibleError, match="more than 250 names"):
        to_dsl(HasOneName("name", names), THING)
    assert len(to_dsl(HasOneName("name", names[1:]), THING)["bool"]["should"]) == 250


def test_many_names_are_found_by_one_look_at_each_row() -> None:
    things = Table("things", MetaData(), Column("uuid", Text, primary_key=True), Column("name", Text))
    engine = create_engine("sqlite://")
    event.listen(engine, "connect", lambda connection, _: register_functions(connection))

    def steps_of(names: Sequence[str]) -> tuple[int, int]:
        """The rows that are found among 2,000, and the steps of SQLite."""
        steps = 0

        def count() -> int:
            nonlocal steps
            steps += 1
            return 0

        with engine.begin() as connection:
            driver: Any = connection.connection.driver_connection
            assert isinstance(driver, sqlite3.Connection)
            driver.set_progress_handler(count, 1000)
            statement = select(things.c.uuid).where(to_sql(HasOneName("name", tuple(names)), things.c, THING, "sqlite"))
            return len(connection.execute(statement).all()), steps

    with engine.begin() as connection:
        things.create(connection)
        rows = [{"uuid": str(number), "name": f"Web{number}.example.com"} for number in range(2000)]
        connection.execute(things.insert(), rows)
    found, few = steps_of([f"web{number}" for number in range(10)])
    assert found == 10
    found, many = steps_of([f"web{number}" for number in range(10_000)])
    engine.dispose()
    assert found == 2000
    assert many < 10 * few + 1000
