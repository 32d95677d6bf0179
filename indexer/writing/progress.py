"""Progress of one cell: which sequences are in the index, and up to which moment it is complete; no I/O.

The watermark is the last sequence before the first hole. A heartbeat gives the highest sequence of the cell at a
moment; when the watermark reaches that sequence, the index is complete up to the moment, which never goes back unless
the clock that gave it was wrong.
"""

from collections import deque
from collections.abc import Iterable

from fleetlight.indexer.backends.base import CellProgress
from fleetlight.resources.clock import Clock, system_clock

# Bounds of memory while a hole is open. Changes beyond them are read from the changelog after the hole closes.
_MAX_BEYOND = 100_000
_MAX_HEARTBEATS = 64


class ProgressTracker:
    """The progress of one cell; not thread-safe.

    Sequences and heartbeats may come in any order and any number of times.
    """

    def __init__(self, saved: CellProgress, clock: Clock = system_clock) -> None:
        self._clock = clock
        self._cell_uuid = saved.cell_uuid
        self._watermark = saved.watermark
        self._fresh_as_of = saved.fresh_as_of
        self._is_synced = saved.is_complete
        self._highest_known = saved.watermark
        self._beyond: set[int] = set()
        self._heartbeats: deque[tuple[int, int]] = deque()
        self._unindexed: set[str] = set()
        self._hole_since_s: float | None = None

    @property
    def watermark(self) -> int:
        """Every change up to this sequence has been written."""
        return self._watermark

    @property
    def highest_known(self) -> int:
        """The highest sequence that a message or a heartbeat has named."""
        return self._highest_known

    @property
    def unindexed(self) -> frozenset[str]:
        """Uuids of instances whose newest state could not be indexed; the cell is incomplete while it has any."""
        return frozenset(self._unindexed)

    @property
    def needs_sync(self) -> bool:
        """Whether the rows from before the first change were never synced."""
        return not self._is_synced

    def snapshot(self) -> CellProgress:
        """The progress at this moment; incomplete if an instance could not be indexed."""
        return CellProgress(
            self._cell_uuid, self._watermark, self._fresh_as_of, self._is_synced and not self._unindexed
        )

    def add(self, sequences: Iterable[int]) -> None:
        """Note that these changes have been written."""
        for sequence in sequences:
            self._highest_known = max(self._highest_known, sequence)
            if sequence == self._watermark + 1:
                self._watermark = sequence
                self._close_up()
            elif sequence > self._watermark and len(self._beyond) < _MAX_BEYOND:
                self._beyond.add(sequence)
        self._freshen()

    def heard(self, sequence: int, at: int) -> None:
        """Note a heartbeat: the highest sequence of the cell at the moment `at` (microseconds) was `sequence`."""
        self._highest_known = max(self._highest_known, sequence)
        if len(self._heartbeats) == _MAX_HEARTBEATS:
            # The watermark reaches the oldest first, and the newest says most: drop one between them.
            self._heartbeats.pop()
        self._heartbeats.append((sequence, at))
        self._freshen()

    def advance_to(self, sequence: int) -> None:
        """Note that every change up to `sequence` has been written."""
        self._highest_known = max(self._highest_known, sequence)
        if sequence > self._watermark:
            self._watermark = sequence
            self._beyond = {beyond for beyond in self._beyond if beyond > sequence}
            self._close_up()
        self._freshen()

    def disbelieve_beyond(self, sequence: int) -> None:
        """Forget higher sequences than `sequence`, the highest of the cell: a message with such a one was wrong."""
        limit = max(sequence, self._watermark)
        self._highest_known = min(self._highest_known, limit)
        self._beyond = {beyond for beyond in self._beyond if beyond <= limit}
        self._heartbeats = deque(heartbeat for heartbeat in self._heartbeats if heartbeat[0] <= limit)

    def start_over(self) -> None:
        """Forget everything; the cell is incomplete until it has been synced."""
        self._watermark = self._fresh_as_of = self._highest_known = 0
        self._is_synced = False
        self._beyond.clear()
        self._heartbeats.clear()
        self._unindexed.clear()
        self._hole_since_s = None

    def mark_synced(self) -> None:
        """Note that the rows from before the first change are in the index."""
        self._is_synced = True

    def mark_unindexed(self, instance_uuid: str) -> None:
        """Note that the newest known state of this instance could not be indexed."""
        self._unindexed.add(instance_uuid)

    def mark_indexed(self, instance_uuids: Iterable[str]) -> None:
        """Note that the newest known state of these instances is in the index."""
        if self._unindexed:
            self._unindexed.difference_update(instance_uuids)

    def hole_age_s(self, now_s: float) -> float:
        """Seconds for which the sequence after the watermark has been missing while a later one is known; 0 if none is.

        now_s: on a monotonic clock. The age counts from the first call that finds the hole.
        """
        if self._highest_known <= self._watermark:
            self._hole_since_s = None
            return 0.0
        if self._hole_since_s is None:
            self._hole_since_s = now_s
        return now_s - self._hole_since_s

    def forget_hole(self) -> None:
        """Count the age of the hole anew, after an attempt to close it."""
        self._hole_since_s = None

    def _close_up(self) -> None:
        # Another hole may follow, but its time starts now.
        self._hole_since_s = None
        while self._beyond and self._watermark + 1 in self._beyond:
            self._watermark += 1
            self._beyond.remove(self._watermark)

    def _freshen(self) -> None:
        reached: list[int] = []
        while self._heartbeats and self._heartbeats[0][0] <= self._watermark:
            reached.append(self._heartbeats.popleft()[1])
        if not reached:
            return
        # A moment in the future comes from a clock that is ahead. Cap it, or it would hide for hours that the cell is
        # silent.
        now = self._clock()
        known = self._fresh_as_of if self._fresh_as_of <= now else 0
        # Take the latest moment, not the last that arrived, which may be a redelivery.
        self._fresh_as_of = max(known, *(min(at, now) for at in reached))
