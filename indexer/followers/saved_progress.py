"""What the index says of how far cells are followed, kept by one indexer among several."""

from collections.abc import Collection, Sequence
from dataclasses import replace

from cells.clock import Clock
from indexer.backends.base import CellProgress, IndexWriter


class SavedProgress:
    """Not for several threads at once. `learn` and `save` raise what the writer raises."""

    def __init__(self, writer: IndexWriter, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock
        self._saved: dict[str, CellProgress] = {}

    def learn(self, cell_uuids: Collection[str]) -> None:
        """Read what the index says of these cells; of some it may say nothing."""
        saved = self._writer.load_progress()
        for uuid in cell_uuids:
            self.forget(uuid)
            if uuid in saved:
                self._saved[uuid] = saved[uuid]

    def forget(self, cell_uuid: str) -> None:
        self._saved.pop(cell_uuid, None)

    def of(self, cell_uuid: str) -> CellProgress:
        """What a follower of the cell begins with."""
        return self._saved.get(cell_uuid, _beginning_of(cell_uuid))

    def save(self, progress: Sequence[CellProgress], started_over: Collection[str]) -> None:
        """Save what has changed; a promise, so everything up to there has to be searchable.

        started_over: cells, by uuid, of which what was promised once is not true any more.
        """
        changed = [cell for cell in progress if self._last_of(cell.cell_uuid, started_over) != cell]
        if changed:
            self._writer.save_progress(self._not_behind_others(changed, started_over))
        self._saved |= {cell.cell_uuid: cell for cell in progress}

    def _last_of(self, cell_uuid: str, started_over: Collection[str]) -> CellProgress | None:
        """What a follower begins with, and has nothing to add to, must not be saved over somebody else's progress."""
        if cell_uuid in self._saved or cell_uuid in started_over:
            return self._saved.get(cell_uuid)
        return _beginning_of(cell_uuid)

    def _not_behind_others(self, progress: Sequence[CellProgress], started_over: Collection[str]) -> list[CellProgress]:
        """Never less than what somebody else, who follows the same cell, has promised.

        Whoever stands by knows less than the one who is active; only a follower that has started over knows that the
        higher progress is not true any more.
        """
        saved = self._writer.load_progress()
        not_behind = []
        for cell in progress:
            other = saved.get(cell.cell_uuid, cell)
            if cell.cell_uuid in started_over:
                not_behind.append(cell)
            elif other.watermark <= cell.watermark:
                # A moment that has not come yet is that of a clock which was put right since.
                theirs = other.fresh_as_of if other.fresh_as_of <= self._clock() else 0
                not_behind.append(replace(cell, fresh_as_of=max(cell.fresh_as_of, theirs)))
        return not_behind


def _beginning_of(cell_uuid: str) -> CellProgress:
    return CellProgress(cell_uuid, 0, 0, is_complete=False)
