"""Prints what commands find: results to standard output, everything else to standard error.

Colours, tables and progress bars come from rich, which omits colours if the output is not a terminal.
"""

import csv
import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from itertools import accumulate

import typer
from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from fleetlight.cli.logging import mask_url_passwords
from fleetlight.cli.options import Output
from fleetlight.resources.fields import from_microseconds
from fleetlight.views.csv_values import no_formula

# A line wider than the terminal is better than a truncated one.
_WIDER_THAN_ANY_TABLE = 1000
# The blanks between two columns.
_GAP = 3
# The least width at which a last column of sentences is readable.
_NARROWEST = 30
_NOTHING = "-"
# The indentation of a wrapped line from its second line on.
_FURTHER = " " * 6
# Users choose names and other software writes messages, and a terminal obeys control characters in them. These are
# controls, line separators, and changes of text direction (Unicode Standard Annex 9); line breaks and tabs are kept.
_CONTROLS = (*range(0x20), *range(0x7F, 0xA0))
_DIRECTIONS = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
_CONTROL_CHARACTERS = {code: f"\\u{code:04x}" for code in (*_CONTROLS, *_DIRECTIONS) if chr(code) not in "\n\t"}


def print_result(text: str) -> None:
    """Print a line of the result, never wrapped or coloured; control characters are escaped as in JSON."""
    typer.echo(_harmless(text))


def print_paragraph(text: str) -> None:
    """Print a long line of the result. A terminal shows it wrapped between words, with further lines indented.

    Words such as names and addresses stay whole, so that they can be copied.
    """
    for line in _broken(_harmless(text)) if sys.stdout.isatty() else [_harmless(text)]:
        typer.echo(line)


def print_summary(text: str) -> None:
    """Print a sentence that sums up the table below, on terminals only; programs need only the rows."""
    if sys.stdout.isatty():
        print_paragraph(f"{text}\n")


def _broken(text: str) -> Sequence[str]:
    """Wrap `text` to the width of the terminal."""
    width = shutil.get_terminal_size().columns
    return [
        part
        for line in text.split("\n")
        for part in textwrap.wrap(
            line, width, subsequent_indent=_FURTHER, break_long_words=False, break_on_hyphens=False
        )
        or [""]
    ]


def iso_time(moment: int | None) -> str | None:
    """Format a moment to the second, with its time zone. moment: Unix time in microseconds, or None."""
    return None if moment is None else from_microseconds(moment).isoformat(timespec="seconds")


def counted(number: int, what: str) -> str:
    """A number with its noun: `1 instance`, `2 instances`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def in_brackets(name: str | None) -> str:
    """` (name)`, to append to a noun; empty for None."""
    return "" if name is None else f" ({name})"


def print_json(value: object) -> None:
    """Print `value` as JSON for other programs."""
    print_result(json.dumps(value, indent=2, ensure_ascii=False))


def print_rows(
    output: Output,
    document: object,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
    right_aligned: Sequence[str] = (),
) -> None:
    """Print a result in the format of --output: the rows as a table or CSV, or the document as JSON.

    rows: a dash stands for a missing value, which CSV leaves empty.
    """
    match output:
        case Output.TABLE:
            print_table(columns, rows, right_aligned)
        case Output.CSV:
            print_csv(columns, (["" if value == _NOTHING else value for value in row] for row in rows))
        case Output.JSON:
            print_json(document)


def print_csv(columns: Sequence[object], rows: Iterable[Sequence[object]]) -> None:
    """Print rows as CSV, with the column names in the first line."""
    writer = csv.writer(sys.stdout)
    writer.writerows([no_formula(value) for value in row] for row in (columns, *rows))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], right_aligned: Sequence[str] = ()) -> None:
    """Print a table for people, complete at any width.

    On a terminal it keeps to the terminal's width: it wraps a long last column, and puts columns without room below
    their row, each after its name. Elsewhere each row is one line, so that programs can search it, with at least three
    blanks between columns and none at the end.
    """
    lines = [[_harmless(" ".join(value.split("\n"))) for value in row] for row in rows]
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDER_THAN_ANY_TABLE
    ends = list(accumulate(max(map(cell_len, values)) + _GAP for values in zip(columns, *lines, strict=True)))
    beside = max(1, sum(end - _GAP <= width for end in ends))
    is_last_broken = beside == len(columns) - 1 and width - ends[-2] >= _NARROWEST
    if is_last_broken:
        beside += 1
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for number, column in enumerate(columns[:beside]):
        is_broken = is_last_broken and number == beside - 1
        justify: JustifyMethod = "right" if column in right_aligned else "left"
        table.add_column(column, justify=justify, no_wrap=not is_broken, overflow="fold")
    for line in lines:
        table.add_row(*(Text(value) for value in line[:beside]))
    console = Console(width=max(width, ends[0]))
    with console.capture() as captured:
        console.print(table)
    # The values are escaped already; the remaining control characters are the table's own.
    head, rule, *shown = (above.rstrip() for above in captured.get().splitlines())
    typer.echo(f"{head}\n{rule}")
    if beside == len(columns):
        typer.echo("".join(f"{above}\n" for above in shown), nl=False)
        return
    for above, line in zip(shown, lines, strict=True):
        typer.echo(above)
        for column, value in zip(columns[beside:], line[beside:], strict=True):
            if value != _NOTHING:
                (print_paragraph if " " in value else print_result)(f"    {column}: {value}")


def print_error(text: str) -> None:
    """Print one sentence about an error, with passwords masked."""
    console = Console(stderr=True, soft_wrap=True)
    console.print(Text.assemble(("error: ", "bold red"), _harmless(mask_url_passwords(text))))


def print_notice(text: str) -> None:
    """Print a remark that is not part of the result, with passwords masked."""
    Console(stderr=True, soft_wrap=True).print(Text(_harmless(mask_url_passwords(text))))


def is_terminal() -> bool:
    """Whether a person is there to answer a question."""
    return sys.stdin.isatty()


class _RateColumn(ProgressColumn):
    """Shows the speed per second, over the last half minute."""

    def render(self, task: Task) -> Text:
        rate = task.finished_speed or task.speed
        return Text("" if rate is None else f"{rate:,.0f}/s")


def progress_bar() -> Progress:
    """A progress bar on standard error, shown only on a terminal."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        _RateColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        disable=not console.is_terminal,
    )


def one_line(text: str) -> str:
    """`text` with control characters, line breaks and tabs escaped, so that it stays on one line."""
    return "".join(f"\\u{ord(character):04x}" if character in "\n\t" else character for character in _harmless(text))


def _harmless(text: str) -> str:
    """`text` with control characters escaped, except line breaks and tabs."""
    return text.translate(_CONTROL_CHARACTERS)
