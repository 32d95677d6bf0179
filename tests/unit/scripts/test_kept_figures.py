"""What `scripts/bench scale` keeps of a run that was ended."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.measure import Figure, figure
from bench.scale.kept import KeptFigures

PLANNED = ["10.sync", "10.lists"]


def measure() -> Iterator[Figure]:
    yield figure("time", 1.5, "s", "what it took", runs=1)


def measure_until_ended() -> Iterator[Figure]:
    yield from measure()
    raise KeyboardInterrupt


def measure_in_vain() -> Iterator[Figure]:
    yield from measure()
    raise AssertionError("lists do not come from the index again")


def test_a_second_start_knows_what_the_first_one_has_measured_and_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = KeptFigures(tmp_path / "build" / "kept.jsonl", PLANNED)
    measured = list(first.measured("10.sync", measure))
    second = KeptFigures(tmp_path / "build" / "kept.jsonl", PLANNED)
    assert [each.name for each in measured] == ["scale.10.sync.time"]
    assert f"1 of 2 are in {tmp_path}" in capsys.readouterr().err
    assert list(second.known()) == measured
    assert second.missing(PLANNED) == ["10.lists"]


def test_a_measurement_that_is_ended_halfway_is_made_again_and_the_ones_before_stay(tmp_path: Path) -> None:
    first = KeptFigures(tmp_path / "kept.jsonl", PLANNED)
    list(first.measured("10.sync", measure))
    with pytest.raises(KeyboardInterrupt):
        list(first.measured("10.lists", measure_until_ended))
    assert KeptFigures(tmp_path / "kept.jsonl", PLANNED).missing(PLANNED) == ["10.lists"]


def test_what_cannot_be_measured_is_said_and_tried_again_by_the_next_start(tmp_path: Path) -> None:
    first = KeptFigures(tmp_path / "kept.jsonl", PLANNED)
    [said] = first.measured("10.lists", measure_in_vain)
    assert (said.name, said.is_valid) == ("scale.10.lists", False)
    assert "lists do not come from the index again" in said.what
    assert KeptFigures(tmp_path / "kept.jsonl", PLANNED).missing(PLANNED) == PLANNED
