import time
from dataclasses import replace
from threading import Event
from typing import Any

import pytest

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.model import Cell, ChangelogAdapter, LogPosition
from fleetlight.indexer import status as of_index
from fleetlight.indexer.backends.base import CellProgress, LogState
from fleetlight.indexer.followed_by import FollowedBy
from fleetlight.indexer.status import CellIndexStatus, IndexHealth, read_status
from fleetlight.notifications.errors import BusUnavailableError
from tests.support.memory.memory_cell import CELL_UUID, NOW, MemoryCell

PROGRESS = CellProgress(CELL_UUID, 3, NOW - 2_000_000, is_complete=True)


def status(
    cell: MemoryCell, progress: CellProgress | None = PROGRESS, dead_letters: int | Exception = 0, **options: Any
) -> CellIndexStatus:
    def count_dead_letters(_cell: Cell) -> int:
        if isinstance(dead_letters, Exception):
            raise dead_letters
        return dead_letters

    [found] = read_status(
        [cell.cell],
        {} if progress is None else {CELL_UUID: progress},
        **{
            "open_adapter": lambda _cell: cell,
            "count_dead_letters": count_dead_letters,
            "now": NOW,
            "staleness_limit_s": 5.0,
            "comparison_interval_s": lambda _cell: 600.0,
            **options,
        },
    )
    return found


@pytest.fixture
def cell() -> MemoryCell:
    return MemoryCell(instances=5)


def test_lag_and_age_are_those_of_cell_and_index(cell: MemoryCell) -> None:
    found = status(cell)
    assert (found.watermark, found.published_sequence, found.lag_changes) == (3, 5, 2)
    assert found.age_s == pytest.approx(2)
    assert found.health is IndexHealth.OK


@pytest.mark.parametrize(
    ("progress", "dead_letters", "health"),
    [
        (None, 0, IndexHealth.UNKNOWN),
        (replace(PROGRESS, is_complete=False), 3, IndexHealth.INCOMPLETE),
        (replace(PROGRESS, fresh_as_of=NOW - 6_000_000), 3, IndexHealth.STALE),
        (replace(PROGRESS, fresh_as_of=0), 0, IndexHealth.STALE),
        (replace(PROGRESS, fresh_as_of=NOW + 6_000_000), 0, IndexHealth.STALE),  # lists do not believe it either
        (PROGRESS, 3, IndexHealth.DEAD_LETTERS),
    ],
)
def test_worst_that_applies_is_the_health(
    cell: MemoryCell, progress: CellProgress | None, dead_letters: int, health: IndexHealth
) -> None:
    assert status(cell, progress, dead_letters).health is health


def test_cell_that_is_away_leaves_gaps_and_the_reason(cell: MemoryCell) -> None:
    cell.is_away = True
    found = status(cell)
    assert (found.watermark, found.published_sequence, found.lag_changes, found.dead_letters) == (3, None, None, 0)
    assert found.health is IndexHealth.UNREACHABLE
    assert found.problem == "cell 'one' cannot be reached: it is away"


def test_bus_that_is_away_leaves_gaps_and_the_reason(cell: MemoryCell) -> None:
    found = status(cell, dead_letters=BusUnavailableError("amqp://there", "refused"))
    assert (found.dead_letters, found.lag_changes) == (None, 2)
    assert found.problem is not None
    assert "amqp://there" in found.problem


def test_index_that_is_ahead_of_what_the_cell_says_has_no_lag(cell: MemoryCell) -> None:
    assert status(cell, replace(PROGRESS, watermark=9)).lag_changes == 0


def test_cell_that_does_not_number_its_changes_is_as_good_as_its_last_comparison(cell: MemoryCell) -> None:
    cell.cell = replace(cell.cell, kind=CellKind.NOVA_DB)
    compared = replace(PROGRESS, watermark=0, fresh_as_of=NOW - 700_000_000)
    found = status(cell, compared, open_adapter=_not_to_be_asked)
    assert (found.health, found.watermark, found.published_sequence) == (IndexHealth.OK, None, None)
    long_ago = replace(compared, fresh_as_of=NOW - 1_300_000_000)
    assert status(cell, long_ago, open_adapter=_not_to_be_asked).health is IndexHealth.STALE


def test_cell_that_is_followed_by_its_log_is_as_fresh_as_lists_want_it(cell: MemoryCell) -> None:
    cell.cell = replace(cell.cell, kind=CellKind.NOVA_DB)
    followed = replace(PROGRESS, log=LogState({"db:3306": LogPosition("log.000001", 4, "0-1-3", 3, 0)}))
    found = status(cell, followed, open_adapter=_not_to_be_asked)
    assert (found.health, found.followed_by, found.watermark) == (IndexHealth.OK, FollowedBy.LOG, 3)
    late = replace(followed, fresh_as_of=NOW - 6_000_000)
    assert status(cell, late, open_adapter=_not_to_be_asked).health is IndexHealth.STALE
    compared = replace(late, log=LogState(followed.log.positions if followed.log else {}, "it keeps no log"))
    found = status(cell, compared, open_adapter=_not_to_be_asked)
    assert (found.health, found.followed_by, found.watermark) == (IndexHealth.OK, FollowedBy.COMPARISONS, None)


def _not_to_be_asked(_cell: Cell) -> ChangelogAdapter:
    raise AssertionError("it has no number to tell")


def test_cell_and_bus_that_hang_keep_nothing_from_the_others(monkeypatch: pytest.MonkeyPatch, cell: MemoryCell) -> None:
    monkeypatch.setattr(of_index, "_TIMEOUT_S", 0.2)
    goes_on = Event()
    others = replace(cell.cell, uuid="other", name="other")

    def hang(asked: Cell) -> Any:
        if asked == others:
            goes_on.wait()
        return 0

    began = time.monotonic()
    hanging, answering = read_status(
        [others, cell.cell],
        {CELL_UUID: PROGRESS},
        open_adapter=lambda asked: hang(asked) or cell,
        count_dead_letters=hang,
        now=NOW,
        staleness_limit_s=5.0,
        comparison_interval_s=lambda _cell: 600.0,
    )
    assert time.monotonic() - began < 5
    goes_on.set()
    assert answering.health is IndexHealth.OK
    assert hanging.health is IndexHealth.UNREACHABLE
    assert hanging.problem == (
        "cell 'other' has not answered within 0.2 s; the bus of cell 'other' has not answered within 0.2 s"
    )
