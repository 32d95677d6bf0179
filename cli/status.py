"""`fleetlight status`: shows whether all is well on one screen, from the board of cells and the doctor."""

import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import typer

from fleetlight.cells.findings import Finding
from fleetlight.cli.board import oldest_age_s, summary_of_board, total
from fleetlight.cli.doctor.examination import Examination, as_json, examined
from fleetlight.cli.fleet import LoadedSettings
from fleetlight.cli.options import Output, OutputOption, examples
from fleetlight.cli.output import counted, print_csv, print_json, print_result

app = typer.Typer()

_WIDTH, _HEIGHT = 80, 24
"""The size of a terminal that shows all of it, including the next prompt."""
_NAMED = 3
_LONGEST_FOUND = 240
_NOT_KNOWN = "not known: the cells could not be looked at"


@app.command(
    epilog=examples(
        "fleetlight status",
        "fleetlight status --output json",
        "fleetlight status --config /etc/fleetlight/indexer.toml",
    )
)
def status(settings: LoadedSettings, output: OutputOption = Output.TABLE) -> None:
    """Show on one screen whether everything is all right, and if not, what is wrong and what to do.

    It runs all checks of `fleetlight doctor`, which shows each of them, and looks at each cell.

    Exit code 0 if everything is well, 1 if not, 2 if the configuration makes no sense.
    """
    found = examined(settings)
    match output:
        case Output.JSON:
            print_json(_document(found))
        case Output.CSV:
            faults = [(each.about, each.evidence, each.remedy) for each in found.wrong]
            print_csv(("WHAT", "FOUND", "WHAT TO DO"), [*((*line, "") for line in summary_lines(found)), *faults])
        case Output.TABLE:
            for line in screen(found):
                print_result(line)
    if not _is_well(found):
        raise typer.Exit(1)


def screen(found: Examination) -> Sequence[str]:
    """At most 23 lines of 80 characters: one entry for faults with the same remedy, a count for those without room."""
    todo = faults_by_remedy(found.wrong)
    said = "Everything is well." if _is_well(found) else f"Not everything is well: {counted(len(todo), 'thing')} to do."
    lines = [said, "", *(line for name, text in summary_lines(found) for line in _wrapped(f"{name:<12}{text}", 12))]
    for number, (remedy, faults) in enumerate(todo.items()):
        shown = ["", *_fault_lines(remedy, faults)]
        has_room_for_rest = len(lines) + len(shown) <= _HEIGHT - 1 - (2 if number < len(todo) - 1 else 0)
        if not has_room_for_rest:
            return [*lines, "", f"And {counted(len(todo) - number, 'thing')} more to do: see `fleetlight doctor`."]
        lines += shown
    return lines


def faults_by_remedy(faults: Sequence[Finding]) -> Mapping[str, Sequence[Finding]]:
    """Group faults by their remedy."""
    found: dict[str, list[Finding]] = {}
    for fault in faults:
        found.setdefault(fault.remedy or "", []).append(fault)
    return found


def summary_lines(found: Examination) -> Sequence[tuple[str, str]]:
    """The first lines of the screen, each a title and a text."""
    of_checks = found.counts()
    if found.board is None:
        return [("cells", _NOT_KNOWN), ("checks", of_checks)]
    return [*summary_of_board(found.board), ("checks", of_checks)]


def _is_well(found: Examination) -> bool:
    return not found.wrong and found.board is not None


def _fault_lines(remedy: str, faults: Sequence[Finding]) -> Iterator[str]:
    """The lines of one remedy: what is wrong, the evidence of the first fault, and what to do."""
    names = ", ".join(fault.about for fault in faults[:_NAMED])
    more = len(faults) - _NAMED
    yield from _wrapped(f"{names} and {more} more" if more > 0 else names, 4)
    yield from _wrapped(f"    {textwrap.shorten(faults[0].evidence, _LONGEST_FOUND, placeholder=' …')}", 4)
    yield from _wrapped(f"    > {remedy}", 6)


def _wrapped(text: str, indent: int) -> Sequence[str]:
    return textwrap.wrap(text, _WIDTH, subsequent_indent=" " * indent, break_on_hyphens=False)


def _document(found: Examination) -> Mapping[str, Any]:
    """The content of the screen as JSON; null stands for unknown."""
    board = found.board or ()
    return {
        "well": _is_well(found),
        "cells": None if found.board is None else Counter(cell.health for cell in board),
        "routes": None if found.board is None else Counter(cell.route for cell in board),
        "oldest_age_s": oldest_age_s(board),
        "instances": total(board, lambda cell: cell.instances),
        "nodes": total(board, lambda cell: cell.nodes),
        "jobs_waiting": total(board, lambda cell: cell.jobs_waiting),
        "jobs_running": total(board, lambda cell: cell.jobs_running),
        "dead_letters": total(board, lambda cell: cell.dead_letters),
        "checks": Counter(each.state for each in found.findings),
        "wrong": [as_json(finding) for finding in found.wrong],
    }
