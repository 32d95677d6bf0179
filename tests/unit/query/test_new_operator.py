"""A new operator is one class: no compiler, no walk and no table has to be told of it."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import Column, Connection, MetaData, Table, Text, create_engine, func
from sqlalchemy.dialects import postgresql

from fleetlight.query.evaluate import evaluate
from fleetlight.query.filters import And, Eq, Filter, Leaf, Not, Or, check, negate, split_expressible
from fleetlight.query.retention import may_match_forgotten
from fleetlight.query.sql import Predicate, SqlColumn, SqlDialect
from fleetlight.query.to_dsl import to_dsl
from fleetlight.query.to_sql import can_express, to_sql
from fleetlight.query.tree import Dsl, Matcher
from fleetlight.resources.errors import FilterValueError, UnknownFieldError
from fleetlight.resources.fields import Field, ItemType, Kind

FIELDS = ItemType(
    "thing", (Field("uuid", "UUID", Kind.TEXT, "Identifier"), Field("name", "Name", Kind.TEXT, "Some text"))
)
THINGS = Table("things", MetaData(), Column("uuid", Text, primary_key=True), Column("name", Text))
NAMES = {"1": "abc", "2": "a", "3": "", "4": None, "5": "äöü"}


@dataclass(frozen=True, slots=True)
class IsLong(Leaf):
    """The text has `least` characters, or more."""

    least: int

    def negated(self) -> Leaf:
        return Not(self.field, self)

    def check(self, field: Field) -> None:
        if self.least < 0:
            raise FilterValueError(field.name, self.least, "a number of characters")

    def matcher(self, field: Field) -> Matcher:
        return lambda record: record[field.name] is not None and len(record[field.name]) >= self.least

    def fits_sql(self, dialect: SqlDialect) -> bool:
        return dialect != "mysql"

    def sql(self, column: SqlColumn) -> Predicate:
        return func.length(column.stored) >= self.least

    def dsl(self, field: Field) -> Dsl:
        return {"regexp": {field.name: {"value": f".{{{self.least},}}", "flags": "NONE"}}}


@pytest.fixture
def connection() -> Iterator[Connection]:
    engine = create_engine("sqlite://")
    with engine.connect() as connection:
        THINGS.create(connection)
        connection.execute(THINGS.insert(), [{"uuid": uuid, "name": name} for uuid, name in NAMES.items()])
        yield connection
    engine.dispose()


LONG = IsLong("name", 3)
FILTERS: list[tuple[Filter, set[str]]] = [
    (LONG, {"1", "5"}),
    (negate(LONG), {"2", "3"}),
    (negate(negate(LONG)), {"1", "5"}),
    (negate(And((LONG, Eq("uuid", "1")))), {"2", "3", "4", "5"}),
    (Or((Eq("uuid", "4"), negate(IsLong("name", 1)))), {"3", "4"}),
]


@pytest.mark.parametrize(("node", "found"), FILTERS)
def test_new_operator_means_the_same_in_python_and_sqlite(
    connection: Connection, node: Filter, found: set[str]
) -> None:
    check(node, FIELDS)
    assert {uuid for uuid, name in NAMES.items() if evaluate(node, {"uuid": uuid, "name": name}, FIELDS)} == found
    statement = THINGS.select().where(to_sql(node, THINGS.c, FIELDS, "sqlite"))
    assert {row.uuid for row in connection.execute(statement)} == found


@pytest.mark.parametrize(
    ("node", "sql", "dsl"),
    [
        (LONG, "length(things.name) >= 3", {"regexp": {"name": {"value": ".{3,}", "flags": "NONE"}}}),
        (
            negate(LONG),
            "length(things.name) < 3",
            {
                "bool": {
                    "filter": [{"exists": {"field": "name"}}],
                    "must_not": [{"regexp": {"name": {"value": ".{3,}", "flags": "NONE"}}}],
                }
            },
        ),
    ],
)
def test_new_operator_is_compiled_for_the_servers(node: Filter, sql: str, dsl: dict[str, Any]) -> None:
    dialect = postgresql.dialect(paramstyle="named")  # type: ignore[no-untyped-call]
    predicate = to_sql(node, THINGS.c, FIELDS, "postgresql")
    assert str(predicate.compile(dialect=dialect, compile_kwargs={"literal_binds": True})) == sql
    assert to_dsl(node, FIELDS) == dsl


@pytest.mark.parametrize("node", [LONG, negate(LONG)])
def test_new_operator_is_left_to_python_where_sql_lacks_it(node: Filter) -> None:
    assert can_express(node, "postgresql")
    assert split_expressible(And((node, Eq("uuid", "1"))), lambda term: can_express(term, "mysql")) == (
        Eq("uuid", "1"),
        node,
    )


@pytest.mark.parametrize("node", [IsLong("name", -1), negate(IsLong("name", -1))])
def test_new_operator_says_what_it_does_not_fit(node: Filter) -> None:
    with pytest.raises(FilterValueError):
        check(node, FIELDS)
    with pytest.raises(UnknownFieldError):
        check(IsLong("nope", 1), FIELDS)


def test_rows_that_an_index_may_lack_are_looked_for_in_the_cells() -> None:
    assert may_match_forgotten(LONG, horizon=1)
