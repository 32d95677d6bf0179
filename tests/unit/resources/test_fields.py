from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from fleetlight.resources.errors import FilterValueError, UnknownFieldError
from fleetlight.resources.fields import Field, ItemType, Kind, from_microseconds, to_microseconds
from fleetlight.resources.instance import INSTANCE_FIELDS


def _field(kind: Kind, *, is_list: bool = False) -> Field:
    return Field("it", "It", kind, "Some field", is_list)


@pytest.mark.parametrize(
    ("name", "title", "doc"),
    [("Name", "T", "Doc"), ("", "T", "Doc"), ("a", "two words", "Doc"), ("a", "T", "doc"), ("a", "T", "Ends here.")],
)
def test_definition_that_breaks_the_rules_of_query2_is_refused(name: str, title: str, doc: str) -> None:
    with pytest.raises(ValueError, match="does not match"):
        Field(name, title, Kind.TEXT, doc)


def test_titles_are_unique_ignoring_case() -> None:
    with pytest.raises(ValueError, match="twice"):
        ItemType("thing", (Field("a", "Same", Kind.TEXT, "One"), Field("b", "SAME", Kind.TEXT, "Other")))


@pytest.mark.parametrize(
    ("field", "value", "stored"),
    [
        (_field(Kind.TIMESTAMP), datetime(1970, 1, 1, 0, 0, 1, 5, UTC), 1_000_005),
        (_field(Kind.TIMESTAMP), datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 0),
        (_field(Kind.TIMESTAMP), datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC), -1),
        (_field(Kind.BOOL), True, True),
        (_field(Kind.NUMBER), 7, 7),
        (_field(Kind.UNIT), 512, 512),
        (_field(Kind.FLOAT), 1.0, 1.0),
        (_field(Kind.TEXT), "😀", "😀"),
        (_field(Kind.OTHER, is_list=True), "tag", "tag"),
    ],
)
def test_value_that_fits_is_stored(field: Field, value: Any, stored: Any) -> None:
    assert field.stored(value) == stored


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (_field(Kind.TIMESTAMP), datetime(2026, 1, 1)),  # noqa: DTZ001  # without a zone, on purpose
        (_field(Kind.TIMESTAMP), 5),
        (_field(Kind.BOOL), 1),
        (_field(Kind.NUMBER), True),
        (_field(Kind.NUMBER), 1.0),
        (_field(Kind.FLOAT), 1),
        (_field(Kind.FLOAT), float("nan")),
        (_field(Kind.FLOAT), float("inf")),
        (_field(Kind.TEXT), 1),
        (_field(Kind.TEXT), "\ud800"),
        (_field(Kind.OTHER), "text"),
        (_field(Kind.OTHER, is_list=True), "\udfff"),
        (_field(Kind.UNKNOWN), "text"),
    ],
)
def test_value_that_does_not_fit_is_refused_by_name(field: Field, value: Any) -> None:
    with pytest.raises(FilterValueError, match="'it'"):
        field.stored(value)


def test_unknown_field_is_refused_with_the_purpose() -> None:
    with pytest.raises(UnknownFieldError, match="unknown field 'nope' to sort by"):
        INSTANCE_FIELDS.require("nope", "sort")


def test_microseconds_survive_the_way_there_and_back() -> None:
    moment = datetime(2026, 11, 21, 10, 39, 1, 123_457, UTC)
    assert from_microseconds(to_microseconds(moment)) == moment
