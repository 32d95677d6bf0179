"""The follower of a cell that numbers no changes, as those of Nova: its notifications as they come, and all of it now
and then.

Its queue is bound before the first comparison begins, so whatever changes meanwhile is announced to us. Whatever was
lost on the way, or never announced (contracts/nova-notifications, section 10), the next comparison finds.
"""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from threading import Event

import structlog

from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.model import Cell, CellAdapter
from fleetlight.indexer.backends.base import CellProgress
from fleetlight.indexer.errors import LeaseHeldError, StopRequestedError
from fleetlight.indexer.reconcile.external_cell import ExternalRows, UnindexedMoves, compare_cell
from fleetlight.indexer.stream.cell_health import Activity
from fleetlight.indexer.stream.consumer import Consumer
from fleetlight.indexer.stream.follower import Follower, FollowerParts
from fleetlight.indexer.transform.batches import RowReading
from fleetlight.indexer.writing.journaling import CellJournal, JournalingWriter
from fleetlight.indexer.writing.ownership import OwnWriter, deployment_of
from fleetlight.indexer.writing.rereading import Rereader, rows_of
from fleetlight.notifications.errors import BusError
from fleetlight.resources.units import MICROSECONDS_PER_SECOND

_log = structlog.get_logger(__name__)

_LEASE_RETRY_S = 30.0


class ExternalFollower(Follower):
    """The follower of a cell that counts no revisions.

    Its progress has no watermark: `fresh_as_of` is when the last comparison began.
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

    def _follow(self, stop: Event) -> None:
        adapter = self._open_adapter(self.cell)
        try:
            journaling = JournalingWriter(self._open_writer(stop), self._journal)
            writer = OwnWriter(journaling, self.cell.uuid, self._parts.owners, deployment_of(adapter), has_rows=True)
            read_rows = partial(rows_of, adapter)
            reading = replace(self._reading, rows=RowReading(read_rows, self.cell.can.unknown_fields))
            self._moves = UnindexedMoves(adapter, self._parts.writer, self._parts.owners, {})
            render = ExternalRows(adapter, writer, self._moves).documents
            with self._consuming(writer, read_rows, reading, render=render) as (consumer, rereader):
                self._consume(consumer, adapter, rereader, stop)
        finally:
            adapter.close()

    def _consume(self, consumer: Consumer, adapter: CellAdapter, rereader: Rereader, stop: Event) -> None:
        # While the bus was away, or the queue was not bound yet, changes may have been announced to no queue.
        due_s = 0.0
        while not stop.is_set():
            bus_failure: BusError | None = None
            try:
                consumer.step()
            except BusError as error:
                # Without a bus the comparisons are all there is.
                bus_failure = error
                due_s = max(due_s, self._next_comparison_s())
            is_cell_away = False
            if time.monotonic() >= due_s:
                try:
                    due_s = self._compare(consumer, adapter, rereader, stop)
                except CellUnreachableError as error:
                    # What is announced meanwhile is believed, and read from the cell when it is back.
                    is_cell_away = True
                    self._health.report(error)
                    due_s = time.monotonic() + self._parts.settings.retry_wait_max_s
            self._publish_progress()
            if bus_failure is not None:
                raise bus_failure
            if consumer.is_idle:
                self.sign_of_life.give()
            self._health.activity = Activity.FOLLOWING
            self._keep_up_journal()
            if not is_cell_away and not self._tracker.unindexed and not self._tracker.needs_sync:
                self._health.recovered()
        consumer.drain()
        self._publish_progress()

    def _keep_up_journal(self) -> None:
        # There is none before the index has all of the cell.
        if not self._tracker.needs_sync:
            self._journal.keep_up()

    def _next_comparison_s(self) -> float:
        """When the next one is due, on the monotonic clock, as if nothing had been missed since the last one."""
        compared_at = self._tracker.snapshot().fresh_as_of
        if self._tracker.needs_sync or not compared_at:
            return 0.0
        age_s = max(0, self._parts.clock() - compared_at) / MICROSECONDS_PER_SECOND
        return time.monotonic() + self._parts.settings.interval_s(self.cell) - age_s

    def _compare(self, consumer: Consumer, adapter: CellAdapter, rereader: Rereader, stop: Event) -> float:
        """Compare the whole cell with the index; returns when to do that again, on the monotonic clock."""

        def between_pages(_rows: int) -> None:
            self.sign_of_life.give()
            consumer.keep_alive()
            confirm()
            self._keep_up_journal()
            if stop.is_set():
                raise StopRequestedError

        try:
            with self._parts.leases.bulk(self.cell) as confirm:
                self._health.activity = Activity.SYNCING
                consumer.drain()
                compared = compare_cell(
                    adapter,
                    self._parts.writer,
                    batch_size=self._parts.settings.sync_batch_size,
                    owners=self._parts.owners,
                    journal=self._journal.of_comparison(is_complete=not self._tracker.needs_sync),
                    on_progress=between_pages,
                    clock=self._parts.clock,
                )
        except LeaseHeldError:
            # Most likely by another indexer that does the same; if it has ended, its result counts for both.
            return time.monotonic() + min(_LEASE_RETRY_S, self._parts.settings.interval_s(self.cell))
        for instance_uuid in (*compared.rejected, *self._moves.unsettled(compared.homeless.values())):
            rereader.add(instance_uuid)
        self._tracker.mark_synced()
        self._tracker.heard(self._tracker.watermark, compared.began_at)
        _log.info(
            "indexer.compared",
            cell=self.cell.name,
            rows=compared.rows,
            written=compared.written,
            removed=compared.removed,
        )
        return time.monotonic() + self._parts.settings.interval_s(self.cell)
