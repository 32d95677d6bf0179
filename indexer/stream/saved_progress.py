"""Saves the progress of cells in the index, beside other indexers that follow the same cells."""

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import msgspec

from fleetlight.cells.epochs import EpochHistory
from fleetlight.indexer.backends.base import COMMIT_LOGS, EPOCHS, CellProgress, IndexWriter, LogState
from fleetlight.resources.clock import Clock


@dataclass(frozen=True, slots=True)
class ReachedProgress:
    """How far a follower is, at one moment.

    started_over: how often it has withdrawn its promises so far. epoch_history: the known epochs of the cell; None if
    the cell has none. log: how the commit logs of the cell's databases are followed; None if this follower does not
    know.
    """

    progress: CellProgress
    started_over: int = 0
    epoch_history: EpochHistory | None = None
    log: LogState | None = None


def saved_log(writer: IndexWriter, cell_uuid: str) -> LogState:
    """The last saved state of the commit logs of a cell. Raises what the writer raises."""
    return LogState.of(writer.load_state(COMMIT_LOGS).get(cell_uuid)) or LogState()


class SavedProgress:
    """Saves progress; not thread-safe. `learn` and `save` raise what the writer raises."""

    def __init__(self, writer: IndexWriter, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock
        self._saved: dict[str, CellProgress] = {}
        self._saved_logs: dict[str, LogState] = {}
        # By cell: how often its follower had started over when a whole cell was promised again.
        self._promised_again: dict[str, int] = {}

    def learn(self, cell_uuids: Collection[str]) -> None:
        """Read the saved progress of these cells, some of which may have none."""
        saved = self._writer.load_progress()
        for uuid in cell_uuids:
            self.forget(uuid)
            if uuid in saved:
                self._saved[uuid] = saved[uuid]

    def forget(self, cell_uuid: str) -> None:
        """Forget a cell that this indexer does not follow any more."""
        self._saved.pop(cell_uuid, None)
        self._saved_logs.pop(cell_uuid, None)
        self._promised_again.pop(cell_uuid, None)

    def of(self, cell_uuid: str) -> CellProgress:
        """The progress with which a follower of the cell begins."""
        return self._saved.get(cell_uuid, _beginning_of(cell_uuid))

    def save(self, followed: Sequence[ReachedProgress]) -> Set[str]:
        """Save progress that has changed. It is a promise, so everything up to it must be searchable.

        Where another process saves at the same moment, the next call judges what it has saved.
        Returns the cells for which another process has withdrawn the promise: their progress is not saved, and their
        followers must begin anew with the progress in the index.
        """
        changed = [reached for reached in followed if self._last_of(reached) != reached.progress]
        refused: set[str] = set()
        taken_back: set[str] = set()
        if changed:
            epochs, saved = self._writer.load_state(EPOCHS), self._writer.load_progress()
            for reached in changed:
                uuid = reached.progress.cell_uuid
                if self._was_taken_back(reached, saved.get(uuid)):
                    taken_back.add(uuid)
                elif not self._may_promise(reached, epochs.get(uuid)):
                    refused.add(uuid)
            refused |= taken_back
            believed = [reached for reached in changed if reached.progress.cell_uuid not in refused]
            # An indexer replaces whatever is saved by no promise, but by a promise only what it has read.
            promised = {each.progress.cell_uuid for each in believed if each.progress.is_complete}
            over = {uuid: progress for uuid, progress in saved.items() if uuid in promised}
            refused |= self._writer.save_progress(self._not_behind_others(believed, saved), over)
        # Save logs last: with an older position a follower reads part of the log twice, which does no harm.
        self._save_logs({each.progress.cell_uuid: each.log for each in followed if each.log is not None}, refused)
        for reached in followed:
            cell = reached.progress
            if cell.cell_uuid not in refused:
                self._saved[cell.cell_uuid] = cell
                if cell.is_complete:
                    self._promised_again[cell.cell_uuid] = reached.started_over
        return taken_back

    def _save_logs(self, logs: Mapping[str, LogState], refused: Set[str]) -> None:
        changed = {uuid: log for uuid, log in logs.items() if uuid not in refused and self._saved_logs.get(uuid) != log}
        if changed:
            self._writer.save_state(COMMIT_LOGS, msgspec.to_builtins(changed))
            self._saved_logs |= changed

    def _last_of(self, reached: ReachedProgress) -> CellProgress | None:
        """The progress to compare with. A follower that has only begun must not overwrite that of another indexer."""
        cell_uuid = reached.progress.cell_uuid
        if cell_uuid in self._saved or self._takes_back(reached):
            return self._saved.get(cell_uuid)
        return _beginning_of(cell_uuid)

    def _may_promise(self, reached: ReachedProgress, epoch: object) -> bool:
        """Whether the follower knows the epoch in the index. Otherwise the cell may have been restored, and the
        follower's watermark is one of another history. epoch: None if none is saved.
        """
        if epoch is None or reached.epoch_history is None:
            return True
        takes_back_only = self._takes_back(reached) and not reached.progress.is_complete
        return takes_back_only or reached.epoch_history.knows(str(epoch))

    def _was_taken_back(self, reached: ReachedProgress, saved: CellProgress | None) -> bool:
        """Whether the index promises less than this follower relies on, since another process began the cell anew.

        The epoch alone does not show it: a restored cell keeps its epoch until its relay notices. Nor does an existing
        promise: if the other process has repaired the cell meanwhile, its promise is lower than the saved one. A
        follower that began with an incomplete cell, or started over itself, has completed the cell; for a cell without
        epochs, a comparison of all rows completes it.
        """
        if reached.epoch_history is None or not reached.progress.is_complete or self._takes_back(reached):
            return False
        last = self._saved.get(reached.progress.cell_uuid)
        if saved is None or (last is not None and not last.is_complete):
            return False
        went_back = last is not None and saved.watermark < min(last.watermark, reached.progress.watermark)
        return went_back or not saved.is_complete

    def _takes_back(self, reached: ReachedProgress) -> bool:
        """Whether the follower has withdrawn its promise, and made no new one since."""
        return reached.started_over > self._promised_again.get(reached.progress.cell_uuid, 0)

    def _not_behind_others(
        self, followed: Sequence[ReachedProgress], saved: Mapping[str, CellProgress]
    ) -> list[CellProgress]:
        """The progress of followers that are not behind what another indexer has saved for the same cell.

        An indexer that stands by knows less than the active one; only a follower that withdraws a promise knows that
        the higher progress is no longer true.
        """
        not_behind = []
        for reached in followed:
            cell = reached.progress
            other = saved.get(cell.cell_uuid, cell)
            if self._takes_back(reached):
                not_behind.append(cell)
            elif other.watermark <= cell.watermark:
                # A moment in the future came from a clock that was wrong, and has been corrected since.
                theirs = other.fresh_as_of if other.fresh_as_of <= self._clock() else 0
                not_behind.append(replace(cell, fresh_as_of=max(cell.fresh_as_of, theirs)))
        return not_behind


def _beginning_of(cell_uuid: str) -> CellProgress:
    return CellProgress(cell_uuid, 0, 0, is_complete=False)
