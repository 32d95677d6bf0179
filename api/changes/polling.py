"""One batch of changes of a watch, for a caller that asks again and again."""

import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass

from fleetlight.api.http.errors import UnauthorizedError
from fleetlight.listing.watches.changelogs import ResetReason
from fleetlight.listing.watches.watch import Watch, WatchEvent
from fleetlight.listing.watches.watched_list import ChangeKind, CoveredCell

MAX_CHANGES = 1000
MAX_BYTES = 2**20
_KINDS = frozenset(ChangeKind)


@dataclass(frozen=True, slots=True)
class Batch:
    """changes: JSON of each. cursor: the one after them. has_more: whether there are more already, for the next batch.

    cells: what a caller that has the batch has of each.
    """

    changes: Sequence[bytes]
    cursor: str
    has_more: bool
    cells: Sequence[CoveredCell]


async def next_batch(watch: Watch, deadline: float) -> Batch | ResetReason:
    """What follows the place where `watch` begins: at once if there is something, else once `deadline` is over.

    watch: has the same deadline. Returns why changes are missed, if they are. Raises UnauthorizedError and
    FleetUnreachableError.
    """
    changes: list[bytes] = []
    has_more = False
    async with aclosing(watch.events()) as events:
        async for event in events:
            if event.reset is not None:
                return event.reset
            _add(changes, event)
            has_more = event.name == "overrun" or _is_full(changes)
            is_end_of_burst = event.cursor is not None and bool(changes)
            if has_more or is_end_of_burst or (event.name is None and time.monotonic() >= deadline):
                break
        else:
            # The process ends, and follows no cell any more.
            has_more = True
        # While it is still followed which cells there are.
        return Batch(changes, watch.cursor(), has_more or watch.has_more, watch.coverage())


def _add(changes: list[bytes], event: WatchEvent) -> None:
    """Raises UnauthorizedError."""
    if event.name == "ended":
        raise UnauthorizedError(event.data.decode())
    if event.name in _KINDS:
        changes.append(event.data)


def _is_full(changes: Sequence[bytes]) -> bool:
    return len(changes) >= MAX_CHANGES or sum(map(len, changes)) >= MAX_BYTES
