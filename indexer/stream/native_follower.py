"""The follower of a cell that numbers its changes: it catches up or syncs, then consumes messages and repairs holes."""

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from threading import Event

import structlog

from fleetlight.cells.epochs import EpochHistory, Position
from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.cells.fleet.restored_cells import RestoredCell
from fleetlight.cells.model import Cell, ChangelogAdapter
from fleetlight.indexer.backends.base import CellProgress
from fleetlight.indexer.errors import CellRestoredError, StopRequestedError
from fleetlight.indexer.reconcile.announced import reconcile_announced
from fleetlight.indexer.reconcile.fill import CellRows, SyncResult, is_empty, sync_cell
from fleetlight.indexer.reconcile.native_cell import NativeComparison
from fleetlight.indexer.reconcile.other_items import reconcile_other_items
from fleetlight.indexer.reconcile.reconcile import verify
from fleetlight.indexer.reconcile.restored_cell import forget_lost_future
from fleetlight.indexer.stream.cell_health import Activity
from fleetlight.indexer.stream.consumer import Consumer
from fleetlight.indexer.stream.follower import Follower, FollowerParts
from fleetlight.indexer.transform.announcers import Announcers
from fleetlight.indexer.writing.announced import AnnouncedKeeper
from fleetlight.indexer.writing.catch_up import catch_up, reaches_back_to_the_beginning
from fleetlight.indexer.writing.checkpoints import FROM_CELLS, Checkpoints
from fleetlight.indexer.writing.epoch_history import History
from fleetlight.indexer.writing.kept_extras import ExtraFieldKeeper, keeping_extras
from fleetlight.indexer.writing.ownership import OwnWriter
from fleetlight.indexer.writing.rereading import Rereader, rows_of
from fleetlight.indexer.writing.retrying_writer import WritesAndReads
from fleetlight.resources.indexed_items import INDEXED_ITEMS

_log = structlog.get_logger(__name__)

_OTHERS_INTERVAL_S = 1.0
# How often the connection to the bus is kept alive while no message is received.
_WAIT_STEP_S = 0.5
# How long lists may ask a cell for items of which the index lost some.
_ITEMS_INTERVAL_S = 15.0
# How often the journal is pruned. If the fleet database is down the next attempt is earlier, but not soon: one that
# hangs costs 15 s, in which no message is received.
_ANNOUNCED_INTERVAL_S = 3600.0
_ANNOUNCED_RETRY_S = 60.0


class CellFollower(Follower):
    """Follows a cell that numbers its changes."""

    def __init__(
        self, cell: Cell, saved: CellProgress, parts: FollowerParts, open_adapter: Callable[[Cell], ChangelogAdapter]
    ) -> None:
        super().__init__(cell, saved, parts)
        self._open_adapter = open_adapter
        self._followed_as: str | None = None
        self._seen: Position | None = None
        self._reconciliations: int | None = None
        self._history: History | None = None
        self._items_due_s = 0.0
        self._announced = parts.journals.announced
        self._announcers = Announcers(cell, parts.announcer)
        self._keeper: AnnouncedKeeper | None = None
        self._announced_due_s = 0.0

    def _epoch_history(self) -> EpochHistory | None:
        return None if self._history is None else self._history.epoch_history

    def _follow(self, stop: Event) -> None:
        adapter = self._open_adapter(self.cell)
        try:
            self._keeper = AnnouncedKeeper(self._open_writer(stop), self.cell.uuid, self._announced)
            writer = OwnWriter(self._keeper, self.cell.uuid, self._parts.owners)
            history = History(
                adapter,
                self._parts.writer,
                lambda: self._tracker.watermark,
                self._followed_as,
                self._seen,
                reconciliations=self._reconciliations,
            )
            self._history = history
            read_rows = partial(rows_of, adapter)
            try:
                with self._consuming(
                    writer,
                    read_rows,
                    replace(self._reading, accepts=history.accepts, announcers=self._announcers, own_rows=read_rows),
                    rereads_to=ExtraFieldKeeper(writer, writer),
                    on_item_lost=self._distrust_items,
                ) as (consumer, rereader):
                    self._consume(consumer, adapter, writer, rereader, history=history, stop=stop)
            finally:
                self._followed_as, self._seen = history.followed_as, history.seen
                self._reconciliations = history.reconciliations
        finally:
            adapter.close()

    def _consume(
        self,
        consumer: Consumer,
        adapter: ChangelogAdapter,
        writer: WritesAndReads,
        rereader: Rereader,
        *,
        history: History,
        stop: Event,
    ) -> None:
        def repair() -> None:
            if history.was_restored():
                self._forget_lost_future(consumer, adapter, rereader, history=history, stop=stop)
            self._bring_up_to_date(consumer, adapter, writer, rereader, history=history, stop=stop)

        repair()
        tracker = self._tracker
        others_due_s = 0.0
        while not stop.is_set():
            consumer.step()
            if consumer.is_idle:
                self.sign_of_life.give()
            self._publish_progress()
            self._health.recovered()
            now_s = time.monotonic()
            if now_s >= self._items_due_s:
                self._complete_items(adapter, consumer.keep_alive)
            if now_s >= self._announced_due_s:
                self._complete_announced(adapter, writer, consumer.keep_alive)
            hole_age_s = tracker.hole_age_s(now_s)
            if hole_age_s >= self._parts.settings.hole_timeout_s:
                self._parts.metrics.holes.labels(self.cell.uuid).inc()
                _log.warning(
                    "indexer.hole",
                    cell=self.cell.name,
                    missing=tracker.watermark + 1,
                    highest_known=tracker.highest_known,
                )
                consumer.drain()
                repair()
            elif hole_age_s and now_s >= others_due_s and consumer.is_idle:
                # Most likely the indexer before this one had the missing change, and saves its progress in a moment.
                others_due_s = now_s + _OTHERS_INTERVAL_S
                self._learn_from_others(adapter, history)
        consumer.drain()
        self._publish_progress()

    def _bring_up_to_date(
        self,
        consumer: Consumer,
        adapter: ChangelogAdapter,
        writer: WritesAndReads,
        rereader: Rereader,
        *,
        history: History,
        stop: Event,
    ) -> None:
        """Write every change that the cell has published until now, from its rows and changelog instead of the bus."""

        def between_batches() -> None:
            self.sign_of_life.give()
            consumer.keep_alive()
            self._publish_progress()
            if stop.is_set():
                raise StopRequestedError

        def between_changes() -> None:
            history.has_read_on()
            between_batches()

        tracker = self._tracker
        # An indexer that stood by for long would write forgotten rows again, and show them until it reaches the change
        # that deleted them.
        if not tracker.needs_sync:
            self._learn_from_others(adapter, history)
        # Replay only from the very beginning: a change before the watermark may be one that could not be indexed.
        replays_everything = tracker.watermark == 0 and reaches_back_to_the_beginning(adapter)
        if tracker.needs_sync and (replays_everything or is_empty(adapter)):
            tracker.mark_synced()
        needs_sync = tracker.needs_sync
        while True:
            if needs_sync:
                self._sync(adapter, writer, rereader, history=history, between_batches=between_batches)
            self._health.activity = Activity.CATCHING_UP
            if catch_up(
                adapter,
                writer,
                tracker,
                announcer=self._announcers.outbox,
                dead_letters=consumer.give_up,
                batch_size=self._parts.settings.sync_batch_size,
                on_batch=between_changes,
                horizon=self.horizon,
                clock=self._parts.clock,
            ):
                break
            needs_sync = not self._learn_from_others(adapter, history)
        for instance_uuid in tracker.unindexed:
            rereader.add(instance_uuid)
        # The relay assigns sequences before it publishes them, so a message that named a higher one is not this cell's,
        # and its hole would stay open for ever.
        tracker.disbelieve_beyond(adapter.published_sequence())
        tracker.forget_hole()
        self._complete_items(adapter, between_batches)
        self._complete_announced(adapter, writer, between_batches)
        self._publish_progress()
        self._health.activity = Activity.FOLLOWING

    def _sync(
        self,
        adapter: ChangelogAdapter,
        writer: WritesAndReads,
        rereader: Rereader,
        *,
        history: History,
        between_batches: Callable[[], None],
    ) -> None:
        """Write all rows of the cell, each as of some moment after this began. Raises LeaseHeldError."""
        tracker = self._tracker
        with self._parts.leases.bulk(self.cell) as confirm:
            if not self._started_over and self._learn_from_others(adapter, history):
                # The previous holder of the lease has synced the cell; its progress must stay.
                tracker.mark_synced()
                return

            def on_progress(_rows: int) -> None:
                between_batches()
                confirm()

            self._health.activity = Activity.SYNCING
            _log.info("indexer.sync_started", cell=self.cell.name)
            self._start_over()
            self._distrust_items()
            result = sync_cell(
                adapter,
                keeping_extras(writer, writer, self._parts.writer),
                batch_size=self._parts.settings.sync_batch_size,
                horizon=self.horizon,
                checkpoints=Checkpoints(self._parts.writer, self.cell.uuid, FROM_CELLS),
                on_progress=on_progress,
            )
        self._go_on_from(result, rereader, history)
        _log.info("indexer.sync_finished", cell=self.cell.name, rows=result.rows)

    def _go_on_from(self, result: SyncResult, rereader: Rereader, history: History) -> None:
        """Continue after a sync. Raises CellRestoredError if the cell was restored meanwhile."""
        if result.has_gone_back:
            history.begin_reconcile()
            raise CellRestoredError(self.cell.name)
        history.seen = result.seen
        self._tracker.advance_to(result.sequence)
        history.has_read_on()
        self._tracker.mark_synced()
        for instance_uuid in result.rejected:
            rereader.add(instance_uuid)

    def _forget_lost_future(
        self, consumer: Consumer, adapter: ChangelogAdapter, rereader: Rereader, *, history: History, stop: Event
    ) -> None:
        """Make the index equal to a restored cell, without the changes that the cell lost. Raises LeaseHeldError."""

        def between_steps() -> None:
            consumer.keep_alive()
            if stop.is_set():
                raise StopRequestedError
            confirm()

        def save() -> None:
            with self._parts.saving:
                self._parts.writer.save_progress([self.progress])

        def take_back() -> None:
            self._start_over()
            self._items_due_s = 0.0
            save()

        def pause(seconds: float) -> None:
            deadline_s = time.monotonic() + seconds
            while (left_s := deadline_s - time.monotonic()) > 0:
                self.sign_of_life.give()
                stop.wait(min(left_s, _WAIT_STEP_S))
                between_steps()

        with self._parts.leases.bulk(self.cell) as confirm:
            self._health.activity = Activity.SYNCING
            if history.was_reconciled_by_another():
                self._follow_another(adapter, history, pause, between_steps)
                return
            watermark, last = self._tracker.watermark, adapter.published_sequence()
            _log.warning("indexer.cell_was_restored", cell=self.cell.name, watermark=watermark, last_sequence=last)
            # Record it first: nothing shows it after the repair of the index.
            self._parts.note_restored(self.cell.uuid, RestoredCell(self._parts.clock(), watermark, last))
            followed = forget_lost_future(
                CellRows(adapter, batch_size=self._parts.settings.sync_batch_size, horizon=self.horizon),
                self._parts.writer,
                history,
                take_back=take_back,
                pause=pause,
                on_step=between_steps,
                owners=self._parts.owners,
                lists_delay_s=self._parts.lists_delay_s,
            )
            self._go_on_from(followed.result, rereader, history)
            self._publish_progress()
            # Save under the lease: the next indexer with the lease continues from here.
            save()
            self._parts.metrics.restores.labels(self.cell.uuid).inc()
            _log.info("indexer.cell_reconciled", cell=self.cell.name, differences=followed.differences)

    def _follow_another(
        self,
        adapter: ChangelogAdapter,
        history: History,
        pause: Callable[[float], object],
        on_step: Callable[[], None],
    ) -> None:
        """Continue from the progress of another indexer, which has already made the index equal to the restored cell.

        Changes of the lost future that this indexer wrote meanwhile differ in revision from the repaired rows, so
        digests find them.
        """
        comparison = NativeComparison(
            adapter,
            self._parts.writer,
            catch_up_timeout_s=0,
            owners=self._parts.owners,
            pause=lambda _: pause(self._parts.lists_delay_s),
        )
        found = verify(comparison, repair=True, on_progress=lambda _steps, _differences: on_step())
        saved = self._parts.writer.load_progress().get(self.cell.uuid)
        self._tracker.start_over()
        if saved is not None and saved.is_complete:
            self._tracker.advance_to(saved.watermark)
            self._tracker.mark_synced()
        history.follow_another()
        self._publish_progress()
        _log.info("indexer.cell_reconciled_by_another", cell=self.cell.name, differences=len(found.differences))

    def _distrust_items(self) -> None:
        """Make lists ask the cell for items until they are compared, since the index may lack some."""
        for item_type in INDEXED_ITEMS:
            self._parts.writer.mark_items(item_type, self.cell.uuid, are_whole=False)
        self._items_due_s = 0.0

    def _complete_items(self, adapter: ChangelogAdapter, on_step: Callable[[], None]) -> None:
        """Repair the items of each type of which the index lacks some."""
        self._items_due_s = time.monotonic() + _ITEMS_INTERVAL_S
        for item_type in INDEXED_ITEMS:
            if self._parts.writer.are_items_whole(item_type, self.cell.uuid):
                continue
            # No lease for bulk work: it takes a moment, and two indexers that do it at once do no harm.
            verification = reconcile_other_items(adapter, self._parts.writer, item_type, on_step)
            for difference in verification.remaining:
                _log.error(
                    "indexer.item_rejected",
                    cell=self.cell.name,
                    item_type=item_type,
                    item=difference.uuid,
                    reason=difference.problem,
                )
            _log.info("indexer.items_synced", cell=self.cell.name, item_type=item_type, rows=verification.rows)

    def _complete_announced(
        self, adapter: ChangelogAdapter, writer: WritesAndReads, on_step: Callable[[], None]
    ) -> None:
        """Make index and journal agree on instances that only notifications from outside announce."""
        self._announced_due_s = time.monotonic() + _ANNOUNCED_RETRY_S
        try:
            self._parts.writer.make_searchable()
            restored = reconcile_announced(
                self.cell.uuid,
                self._parts.writer,
                writer,
                self._announced,
                partial(rows_of, adapter),
                horizon=self.horizon,
                on_step=on_step,
            )
        except FleetUnreachableError as error:
            _log.warning("indexer.announced_not_kept", cell=self.cell.name, reason=error.reason)
            return
        if self._keeper is not None:
            self._keeper.needs_comparison = False
        self._announced_due_s = time.monotonic() + _ANNOUNCED_INTERVAL_S
        if restored:
            _log.info("indexer.announced_restored", cell=self.cell.name, count=restored)

    def _learn_from_others(self, adapter: ChangelogAdapter, history: History) -> bool:
        """Continue from the progress of another indexer, if that is ahead of this one; False if none is."""
        saved = self._parts.writer.load_progress().get(self.cell.uuid)
        if saved is None or not saved.is_complete:
            return False
        if not self._tracker.watermark < saved.watermark <= adapter.published_sequence():
            return False
        if not history.covers(saved.watermark):
            return False
        self._tracker.advance_to(saved.watermark)
        history.has_read_on()
        return True
