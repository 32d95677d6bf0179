"""The indexer: a follower for each cell of the fleet, and what they share: what was written is made searchable for all
of them at once, and only then their progress is saved, so that a saved watermark never promises what nobody can find.
"""

import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial
from threading import Event
from typing import Protocol

import structlog

from fleetlight.bus.bus import Headers
from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.cells.kinds.opening import open_adapter as open_external_adapter
from fleetlight.cells.model import Cell, CellAdapter, ChangelogAdapter
from fleetlight.cells.retrying import retrying_until
from fleetlight.indexer.backends.base import CellProgress, IndexWriter
from fleetlight.indexer.errors import (
    IndexerError,
    IndexReplacedError,
    IndexUnavailableError,
    LeaseHeldError,
    RebuildRunningError,
)
from fleetlight.indexer.metrics import IndexerMetrics
from fleetlight.indexer.reconcile.audit import Audited
from fleetlight.indexer.reconcile.retention import LISTS_GRACE_S, load_horizons
from fleetlight.indexer.settings import IndexerSettings
from fleetlight.indexer.stream.cell_assignment import surplus
from fleetlight.indexer.stream.consumer import MessageSource
from fleetlight.indexer.stream.external_follower import ExternalFollower
from fleetlight.indexer.stream.follower import Activity, CellHealth, Follower, Shared
from fleetlight.indexer.stream.liveness import Heartbeat
from fleetlight.indexer.stream.native_follower import CellFollower
from fleetlight.indexer.stream.saved_progress import SavedProgress
from fleetlight.indexer.transform.announcers import KnowsAnnouncers, no_producers
from fleetlight.indexer.writing.dead_letters import FailureStore
from fleetlight.indexer.writing.journaling import JournalStore
from fleetlight.indexer.writing.leases import CellLeases
from fleetlight.indexer.writing.ownership import KnowsOwners, PromptOwners
from fleetlight.notifications.errors import BusError
from fleetlight.resources.clock import Clock, system_clock

_log = structlog.get_logger(__name__)

_SHARE_INTERVAL_S = 3.0
# A write that is under way ends sooner. All cells wait for it.
_LEAVE_PATIENCE_S = 2.0


class CountsFailures(FailureStore, Protocol):
    """What the indexer needs of fleetlight.cells.fleet.failures.FailedMessages; raises FleetUnreachableError."""

    def counts(self) -> Mapping[str, int]: ...
    def dropped(self) -> Mapping[str, int]: ...


class ReleasesBus(Protocol):
    """Has the queue of a cell get nothing more from somebody else's exchange, or removes it; raises BusError."""

    def __call__(self, cell: Cell, *, is_gone: bool) -> None: ...


def _release_nothing(cell: Cell, *, is_gone: bool) -> None:
    """For buses where nobody else sends anything."""


@dataclass(frozen=True, slots=True)
class _Running:
    follower: Follower
    stop: Event
    threads: ThreadPoolExecutor
    done: Future[None]


class IndexerService:
    """Follows every enabled cell of a fleet.

    cells: the cells of the fleet; raises FleetUnreachableError. open_adapter, for native cells, and open_external, for
    all others, raise CellUnreachableError, open_receiver BusError. writer, leases: shared by all, and closed by whoever
    opened them. owners, is_of_relay, announcer: see Shared. failures: where dead letters are kept;
    journals: where it is told what changes in cells that number nothing. release_bus: called for a cell of somebody
    else that was left and that nobody is to follow. lists_grace_s: see Shared.
    A cell is followed under a lease, so that nobody removes it meanwhile. When the leases were lost with the connection
    to the fleet database the followers go on, since a removal needs that database too; as soon as it is back they all
    start anew, from the progress that is saved then.
    A bus, cell or index that fails is waited out, for its cell alone; `health` tells. Anything else is a mistake of
    this program: `run` stops all followers and raises it, since a silent drift is worse than an indexer that stops.
    """

    def __init__(
        self,
        *,
        cells: Callable[[], Sequence[Cell]],
        open_adapter: Callable[[Cell], ChangelogAdapter],
        open_receiver: Callable[[Cell], MessageSource],
        writer: IndexWriter,
        leases: CellLeases,
        owners: KnowsOwners,
        is_of_relay: Callable[[str, Headers, bytes], bool],
        failures: CountsFailures,
        journals: JournalStore,
        announcer: KnowsAnnouncers = no_producers,
        settings: IndexerSettings,
        refresh_interval_s: float,
        cells_refresh_interval_s: float,
        metrics: IndexerMetrics,
        open_external: Callable[[Cell], CellAdapter] = open_external_adapter,
        clock: Clock = system_clock,
        release_bus: ReleasesBus = _release_nothing,
        lists_grace_s: float = LISTS_GRACE_S,
    ) -> None:
        self._cells = cells
        self._release_bus = release_bus
        self._open_adapter = open_adapter
        self._open_external = open_external
        self._shared = Shared(
            open_receiver,
            writer,
            leases,
            PromptOwners(owners),
            is_of_relay,
            failures,
            journals,
            settings,
            metrics,
            clock,
            lists_grace_s=lists_grace_s,
            announcer=announcer,
        )
        self._writer = writer
        self._leases = leases
        self._failures = failures
        self._settings = settings
        self._refresh_interval_s = refresh_interval_s
        self._allow_due_s = 0.0
        self._cells_refresh_interval_s = cells_refresh_interval_s
        self._metrics = metrics
        self._running: dict[str, _Running] = {}
        self._saved = SavedProgress(writer, clock)
        self._unreleased: dict[str, Cell] = {}
        self._heartbeat = Heartbeat()
        self._is_prepared = False
        self._index_problem: str | None = None
        self._fleet_problem: str | None = None
        self._share_due_s = 0.0
        self._beside: Collection[Future[None]] = ()

    def run(self, stop: Event, beside: Collection[Future[None]] = ()) -> None:
        """Follow the cells until `stop` is set; then finish what was received, save the progress and return.

        beside: what else this process does for the index; a mistake there is one of this program too.

        When another index took the place of the one that was prepared, nothing that the followers know is true of that
        one, so all start again with what it says. Raises IndexRequestError when the index cannot be prepared.
        """
        self._beside = beside
        while not stop.is_set():
            try:
                if self._prepare(stop):
                    self._follow_all(stop)
            except IndexReplacedError as error:
                _log.warning("indexer.index_replaced", index=error.name, reason=str(error))
                self._metrics.index_replaced()
                self._abandon_all()

    def _follow_all(self, stop: Event) -> None:
        """As `run`, of the index that was prepared; raises IndexReplacedError with followers that still run."""
        cells_due_s = 0.0
        refresh_due_s = time.monotonic()
        try:
            while not stop.is_set():
                if time.monotonic() >= cells_due_s or self._is_leaving_some:
                    pause_s = self._cells_refresh_interval_s if self._update_cells() else self._refresh_interval_s
                    cells_due_s = time.monotonic() + pause_s
                self._heartbeat.beat()
                # What a refresh takes does not come on top of the interval, unless it takes longer than that.
                refresh_due_s = max(refresh_due_s + self._refresh_interval_s, time.monotonic())
                stop.wait(refresh_due_s - time.monotonic())
                self._refresh()
                self._share()
                self._heartbeat.beat()
                self._raise_mistakes()
        except IndexReplacedError:
            raise
        except BaseException:
            self._leave(set(self._running))
            raise
        self._leave(set(self._running))

    def _abandon_all(self) -> None:
        """Stop all followers; what they have reached is not saved."""
        running, self._running = self._running, {}
        for each in running.values():
            each.stop.set()
        wait([each.done for each in running.values()])
        for uuid, each in running.items():
            each.threads.shutdown()
            self._saved.forget(uuid)
            self._leases.leave(uuid)

    @property
    def health(self) -> Mapping[str, CellHealth]:
        """How it stands with each cell that is followed, by uuid."""
        return {uuid: running.follower.health for uuid, running in list(self._running.items())}

    @property
    def audited(self) -> Mapping[str, Audited]:
        """The cells that number their changes and that this indexer keeps up now, by uuid."""
        followers = {uuid: running.follower for uuid, running in list(self._running.items())}
        return {
            uuid: Audited(follower.cell, partial(_watermark, follower))
            for uuid, follower in followers.items()
            if follower.cell.can.numbers_changes
            and follower.assignment.is_active
            and follower.health == CellHealth(Activity.FOLLOWING, None)
        }

    @property
    def problem(self) -> str | None:
        """What is wrong with the index or the fleet database, for all cells; None while all is well."""
        return self._index_problem or self._fleet_problem

    @property
    def cell_states(self) -> Mapping[str, str]:
        """What is done about each cell, by its name; `waiting` while it is not followed for some reason."""
        followers = [running.follower for running in list(self._running.values())]
        return {
            follower.cell.name: "waiting" if follower.health.problem else follower.health.activity.value
            for follower in followers
        }

    @property
    def is_prepared(self) -> bool:
        """Whether the index has everything that is written to or read from."""
        return self._is_prepared

    @property
    def is_ready(self) -> bool:
        """Whether the index takes what the followers bring."""
        return self._is_prepared and self._index_problem is None

    @property
    def stuck(self) -> Sequence[str]:
        """Names of the cells whose work has not got done for `liveness_timeout_s` although nothing is waited for.

        An empty name stands for what is done for all cells.
        """
        heartbeats = {
            running.follower.cell.name: running.follower.heartbeat for running in list(self._running.values())
        }
        return [
            name
            for name, heartbeat in {"": self._heartbeat, **heartbeats}.items()
            if heartbeat.silent_s > self._settings.liveness_timeout_s
        ]

    def _prepare(self, stop: Event) -> bool:
        def before_wait(error: IndexerError, _attempt: int, _wait_s: float) -> None:
            self._heartbeat.beat()
            self._index_failed(error)
            if self._is_prepared:
                self._allow_writes()

        def prepare() -> None:
            self._writer.prepare()
            self._index_works()
            self._is_prepared = True

        self._heartbeat.beat()
        longest_wait_s = min(self._refresh_interval_s, self._settings.retry_wait_max_s)
        # What is refused at the start a person has to put right; later it may be half of what an operator does to it.
        waited_out = IndexerError if self._is_prepared else IndexUnavailableError
        retrying_until(stop, waited_out, before_wait, longest_wait_s=longest_wait_s)(prepare)
        return self._is_prepared and not stop.is_set()

    def _update_cells(self) -> bool:
        """Follow the cells that there are now; False when that has to be done again soon."""
        try:
            lost = [uuid for uuid in self._running if not self._leases.is_following(uuid)]
            cells = self._wanted_cells()
            # A cell whose addresses changed is followed anew.
            unwanted = {
                uuid
                for uuid, running in self._running.items()
                if cells.get(uuid) != running.follower.cell or running.stop.is_set()
            }
            followed = {uuid: self._running[uuid].follower.cell for uuid in unwanted.union(lost)}
            left = self._leave(followed.keys(), deadline_s=_LEAVE_PATIENCE_S)
            for uuid in left:
                _log.info("indexer.cell_left", cell=followed[uuid].name)
            self._unreleased |= {
                uuid: followed[uuid] for uuid in left - cells.keys() if _is_bound_elsewhere(followed[uuid])
            }
            new = cells.keys() - self._running.keys()
            if new:
                self._start_followers(new)
            for uuid, horizon in load_horizons(self._writer).items():
                if uuid in self._running:
                    self._running[uuid].follower.horizon = horizon
            self._release_buses()
            self._metrics.failures_kept(cells, self._failures.counts(), self._failures.dropped())
            if any(health.problem for health in self.health.values()):
                self._allow_writes()
        except IndexUnavailableError as error:
            self._index_failed(error)
            return False
        except FleetUnreachableError as error:
            if self._fleet_problem is None:
                _log.warning("indexer.fleet_unreachable", reason=error.reason)
            self._fleet_problem = str(error)
        else:
            if self._fleet_problem is not None:
                _log.info("indexer.fleet_reachable_again")
            self._fleet_problem = None
        return True

    @property
    def _is_leaving_some(self) -> bool:
        return any(running.stop.is_set() for running in self._running.values())

    def _release_buses(self) -> None:
        """See that no queue goes on filling of a cell that was left, and is disabled or removed.

        Whoever disables or removes a cell does so too, when nobody follows it. But a follower whose lease was lost is
        not waited for, and may have reconnected, and bound the queue again, since then.
        """
        for uuid, cell in list(self._unreleased.items()):
            if uuid not in self._running:
                try:
                    with self._leases.unfollowed(cell, deadline_s=0, on_wait=lambda _: None):
                        known = next((each for each in self._cells() if each.uuid == uuid), None)
                        if known is None or known.disabled:
                            self._release_bus(cell, is_gone=known is None)
                except LeaseHeldError:
                    # By whoever leaves it last, removes it, or follows it again: the next look tells.
                    continue
                except BusError as error:
                    _log.warning("indexer.queue_stays_bound", cell=cell.name, reason=str(error))
            del self._unreleased[uuid]

    def _allow_writes(self) -> None:
        """A rebuild that was killed at its end, or an operator, may have left an index that takes nothing."""
        if time.monotonic() < self._allow_due_s:
            return
        self._allow_due_s = time.monotonic() + self._cells_refresh_interval_s
        try:
            with self._leases.rebuild():
                self._writer.allow_writes()
        except (RebuildRunningError, FleetUnreachableError):
            return
        except IndexerError as error:
            self._index_failed(error)

    def _wanted_cells(self) -> dict[str, Cell]:
        return {cell.uuid: cell for cell in self._cells() if not cell.disabled}

    def _leave(self, uuids: Collection[str], deadline_s: float | None = None) -> Set[str]:
        """Stop to follow; a lease is given back when nothing more is written for its cell, not even its progress.

        deadline_s: None waits for all of them. Returns which were left: others go on waiting, for a cell that hangs as
        it may, and are left the next time; meanwhile nobody else is to wait for them.
        """
        if not uuids:
            return set()
        new = [uuid for uuid in uuids if not self._running[uuid].stop.is_set()]
        for uuid in new:
            self._running[uuid].stop.set()
        wait([self._running[uuid].done for uuid in (new if deadline_s is not None else uuids)], deadline_s)
        left = {uuid for uuid in uuids if self._running[uuid].done.done()}
        for uuid in left:
            self._running[uuid].threads.shutdown()
        self._refresh()
        for uuid in left:
            del self._running[uuid]
            self._saved.forget(uuid)
            self._leases.leave(uuid)
        return left

    def _start_followers(self, uuids: Collection[str]) -> None:
        """Follow the cells that nobody is removing, unless they were disabled or removed before we had the lease."""
        leased = set()
        try:
            for uuid in uuids:
                if self._leases.follow(uuid):
                    leased.add(uuid)
            cells = self._wanted_cells()
            # Somebody else may have followed, synced or removed a cell since we read its progress last.
            self._saved.learn(cells.keys() & leased)
            horizons = load_horizons(self._writer)
            for uuid in cells.keys() & leased:
                self._start_follower(cells[uuid], horizons.get(uuid, 0))
        finally:
            for uuid in leased - self._running.keys():
                self._leases.leave(uuid)

    def _start_follower(self, cell: Cell, horizon: int) -> None:
        saved = self._saved.of(cell.uuid)
        follower: Follower
        if cell.can.numbers_changes:
            follower = CellFollower(cell, saved, self._shared, self._open_adapter)
        else:
            follower = ExternalFollower(cell, saved, self._shared, self._open_external)
        follower.horizon = horizon
        self._metrics.cell_followed(follower.reached.progress)
        stop = Event()
        threads = ThreadPoolExecutor(1, thread_name_prefix=f"indexer-{cell.name}")
        self._running[cell.uuid] = _Running(follower, stop, threads, threads.submit(follower.run, stop))
        _log.info("indexer.cell_started", cell=cell.name)

    def _refresh(self) -> None:
        """Make what was written searchable, then save the progress that was true before that."""
        followed = [running.follower.reached for running in self._running.values()]
        highest_known = {uuid: running.follower.highest_known for uuid, running in self._running.items()}
        try:
            self._writer.make_searchable()
            with self._shared.saving:
                # A follower that has gone back meanwhile has said so itself: what it had promised is not true any more.
                taken_back = self._saved.save(
                    [reached for reached in followed if not self._has_gone_back(reached.progress)]
                )
        except IndexReplacedError:
            raise
        except IndexerError as error:
            self._index_failed(error)
            self._allow_writes()
            return
        self._index_works()
        for uuid in taken_back:
            running = self._running[uuid]
            if not running.stop.is_set():
                _log.info("indexer.progress_taken_back", cell=running.follower.cell.name)
                # It is left then, and followed anew from what the index says.
                running.stop.set()
        for reached in followed:
            self._metrics.searchable(reached.progress, highest_known[reached.progress.cell_uuid])

    def _has_gone_back(self, progress: CellProgress) -> bool:
        return self._running[progress.cell_uuid].follower.progress.watermark < progress.watermark

    def _share(self) -> None:
        """Let another indexer have what this one has more of than is fair."""
        assignments = {uuid: running.follower.assignment for uuid, running in self._running.items()}
        for uuid, assignment in assignments.items():
            self._metrics.active(uuid, is_active=assignment.is_active)
        now_s = time.monotonic()
        # While it is not known who else there is, nothing more is asked that may take its time to fail.
        if now_s < self._share_due_s or self._fleet_problem is not None:
            return
        self._share_due_s = now_s + _SHARE_INTERVAL_S
        try:
            counts = self._leases.followers(assignments.keys())
        except FleetUnreachableError:
            return
        for uuid, assignment in assignments.items():
            assignment.indexers = max(1, counts.get(uuid, 0))
        for assignment in surplus(list(assignments.values()), now_s, random.sample):
            assignment.is_to_end = True

    def _index_failed(self, error: IndexerError) -> None:
        if self._index_problem is None:
            _log.warning("indexer.index_unavailable", reason=str(error))
        self._index_problem = str(error)
        # Also where no change comes that the index would have to take.
        for uuid in list(self._running):
            self._metrics.failed(uuid, type(error).__name__)

    def _index_works(self) -> None:
        if self._index_problem is not None:
            _log.info("indexer.index_available_again")
        self._index_problem = None

    def _raise_mistakes(self) -> None:
        for done in (*(running.done for running in self._running.values()), *self._beside):
            if done.done():
                done.result()


def _watermark(follower: Follower) -> int:
    return follower.progress.watermark


def _is_bound_elsewhere(cell: Cell) -> bool:
    return not cell.can.numbers_changes and bool(cell.transport_url)
