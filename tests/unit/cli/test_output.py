"""Tables: whole on a narrow terminal, and one line for each row where programs read them."""

import io
import json
import re
from collections.abc import Sequence
from contextlib import redirect_stdout

import pytest

from fleetlight.cli.output import print_error, print_json, print_notice, print_result, print_table

_UUID = "8bc67c2b-11de-4f4b-86b0-d459f6752217"
_DATABASE = "postgresql://fleetlight@database.example.org:5432/cell1?sslrootcert=/etc/fleetlight/ca.crt"


class Terminal(io.StringIO):
    """Where a person reads, 80 columns wide."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def narrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")


def on_terminal(columns: Sequence[str], rows: Sequence[Sequence[str]], right_aligned: Sequence[str] = ()) -> list[str]:
    """The lines that a person sees."""
    with redirect_stdout(Terminal()) as shown:
        print_table(columns, rows, right_aligned)
    return lines_of(shown.getvalue())


def lines_of(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines()]


def test_columns_without_room_on_a_terminal_stand_below_their_row() -> None:
    rows = [["cell1", _UUID, "native", _DATABASE, "amqp://bus1//"], ["cell2", _UUID, "nova-db", "mysql://db", "-"]]
    head, rule, *lines = on_terminal(("NAME", "UUID", "KIND", "DATABASE", "BUS"), rows)
    assert head == f"NAME    {'UUID':36}   KIND"
    assert set(rule) == {"─"}
    assert lines == [
        f"cell1   {_UUID}   native",
        f"    DATABASE: {_DATABASE}",
        "    BUS: amqp://bus1//",
        f"cell2   {_UUID}   nova-db",
        "    DATABASE: mysql://db",
    ]


def test_head_of_a_table_is_shown_and_not_its_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    head, *_ = on_terminal(("NAME", "DATABASE", "BUS"), [["cell1", _DATABASE, "amqp://bus1//"]])
    assert "\x1b[1m" in head
    assert "\\u001b" not in head
    assert re.sub(r"\x1b\[[0-9;]*m", "", head).split() == ["NAME"]


def test_last_column_on_a_terminal_is_broken_where_that_is_enough() -> None:
    why = "the index is stale: 42.2 s behind, and 5 s are allowed, since nobody has said otherwise"
    lines = on_terminal(("CELL", "ROUTE", "COMPLETE", "WHY"), [["cell1", "live", "yes", why]])
    assert max(map(len, lines)) <= 80
    assert " ".join(" ".join(lines[2:]).split()) == f"cell1 live yes {why}"


def test_table_that_fits_a_terminal_is_as_anywhere_else(capsys: pytest.CaptureFixture[str]) -> None:
    columns, rows = ("CELL", "LAG"), [["cell1", "0"], ["cell2", "12"]]
    print_table(columns, rows, right_aligned=("LAG",))
    assert on_terminal(columns, rows, right_aligned=("LAG",)) == lines_of(capsys.readouterr().out)


def test_row_that_is_no_person_s_is_one_line_however_long(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("CELL", "DATABASE", "WHY"), [["cell1", _DATABASE, "refused\nIs the server running?"]])
    [_, _, line] = capsys.readouterr().out.splitlines()
    assert line.split("   ") == ["cell1", _DATABASE, "refused Is the server running?"]


def test_table_of_no_rows_is_its_head() -> None:
    assert len(on_terminal(("ID", "CELL"), [])) == 2


# Another title for the window, a red that does not end, a line that goes over the one before, and the same of 8 bits.
# Then what shows the rest from right to left, and what ends a line for some programs.
_HOSTILE = "ada\x1b]0;owned\x07\x1b[31m\rroot\x9b2J\x7f\u202etoor\u2066\u200f\u061c\u2028"
_SHOWN = r"ada\u001b]0;owned\u0007\u001b[31m\u000droot\u009b2J\u007f\u202etoor\u2066\u200f\u061c\u2028"


def test_terminal_does_nothing_that_a_name_or_a_message_says(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME", "ID"), [[_HOSTILE, "1"]])
    assert capsys.readouterr().out.splitlines()[-1].split() == [_SHOWN, "1"]
    for show in (print_result, print_notice, print_error):
        show(f"{_HOSTILE}\n\tis there")
        shown = "".join(capsys.readouterr()).removeprefix("error: ")
        assert shown.splitlines()[0] == _SHOWN


def test_json_is_for_terminals_too_and_means_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"name": _HOSTILE})
    shown = capsys.readouterr().out
    assert shown.replace("\n", "").isprintable()
    assert json.loads(shown) == {"name": _HOSTILE}
