"""What commands print: results to standard output, everything else to standard error.

Colours, tables and progress bars are rich's, which leaves colours away when the output is not a terminal.
"""

import json
import sys
from collections.abc import Iterable, Sequence

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from cli.logging import mask_url_passwords

# A line that is too long for the terminal is still better than one with its end cut off.
_WIDER_THAN_ANY_TABLE = 1000


def print_result(text: str) -> None:
    """One line of the result, as it is: never wrapped, never coloured."""
    typer.echo(text)


def counted(number: int, what: str) -> str:
    """`1 instance`, `2 instances`."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def print_json(value: object) -> None:
    """`value` as JSON for other programs."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], right_aligned: Sequence[str] = ()) -> None:
    """A table for people; complete, however narrow the output is."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right_aligned else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    Console(width=_WIDER_THAN_ANY_TABLE).print(table)


def print_error(text: str) -> None:
    """One sentence about what went wrong, without passwords."""
    console = Console(stderr=True, soft_wrap=True)
    console.print(Text.assemble(("error: ", "bold red"), mask_url_passwords(text)))


def print_notice(text: str) -> None:
    """Something a person should know that is no part of the result."""
    Console(stderr=True, soft_wrap=True).print(Text(mask_url_passwords(text)))


def is_terminal() -> bool:
    """Whether a person can answer a question."""
    return sys.stdin.isatty()


def progress_bar() -> Progress:
    """How far something is, on standard error if that is a terminal."""
    console = Console(stderr=True)
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=console,
        disable=not console.is_terminal,
    )
