"""Opens the index for commands."""

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from fleetlight.cells.daemon_threads import have_answered, in_background
from fleetlight.cells.model import Cell
from fleetlight.indexer.backends.base import CellProgress, IndexWriter
from fleetlight.indexer.backends.opening import examine_index, open_searcher, open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.errors import IndexUnavailableError
from fleetlight.indexer.followed_by import FollowedBy, followed_by
from fleetlight.listing.answer import Freshness
from fleetlight.listing.explanation import why_live
from fleetlight.listing.index_gateway import read_as_lists_do
from fleetlight.resources.indexed_items import INDEXED_ITEMS

# Short, since a person waits.
_ANSWERS_WITHIN_S = 5.0
_PATIENCE = 20


@contextmanager
def opened_index(settings: IndexSettings) -> Iterator[IndexWriter]:
    """Open a writer for the block, not prepared yet.

    Raises IndexUnavailableError if the server does not answer for seconds. Later requests may take
    `index.write_timeout_s`, which is too long to learn that the server hangs.
    """
    examine_index(settings, _ANSWERS_WITHIN_S)
    with closing(open_writer(settings)) as writer:
        yield writer


@dataclass(frozen=True, slots=True)
class IndexedCells:
    """progress: by uuid of the cell. items: the number of items in the index, by item type and uuid of the cell; only
    of cells of which the index has all items.
    """

    progress: Mapping[str, CellProgress] = field(default_factory=dict)
    items: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def followed_by(self, cell: Cell) -> FollowedBy:
        """How the index learns of the cell's changes."""
        return followed_by(cell, self.progress.get(cell.uuid))

    def why_live(self, cell: Cell, *, now: int, limit_s: float) -> str | None:
        """Why lists ask the cell for instances or other items; None if they take both from the index.

        The index holds only instances of cells that do not number their changes.
        now: Unix time in microseconds. limit_s: `search.staleness_limit_s`.
        """
        followed = self.progress.get(cell.uuid)
        if (reason := why_live(followed, Freshness(now, limit_s), limit_s)) or not cell.can.numbers_changes:
            return reason
        lacking = [each.noun for name, each in INDEXED_ITEMS.items() if cell.uuid not in self.items.get(name, {})]
        return f"the index does not have every {' and '.join(lacking)} of the cell" if lacking else None


def read_index(settings: IndexSettings) -> IndexedCells:
    """Read the progress and items of all cells, as lists read them.

    Raises IndexUnavailableError, also if the index does not answer within `index.search_timeout_s`, and
    IndexRequestError.
    """
    limit_s = settings.search_timeout_s
    # The searcher's own limits include the time that this process waits for the processor, as its lists need.
    patient = settings.model_copy(update={"search_timeout_s": limit_s * _PATIENCE})
    reading = in_background(lambda: asyncio.run(_read(patient)), "index-progress")
    if not have_answered([reading], limit_s):
        raise IndexUnavailableError(f"it has not answered within {limit_s:g} s")
    return reading.result()


async def _read(settings: IndexSettings) -> IndexedCells:
    searcher = open_searcher(settings)
    try:
        progress = await read_as_lists_do(searcher)
        found = {name: await searcher.items(name, list(progress)) if progress else {} for name in INDEXED_ITEMS}
        counts = {name: {uuid: len(each) for uuid, each in of.items()} for name, of in found.items()}
        return IndexedCells(progress, counts)
    finally:
        await searcher.close()
