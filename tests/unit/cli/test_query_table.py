"""Tables of queries, by the contract's section on their rendering."""

import os
import time
from collections.abc import Iterator
from typing import Any

import pytest

from fleetlight.cli.query_table import TableOutcome, TableStyle, Unit, joined, outcome, size_text, table, time_text
from fleetlight.query.fields_query import definitions
from fleetlight.resources.query_fields.catalog import ITEM_TYPES

COLUMNS = definitions(ITEM_TYPES["instance"], ["name", "be/maxmem", "admin_up", "status"])
ROWS: list[list[list[Any]]] = [
    [[0, "web1"], [0, 128], [0, True], [0, "running"]],
    [[0, "database"], [0, 2048], [0, False], [4, None]],
]


@pytest.fixture
def _in_utc() -> Iterator[None]:
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    yield
    os.environ.pop("TZ")
    if before is not None:
        os.environ["TZ"] = before
    time.tzset()


def test_columns_are_as_wide_as_title_and_values_and_numbers_stand_right() -> None:
    assert table(COLUMNS, ROWS, TableStyle()) == [
        "Instance ConfigMaxMem Autostart Status",
        "web1             128M Y         running",
        "database         2.0G N         *",
    ]


def test_width_of_titles_counts_only_where_they_are_shown() -> None:
    assert table(COLUMNS, ROWS, TableStyle(has_header=False)) == [
        "web1     128M Y running",
        "database 2.0G N *",
    ]


def test_last_column_is_padded_if_it_stands_right() -> None:
    assert table(COLUMNS[:2], [row[:2] for row in ROWS], TableStyle(has_header=False)) == [
        "web1     128M",
        "database 2.0G",
    ]


def test_separator_stands_between_values_without_blanks_and_sizes_are_whole_mib() -> None:
    assert table(COLUMNS, ROWS, TableStyle(separator="|")) == [
        "Instance|ConfigMaxMem|Autostart|Status",
        "web1|128|Y|running",
        "database|2048|N|*",
    ]


def test_table_without_rows_has_its_titles() -> None:
    assert table(COLUMNS, [], TableStyle()) == ["Instance ConfigMaxMem Autostart Status"]
    assert table(COLUMNS, [], TableStyle(has_header=False)) == []


@pytest.mark.parametrize(
    ("is_verbose", "texts"),
    [
        (False, ["??", "?", "-", "*"]),
        (True, ["(unknown)", "(nodata)", "(unavail)", "(offline)"]),
    ],
)
def test_what_has_no_value_shows_a_placeholder(is_verbose: bool, texts: list[str]) -> None:
    columns = definitions(ITEM_TYPES["instance"], ["admin_up"])
    lines = table(columns, [[[status, None]] for status in range(1, 5)], TableStyle(None, None, False, is_verbose))
    assert [line.strip() for line in lines] == texts


@pytest.mark.parametrize(
    ("mebibytes", "unit", "text"),
    [
        (0, "h", "0M"),
        (1023, "h", "1023M"),
        (1024, "h", "1.0G"),
        (1536, "h", "1.5G"),
        (1048575, "h", "1024.0G"),
        (1048576, "h", "1.0T"),
        (1024, "m", "1024"),
        (1536, "g", "1.5"),
        (1572864, "t", "1.5"),
    ],
)
def test_sizes_have_the_letter_of_their_unit_only_where_it_is_chosen_for_them(
    mebibytes: int, unit: str, text: str
) -> None:
    assert size_text(mebibytes, Unit(unit)) == text


@pytest.mark.usefixtures("_in_utc")
@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "1970-01-01 00:00:00"), (86400.75, "1970-01-02 00:00:00"), ("x", "N/A")]
)
def test_times_are_local_to_the_second(seconds: object, text: str) -> None:
    assert time_text(seconds) == text


def test_format_of_a_field_replaces_that_of_its_kind() -> None:
    columns = definitions(ITEM_TYPES["instance"], ["name", "tags"])
    rows = [[[0, "a"], [0, ["x", "y", None]]]]
    assert table(columns, rows, TableStyle(has_header=False, formats={"tags": joined})) == ["a x,y,None"]


def test_value_cannot_break_its_line_or_change_the_terminal() -> None:
    columns = definitions(ITEM_TYPES["instance"], ["name"])
    assert table(columns, [[[0, "a\n\tb\x1b[31m\u202ec"]]], TableStyle(has_header=False)) == [
        "a\\u000a\\u0009b\\u001b[31m\\u202ec"
    ]


UNKNOWN = definitions(ITEM_TYPES["instance"], ["name", "nothing"])


@pytest.mark.parametrize(
    ("columns", "rows", "expected"),
    [
        (COLUMNS, [], TableOutcome.NORMAL),
        (COLUMNS, ROWS[:1], TableOutcome.NORMAL),
        (COLUMNS, ROWS, TableOutcome.INCOMPLETE),
        (UNKNOWN, [], TableOutcome.UNKNOWN_FIELDS),
        (UNKNOWN, [[[0, "a"], [1, None]]], TableOutcome.UNKNOWN_FIELDS),
        (UNKNOWN, [[[4, None], [1, None]]], TableOutcome.UNKNOWN_FIELDS),
    ],
)
def test_outcome_names_the_worst(columns: list[dict[str, Any]], rows: list[Any], expected: TableOutcome) -> None:
    assert outcome(columns, rows) is expected
