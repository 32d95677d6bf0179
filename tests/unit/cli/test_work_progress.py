"""How far a long piece of work is, where nobody can see a bar."""

import pytest

from cli.work_progress import shown_progress


@pytest.mark.parametrize(
    ("expected", "shown"), [(10, "east: 4 of 10 servers"), (3, "east: 4 of 4 servers"), (None, "east: 4 servers")]
)
def test_lines_tell_how_many_there_are_if_anybody_knows(
    expected: int | None, shown: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("cli.work_progress._LINE_INTERVAL_S", 0)
    with shown_progress("servers") as start:
        start("east", expected)(4)
    assert capsys.readouterr().err.splitlines() == [shown]
