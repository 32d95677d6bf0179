"""Status of the index for each cell, as `fleetlight index status` shows it."""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from fleetlight.cells.daemon_threads import DaemonThreads
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.model import Cell, ChangelogAdapter
from fleetlight.indexer.backends.base import CellProgress, LogState
from fleetlight.indexer.followed_by import FollowedBy, followed_by
from fleetlight.notifications.errors import BusError
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

# What all cells and buses together may take: one that hangs must not hold back what the others say.
_TIMEOUT_S = 5.0
_MOST_THREADS = 256


class IndexHealth(StrEnum):
    """One word for a cell, the worst that applies."""

    UNKNOWN = "unknown"  # the index has never heard of the cell
    UNREACHABLE = "unreachable"  # cell or bus does not answer
    INCOMPLETE = "incomplete"  # not every instance is in the index
    STALE = "stale"  # nothing proves that the index is up to date
    DEAD_LETTERS = "dead letters"  # messages that could not be used wait for a person
    OK = "ok"


@dataclass(frozen=True, slots=True)
class CellIndexStatus:
    """How far the index follows one cell; None where it is not known.

    watermark: of a cell whose changes or commits are counted. lag_changes: changes that the cell has published and the
        index does not show.
    age_s: seconds since the moment up to which the index is known to be complete.
    problem: why something is not known, as a sentence. log: as of CellProgress.
    """

    cell: Cell
    followed_by: FollowedBy
    log: LogState | None
    health: IndexHealth
    watermark: int | None
    published_sequence: int | None
    lag_changes: int | None
    age_s: float | None
    is_complete: bool
    dead_letters: int | None
    problem: str | None


def read_status(
    cells: Sequence[Cell],
    progress: Mapping[str, CellProgress],
    *,
    open_adapter: Callable[[Cell], ChangelogAdapter],
    count_dead_letters: Callable[[Cell], int],
    now: int,
    staleness_limit_s: float,
    comparison_interval_s: Callable[[Cell], float],
) -> list[CellIndexStatus]:
    """The status of each cell, in the order given; a cell or bus that is away, or hangs, only leaves gaps.

    All are queried at once, in threads, within five seconds.
    progress: by cell uuid, as the index has it. count_dead_letters: raises BusError. now: microseconds since the epoch.
    comparison_interval_s: how often a cell is compared that neither its changes nor its log tell of.
    """
    threads = DaemonThreads(min(2 * len(cells), _MOST_THREADS) or 1, "index-status")
    deadline = time.monotonic() + _TIMEOUT_S
    queries = [
        (
            threads.submit(partial(_published_by, open_adapter, cell)) if cell.can.numbers_changes else None,
            threads.submit(partial(count_dead_letters, cell)),
        )
        for cell in cells
    ]
    threads.shutdown(wait=False)
    return [
        _cell_status(
            cell,
            progress.get(cell.uuid),
            _Answers(cell, published, dead, deadline),
            now=now,
            staleness_limit_s=staleness_limit_s,
            # Twice: a comparison takes a while, and is as of its beginning.
            comparison_limit_s=2 * comparison_interval_s(cell),
        )
        for cell, (published, dead) in zip(cells, queries, strict=True)
    ]


class _Answers:
    """What a cell and its bus have answered until a deadline (monotonic seconds), and why they have not."""

    def __init__(self, cell: Cell, published: Future[int] | None, dead: Future[int], deadline: float) -> None:
        self.problems: list[str] = []
        self._deadline = deadline
        self.published = None if published is None else self._answer(published, f"cell '{cell.name}'")
        self.dead = self._answer(dead, f"the bus of cell '{cell.name}'")

    def _answer(self, query: Future[int], source: str) -> int | None:
        try:
            return query.result(max(0.0, self._deadline - time.monotonic()))
        except (CellUnreachableError, BusError) as error:
            self.problems.append(str(error))
        except TimeoutError:
            self.problems.append(f"{source} has not answered within {_TIMEOUT_S:g} s")
        return None


def _cell_status(
    cell: Cell,
    progress: CellProgress | None,
    answers: _Answers,
    *,
    now: int,
    staleness_limit_s: float,
    comparison_limit_s: float,
) -> CellIndexStatus:
    published, dead, problems = answers.published, answers.dead, answers.problems
    by = followed_by(cell, progress)
    age_s = (
        None
        if progress is None or not progress.fresh_as_of
        else max(0, now - progress.fresh_as_of) / MICROSECONDS_PER_SECOND
    )
    lag = None if progress is None or published is None else max(0, published - progress.watermark)
    limit_s = staleness_limit_s if by.is_close else comparison_limit_s
    return CellIndexStatus(
        cell=cell,
        followed_by=by,
        log=None if progress is None else progress.log,
        health=_health(progress, now, dead, is_unreachable=bool(problems), staleness_limit_s=limit_s),
        watermark=None if progress is None or not by.is_close else progress.watermark,
        published_sequence=published,
        lag_changes=lag,
        age_s=age_s,
        is_complete=progress is not None and progress.is_complete,
        dead_letters=dead,
        problem="; ".join(problems) or None,
    )


def _published_by(open_adapter: Callable[[Cell], ChangelogAdapter], cell: Cell) -> int:
    adapter = open_adapter(cell)
    try:
        return adapter.published_sequence()
    finally:
        adapter.close()


def _health(
    progress: CellProgress | None,
    now: int,
    dead_letters: int | None,
    *,
    is_unreachable: bool,
    staleness_limit_s: float,
) -> IndexHealth:
    if is_unreachable:
        return IndexHealth.UNREACHABLE
    if progress is None:
        return IndexHealth.UNKNOWN
    if not progress.is_complete:
        return IndexHealth.INCOMPLETE
    # A moment far ahead is that of a clock which is wrong (fleetlight.listing.answer).
    if abs(now - progress.fresh_as_of) > staleness_limit_s * MICROSECONDS_PER_SECOND:
        return IndexHealth.STALE
    return IndexHealth.DEAD_LETTERS if dead_letters else IndexHealth.OK
