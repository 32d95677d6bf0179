"""How far a long piece of work is, where nobody can see a bar."""

from itertools import count

import pytest
from rich.console import Console
from rich.progress import Progress

from fleetlight.cli.output import progress_bar
from fleetlight.cli.work_progress import shown_progress


@pytest.mark.parametrize(
    ("expected", "shown"),
    [
        (10, "east: 4 of 10 servers, 2 a second, 0:00:03 left"),
        (3, "east: 4 of 4 servers, 2 a second"),
        (None, "east: 4 servers, 2 a second"),
    ],
)
def test_lines_tell_how_many_there_are_if_anybody_knows_and_how_fast_they_come(
    expected: int | None, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("fleetlight.cli.work_progress._LINE_INTERVAL_S", 0)
    clock = count(0, 2)
    monkeypatch.setattr("fleetlight.cli.work_progress.time.monotonic", lambda: next(clock))
    with shown_progress("servers") as start:
        start("east", expected)(4)
    assert capsys.readouterr().err.splitlines() == [shown]


def test_bar_tells_rate_and_time_left() -> None:
    clock = count()
    shown = Console(force_terminal=True, width=120)
    bar = Progress(*progress_bar().columns, console=shown, get_time=lambda: float(next(clock)), auto_refresh=False)
    task = bar.add_task("east", total=100)
    for done in range(0, 50, 10):
        bar.update(task, completed=done)
    with shown.capture() as captured:
        shown.print(bar.get_renderable())
    assert "/s" in captured.get()
    assert "left" in captured.get()
