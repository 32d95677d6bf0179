"""How far the index follows each cell: what `fleetlight index status` shows."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from cells.errors import CellUnreachableError
from cells.model import Cell, ChangelogAdapter
from indexer.backends.base import CellProgress
from notifications.errors import BusError

_MICROSECONDS = 1_000_000


class IndexHealth(StrEnum):
    """One word for a cell, the worst that applies."""

    UNKNOWN = "unknown"  # the index has never heard of the cell
    UNREACHABLE = "unreachable"  # cell or bus does not answer
    INCOMPLETE = "incomplete"  # not every instance is in the index
    STALE = "stale"  # nothing proves that the index is up to date
    DEAD_LETTERS = "dead letters"  # messages that could not be used wait for a person
    OK = "ok"


@dataclass(frozen=True, slots=True)
class CellStatus:
    """How far the index follows one cell; None where it is not known.

    lag_changes: changes that the cell has published and the index does not show.
    age_s: seconds since the moment up to which the index is known to be complete.
    problem: why something is not known, as a sentence.
    """

    cell: Cell
    health: IndexHealth
    watermark: int | None
    published_sequence: int | None
    lag_changes: int | None
    age_s: float | None
    is_complete: bool
    dead_letters: int | None
    problem: str | None


def read_status(
    cells: Iterable[Cell],
    progress: Mapping[str, CellProgress],
    *,
    open_adapter: Callable[[Cell], ChangelogAdapter],
    count_dead_letters: Callable[[Cell], int],
    now: int,
    staleness_limit_s: float,
    comparison_interval_s: Callable[[Cell], float],
) -> list[CellStatus]:
    """The status of each cell, in the order given; a cell or bus that is away only leaves gaps.

    progress: by cell uuid, as the index has it. count_dead_letters: raises BusError. now: microseconds since the epoch.
    comparison_interval_s: how often a cell that does not number its changes is compared; it is asked nothing here.
    """
    return [
        _cell_status(
            cell,
            progress.get(cell.uuid),
            open_adapter=open_adapter,
            count_dead_letters=count_dead_letters,
            now=now,
            # Twice: a comparison takes a while, and is as of its beginning.
            staleness_limit_s=staleness_limit_s if cell.can.numbers_changes else 2 * comparison_interval_s(cell),
        )
        for cell in cells
    ]


def _cell_status(
    cell: Cell,
    progress: CellProgress | None,
    *,
    open_adapter: Callable[[Cell], ChangelogAdapter],
    count_dead_letters: Callable[[Cell], int],
    now: int,
    staleness_limit_s: float,
) -> CellStatus:
    problems: list[str] = []
    published: int | None = None
    dead: int | None = None
    is_numbered = cell.can.numbers_changes
    try:
        published = _published_sequence(open_adapter(cell)) if is_numbered else None
    except CellUnreachableError as error:
        problems.append(str(error))
    try:
        dead = count_dead_letters(cell)
    except BusError as error:
        problems.append(str(error))
    age_s = None if progress is None or not progress.fresh_as_of else max(0, now - progress.fresh_as_of) / _MICROSECONDS
    lag = None if progress is None or published is None else max(0, published - progress.watermark)
    return CellStatus(
        cell=cell,
        health=_health(progress, age_s, dead, is_unreachable=bool(problems), staleness_limit_s=staleness_limit_s),
        watermark=None if progress is None or not is_numbered else progress.watermark,
        published_sequence=published,
        lag_changes=lag,
        age_s=age_s,
        is_complete=progress is not None and progress.is_complete,
        dead_letters=dead,
        problem="; ".join(problems) or None,
    )


def _published_sequence(adapter: ChangelogAdapter) -> int:
    try:
        return adapter.published_sequence()
    finally:
        adapter.close()


def _health(
    progress: CellProgress | None,
    age_s: float | None,
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
    if age_s is None or age_s > staleness_limit_s:
        return IndexHealth.STALE
    return IndexHealth.DEAD_LETTERS if dead_letters else IndexHealth.OK
