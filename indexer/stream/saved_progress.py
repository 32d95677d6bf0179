"""Saved progress of the cells in the index, as one indexer among several keeps it."""

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, replace

import msgspec

from fleetlight.cells.epochs import EpochHistory
from fleetlight.indexer.backends.base import COMMIT_LOGS, EPOCHS, CellProgress, IndexWriter, LogState
from fleetlight.resources.clock import Clock


@dataclass(frozen=True, slots=True)
class ReachedProgress:
    """How far a follower is, as of one moment.

    started_over: how often what it had promised was not true any more, until then.
    epoch_history: the epochs of the cell that it knows; None for a cell that has none.
    log: how the cell is followed, where its databases may have a log; None while this follower does not know.
    """

    progress: CellProgress
    started_over: int = 0
    epoch_history: EpochHistory | None = None
    log: LogState | None = None


def saved_log(writer: IndexWriter, cell_uuid: str) -> LogState:
    """What was saved last of the logs of a cell; raises what the writer raises."""
    return LogState.of(writer.load_state(COMMIT_LOGS).get(cell_uuid)) or LogState()


class SavedProgress:
    """Not for several threads at once. `learn` and `save` raise what the writer raises."""

    def __init__(self, writer: IndexWriter, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock
        self._saved: dict[str, CellProgress] = {}
        self._saved_logs: dict[str, LogState] = {}
        # By cell: how often its follower had started over when a whole cell was promised again.
        self._promised_again: dict[str, int] = {}

    def learn(self, cell_uuids: Collection[str]) -> None:
        """Read what the index says of these cells; of some it may say nothing."""
        saved = self._writer.load_progress()
        for uuid in cell_uuids:
            self.forget(uuid)
            if uuid in saved:
                self._saved[uuid] = saved[uuid]

    def forget(self, cell_uuid: str) -> None:
        self._saved.pop(cell_uuid, None)
        self._saved_logs.pop(cell_uuid, None)
        self._promised_again.pop(cell_uuid, None)

    def of(self, cell_uuid: str) -> CellProgress:
        """What a follower of the cell begins with."""
        return self._saved.get(cell_uuid, _beginning_of(cell_uuid))

    def save(self, followed: Sequence[ReachedProgress]) -> Set[str]:
        """Save what has changed; a promise, so everything up to there has to be searchable.

        Returns the cells of which another process has taken back what was promised: nothing is saved of them, and their
        followers have to begin anew with what the index says.
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
            self._writer.save_progress(self._not_behind_others(believed, saved))
        # Afterwards: a position that is behind has some of the log read twice.
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
        """What a follower begins with, and has nothing to add to, must not be saved over another indexer's progress."""
        cell_uuid = reached.progress.cell_uuid
        if cell_uuid in self._saved or self._takes_back(reached):
            return self._saved.get(cell_uuid)
        return _beginning_of(cell_uuid)

    def _may_promise(self, reached: ReachedProgress, epoch: object) -> bool:
        """Not while the index is called by an epoch of which the follower does not know: the cell may have been
        restored, and its watermark be that of another history. epoch: None while none was saved.
        """
        if epoch is None or reached.epoch_history is None:
            return True
        takes_back_only = self._takes_back(reached) and not reached.progress.is_complete
        return takes_back_only or reached.epoch_history.knows(str(epoch))

    def _was_taken_back(self, reached: ReachedProgress, saved: CellProgress | None) -> bool:
        """Whether the index promises less than this follower relies on: another process has begun the cell anew.

        The epoch alone does not show it: a cell that was restored keeps its last one until its relay notices. Nor does
        a promise that is there: the other process may have repaired the cell meanwhile, and then promises less than was
        saved before. A follower that began with an incomplete cell, or has started over itself, has completed it; a
        follower of a cell without epochs completes it by comparing all its rows.
        """
        if reached.epoch_history is None or not reached.progress.is_complete or self._takes_back(reached):
            return False
        last = self._saved.get(reached.progress.cell_uuid)
        if saved is None or (last is not None and not last.is_complete):
            return False
        went_back = last is not None and saved.watermark < min(last.watermark, reached.progress.watermark)
        return went_back or not saved.is_complete

    def _takes_back(self, reached: ReachedProgress) -> bool:
        """Whether what was promised is not true any more, and was not replaced by another promise yet."""
        return reached.started_over > self._promised_again.get(reached.progress.cell_uuid, 0)

    def _not_behind_others(
        self, followed: Sequence[ReachedProgress], saved: Mapping[str, CellProgress]
    ) -> list[CellProgress]:
        """Never less than what another indexer that follows the same cell has promised.

        An indexer that stands by knows less than the active one; only a follower that takes back what was promised
        knows that the higher progress is not true any more.
        """
        not_behind = []
        for reached in followed:
            cell = reached.progress
            other = saved.get(cell.cell_uuid, cell)
            if self._takes_back(reached):
                not_behind.append(cell)
            elif other.watermark <= cell.watermark:
                # A moment that has not come yet is that of a clock which was put right since.
                theirs = other.fresh_as_of if other.fresh_as_of <= self._clock() else 0
                not_behind.append(replace(cell, fresh_as_of=max(cell.fresh_as_of, theirs)))
        return not_behind


def _beginning_of(cell_uuid: str) -> CellProgress:
    return CellProgress(cell_uuid, 0, 0, is_complete=False)
