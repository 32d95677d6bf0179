"""The follower of a cell that numbers no changes, such as Nova's: it reads the instances that hints name from the cell,
and now and then all of them.

A log of the cell's database names the instances that each commit touched, completely and in order, so the index is
complete up to the position to which the log was read (fleetlight.cells.model, ChangeHints). Without a readable log, the
follower asks the cell now and then whether anything was committed, or what has changed, and takes notifications as
hints, some of which may be missing. It binds the queue before the first comparison begins, so that changes meanwhile
are announced; the next comparison finds changes that were lost, or never announced (contracts/nova-notifications,
section 10).
"""

import time
from collections.abc import Callable, Collection
from contextlib import closing, nullcontext
from dataclasses import replace
from functools import partial
from threading import Event

import structlog

from fleetlight.bus.bus import Delivery
from fleetlight.bus.no_bus import NoBus
from fleetlight.cells.errors import CellUnreachableError, CommitLogError
from fleetlight.cells.model import Cell, CellAdapter, ChangeHints, CommitHints, HintingAdapter, PolledAdapter, Positions
from fleetlight.indexer.backends.base import CellProgress, LogState
from fleetlight.indexer.errors import LeaseHeldError, StopRequestedError
from fleetlight.indexer.reconcile.external_cell import ExternalRows, UnindexedMoves, compare_cell
from fleetlight.indexer.stream.cell_health import Activity
from fleetlight.indexer.stream.consumer import Consumer, MessageSource
from fleetlight.indexer.stream.follower import Follower, FollowerParts
from fleetlight.indexer.stream.saved_progress import saved_log
from fleetlight.indexer.transform.batches import RowReading
from fleetlight.indexer.writing.journaling import CellJournal, JournalingWriter
from fleetlight.indexer.writing.ownership import OwnWriter, deployment_of
from fleetlight.indexer.writing.rereading import Rereader, rows_of
from fleetlight.notifications.errors import BusError
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

_log = structlog.get_logger(__name__)

_LEASE_RETRY_S = 30.0
# The process that reads the log does not tell others when it ends or fails.
_LOG_LEASE_RETRY_S = 2.0
# When to look again at a log that cannot be read because of its server's settings.
_LOG_RETRY_S = 120.0
# How long a log may fail for passing reasons, such as a server that starts, before the follower listens to
# notifications.
_LOG_AWAITED_S = 30.0
# Where a log proves that nothing is missing, a comparison only finds our own mistakes: run it so many times less often.
_AUDITED_LESS = 6
# Rest after a comparison, as a multiple of its duration, if hints do not name the instances: hints of a log nearly
# always name them, those of a database that only counts commits never do.
_RESTS_OF_LOG = 1
_RESTS = 10


class _LogAwaited(NoBus):
    """Replaces the bus if the log of the cell's database tells everything."""

    def __init__(self, hints: CommitHints) -> None:
        self._hints = hints

    def receive(
        self, max_messages: int, max_bytes: int, wait_s: float, *, first_within_s: float | None = None
    ) -> list[Delivery]:
        self._hints.wait(wait_s if first_within_s is None else first_within_s)
        return []


class ExternalFollower(Follower):
    """Follows a cell without revisions.

    With a log, the watermark counts commits of the database server. Without one, the watermark does not move, and
    `fresh_as_of` is the moment at which the last comparison began.
    """

    def __init__(
        self,
        cell: Cell,
        saved: CellProgress,
        parts: FollowerParts,
        open_adapter: Callable[[Cell], CellAdapter],
    ) -> None:
        super().__init__(cell, saved, parts)
        self._open_adapter = open_adapter
        self._journal = CellJournal(cell.uuid, parts.journals, parts.writer, clock=parts.clock)
        self._positions: Positions = {}
        # Whether an instance may differ that no hint has named, so that only a comparison completes the index; and how
        # often that was noticed.
        self._is_suspect = True
        self._suspicions = 0
        self._compared_s: float | None = None
        self._compare_due_s = 0.0
        # Shown to operators; None while another process reads the log, and shows it.
        self._log: LogState | None = None
        self._log_name = ""
        self._is_log_followed = False
        self._is_away = False
        # Whether hints prove that they name everything up to a moment, so that a comparison makes the index fresh.
        self._hints_prove = False
        self._log_failing_since_s: float | None = None
        self._log_due_s = 0.0

    def _follow(self, stop: Event) -> None:
        adapter = self._open_adapter(self.cell)
        try:
            log = self._open_log(adapter, stop)
            self._is_log_followed = log is not None
            self._hints_prove = False
            self._parts.metrics.log_followed(self.cell.uuid, self._log_name if self._is_log_followed else None)
            receiver = None if log is None else _LogAwaited(log)
            hints = adapter.poll_changes() if log is None and isinstance(adapter, PolledAdapter) else log
            with nullcontext() if hints is None else closing(hints):
                self._follow_by(hints, receiver, adapter, stop)
        except CommitLogError as error:
            self._give_up_log(error)
        finally:
            self._parts.metrics.log_followed(self.cell.uuid, None)
            adapter.close()

    def _follow_by(
        self, hints: ChangeHints | None, receiver: MessageSource | None, adapter: CellAdapter, stop: Event
    ) -> None:
        journaling = JournalingWriter(self._open_writer(stop), self._journal)
        writer = OwnWriter(journaling, self.cell.uuid, self._parts.owners, deployment_of(adapter), has_rows=True)
        read_rows = partial(rows_of, adapter)
        reading = replace(self._reading, rows=RowReading(read_rows, self.cell.can.unknown_fields))
        self._moves = UnindexedMoves(adapter, self._parts.writer, self._parts.owners, {})
        render = ExternalRows(adapter, writer, self._moves).documents
        with self._consuming(writer, read_rows, reading, render=render, receiver=receiver) as (consumer, rereader):
            self._consume(consumer, adapter, rereader, hints, stop)

    def _open_log(self, adapter: CellAdapter, stop: Event) -> CommitHints | None:
        """The hints of the log; None if the follower listens to notifications instead. Raises CommitLogError."""
        if not isinstance(adapter, HintingAdapter) or time.monotonic() < self._log_due_s:
            return None
        self._log_name = adapter.log_name
        self._wait_for_log(self._log_name, stop)
        hints = adapter.follow_commits(self._positions)
        self._show_log(LogState(dict(self._positions)))
        _log.info("indexer.log_followed", cell=self.cell.name, continued=hints.is_continued)
        self._leave_bus()
        return hints

    def _leave_bus(self) -> None:
        """Remove a queue that was declared before the log could be read, and would fill for ever."""
        if self.cell.transport_url:
            try:
                self._parts.release_bus(self.cell, is_gone=False)
            except BusError as error:
                _log.warning("indexer.queue_stays", cell=self.cell.name, reason=str(error))

    def _give_up_log(self, error: CommitLogError) -> None:
        """Follow notifications for a while, and let another process read the log. Raises CellUnreachableError if the
        log may soon be readable again.
        """
        now_s = time.monotonic()
        if self._log_failing_since_s is None:
            self._log_failing_since_s = now_s
        if not error.is_lasting and now_s - self._log_failing_since_s < _LOG_AWAITED_S:
            raise CellUnreachableError(self.cell.name, error.reason) from error
        if not error.is_lasting:
            # A lasting problem is one of this cell only; this process still reads other cells of the server.
            self._parts.leases.leave_log(self._log_name)
        _log.warning("indexer.log_not_followed", cell=self.cell.name, reason=error.reason)
        self._log_due_s = now_s + _LOG_RETRY_S
        self._log_failing_since_s = None
        self._show_log(LogState(dict(self._positions), error.reason))
        if not error.is_lasting:
            # The log may have a position that no reader gets past.
            self._positions = {}

    def _is_log_readable(self, adapter: CellAdapter) -> bool:
        """Whether the log can be read again; looks now and then while the follower listens to notifications."""
        if not isinstance(adapter, HintingAdapter) or time.monotonic() < self._log_due_s:
            return False
        self._log_due_s = time.monotonic() + _LOG_RETRY_S
        try:
            adapter.follow_commits(self._positions).close()
        except CommitLogError as error:
            self._show_log(LogState(dict(self._positions), error.reason))
            return False
        self._log_due_s = 0.0
        return True

    def _show_log(self, log: LogState | None) -> None:
        self._log = log
        self._publish_progress()

    def _wait_for_log(self, name: str, stop: Event) -> None:
        """Wait until this process has the lease on the log; then continue from the progress that another saved."""
        has_waited = False
        while not self._parts.leases.read_log(name):
            if not has_waited:
                has_waited = True
                self._show_log(None)
            self._health.activity = Activity.STANDING_BY
            self.sign_of_life.give()
            if stop.wait(_LOG_LEASE_RETRY_S):
                raise StopRequestedError
        if has_waited or not self._positions:
            self._learn_from_others()

    def _learn_from_others(self) -> None:
        saved = self._parts.writer.load_progress().get(self.cell.uuid)
        if saved is not None and saved.is_complete:
            self._positions = saved_log(self._parts.writer, self.cell.uuid).positions
            self._is_suspect = not self._positions
            self._tracker.advance_to(saved.watermark)
            self._tracker.mark_synced()

    def _consume(
        self,
        consumer: Consumer,
        adapter: CellAdapter,
        rereader: Rereader,
        hints: ChangeHints | None,
        stop: Event,
    ) -> None:
        # While the bus was down, or before the queue was bound, changes may have been announced to no queue.
        due_s = 0.0
        for instance_uuid in self._tracker.unindexed:
            rereader.add(instance_uuid)
        if hints is None or not hints.is_continued or self._tracker.needs_sync:
            self._suspect()
        elif not self._is_suspect:
            due_s = self._next_comparison_s()
        while not stop.is_set():
            bus_failure: BusError | None = None
            try:
                consumer.step()
            except BusError as error:
                # Without a bus, only comparisons show changes.
                bus_failure = error
                due_s = max(due_s, self._next_comparison_s())
            try:
                if hints is not None:
                    self._look(hints, adapter, rereader)
                now_s = time.monotonic()
                is_forced = self._hints_prove and self._is_suspect
                if now_s >= due_s or (is_forced and now_s >= self._compare_due_s):
                    due_s = self._compare(consumer, adapter, rereader, hints, stop)
            except CellUnreachableError as error:
                # Believe notifications until the cell is back, then read their instances from it.
                self._believe_bus_after(error)
                due_s = self._compare_due_s = time.monotonic() + self._parts.settings.retry_wait_max_s
            self._publish_progress()
            if bus_failure is not None:
                raise bus_failure
            if consumer.is_idle:
                self.sign_of_life.give()
            self._health.activity = Activity.FOLLOWING
            self._keep_up_journal()
            if not self._is_away and not self._tracker.unindexed and not self._tracker.needs_sync:
                self._health.recovered()
            if not self._is_log_followed and self._is_log_readable(adapter):
                break
        consumer.drain()
        self._publish_progress()

    def _look(self, hints: ChangeHints, adapter: CellAdapter, rereader: Rereader) -> None:
        """As `_take`; a cell that is down raises only if the follower has nothing else to listen to."""
        try:
            self._take(hints, adapter, rereader)
        except CellUnreachableError as error:
            self._believe_bus_after(error)

    def _believe_bus_after(self, error: CellUnreachableError) -> None:
        """Listen to the bus while the cell is down; raises `error` if the follower reads the log instead."""
        if self._is_log_followed:
            raise error
        self._is_away = True
        self._suspect()
        self._health.report(error)

    def _take(self, hints: ChangeHints, adapter: CellAdapter, rereader: Rereader) -> None:
        """Read the instances that commits touched, and write them. Raises CommitLogError, CellUnreachableError, and
        IndexerError.
        """
        taken = hints.take()
        if taken is None:
            return
        self._is_away = False
        self._log_failing_since_s = None
        self._hints_prove = taken.at is not None
        if taken.number is not None and taken.number < self._tracker.watermark:
            # The database was restored from an older copy, or replaced by another.
            self._start_over()
            self._suspect()
        if taken.uuids is None:
            self._suspect()
        elif taken.uuids:
            self._parts.metrics.hints.labels(self.cell.uuid).inc(len(taken.uuids))
            self._compare_only(taken.uuids, adapter, rereader)
        if self._is_suspect or taken.at is None:
            return
        if taken.number is not None:
            self._positions = taken.positions
            self._log = LogState(dict(taken.positions))
            self._tracker.advance_to(taken.number)
        self._tracker.heard(self._tracker.watermark, taken.at)

    def _suspect(self) -> None:
        """Note that the index may lack a change, until a comparison that begins after this call has ended."""
        self._is_suspect = True
        self._suspicions += 1

    def _compare_only(self, uuids: Collection[str], adapter: CellAdapter, rereader: Rereader) -> None:
        compared = compare_cell(
            adapter,
            self._parts.writer,
            batch_size=self._parts.settings.sync_batch_size,
            owners=self._parts.owners,
            journal=self._journal.of_comparison(was_whole=self._was_whole),
            only=uuids,
            on_progress=lambda _: self.sign_of_life.give(),
            clock=self._parts.clock,
        )
        unsettled = {*compared.rejected, *self._moves.unsettled(compared.homeless.values())}
        self._tracker.mark_indexed(uuid for uuid in uuids if uuid not in unsettled)
        for instance_uuid in unsettled:
            rereader.add(instance_uuid)

    @property
    def _was_whole(self) -> bool:
        """Whether the index had the whole cell at some time, even if it lacks an instance now."""
        return self._tracker.snapshot().fresh_as_of > 0

    def _keep_up_journal(self) -> None:
        # A cell has no journal before the index has the whole of it.
        if not self._tracker.needs_sync:
            self._journal.keep_up()

    @property
    def _interval_s(self) -> float:
        return self._parts.settings.interval_s(self.cell) * (_AUDITED_LESS if self._is_log_followed else 1)

    def _next_comparison_s(self) -> float:
        """When the next comparison is due, on the monotonic clock, if no change was missed since the last one."""
        if self._is_log_followed:
            # A process that has just started does not know when the last comparison was.
            soon_s = time.monotonic() + self._parts.settings.interval_s(self.cell)
            return soon_s if self._compared_s is None else self._compared_s + self._interval_s
        compared_at = self._tracker.snapshot().fresh_as_of
        if self._tracker.needs_sync or not compared_at:
            return 0.0
        age_s = max(0, self._parts.clock() - compared_at) / MICROSECONDS_PER_SECOND
        return time.monotonic() + self._interval_s - age_s

    def _compare(
        self, consumer: Consumer, adapter: CellAdapter, rereader: Rereader, hints: ChangeHints | None, stop: Event
    ) -> float:
        """Compare the whole cell with the index; returns when the next comparison is due, on the monotonic clock.

        Between pages it takes hints, so that the index stays as fresh as it was.
        """

        def between_pages(_rows: int) -> None:
            self.sign_of_life.give()
            consumer.keep_alive()
            confirm()
            if hints is not None and not self._tracker.needs_sync:
                self._look(hints, adapter, rereader)
                self._publish_progress()
            self._keep_up_journal()
            if stop.is_set():
                raise StopRequestedError

        begun_s = time.monotonic()
        try:
            with self._parts.leases.bulk(self.cell) as confirm:
                self._health.activity = Activity.SYNCING
                consumer.drain()
                is_forced = self._hints_prove and self._is_suspect
                self._parts.metrics.comparisons.labels(self.cell.uuid, "forced" if is_forced else "due").inc()
                suspicions = self._suspicions
                compared = compare_cell(
                    adapter,
                    self._parts.writer,
                    batch_size=self._parts.settings.sync_batch_size,
                    owners=self._parts.owners,
                    journal=self._journal.of_comparison(was_whole=self._was_whole),
                    on_progress=between_pages,
                    clock=self._parts.clock,
                )
                # Suspicions that arose meanwhile need another comparison.
                self._is_suspect = self._suspicions != suspicions
        except LeaseHeldError:
            # Most likely another indexer compares the cell; its result counts for both.
            self._compare_due_s = time.monotonic() + min(_LEASE_RETRY_S, self._interval_s)
            return self._compare_due_s
        self._is_away = False
        self._compared_s = time.monotonic()
        # Hints that never name instances must not cause one comparison after the other.
        rests = _RESTS_OF_LOG if self._is_log_followed else _RESTS
        self._compare_due_s = self._compared_s + rests * (self._compared_s - begun_s)
        for instance_uuid in (*compared.rejected, *self._moves.unsettled(compared.homeless.values())):
            rereader.add(instance_uuid)
        self._tracker.mark_synced()
        self._tracker.heard(self._tracker.watermark, compared.began_at)
        if compared.written or compared.removed or not is_forced:
            _log.info(
                "indexer.compared",
                cell=self.cell.name,
                rows=compared.rows,
                written=compared.written,
                removed=compared.removed,
            )
        return time.monotonic() + self._interval_s

    def _publish_progress(self) -> None:
        super()._publish_progress()
        self._reached = replace(self._reached, log=self._log)
