"""The indexer: it runs a follower for each cell of the fleet. It refreshes the index for all of them at once, and only
then saves their progress, so that a search finds everything that a saved watermark promises.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from threading import Event

import structlog

from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.cells.kinds.opening import open_adapter as open_external_adapter
from fleetlight.cells.model import Cell, CellAdapter, ChangelogAdapter
from fleetlight.cells.retrying import retrying_until
from fleetlight.indexer.backends.base import CELL_FACTS, CellProgress
from fleetlight.indexer.backends.seal import SealState
from fleetlight.indexer.errors import (
    IndexerError,
    IndexReplacedError,
    IndexUnavailableError,
    RebuildRunningError,
)
from fleetlight.indexer.reconcile.audit import AuditedCell
from fleetlight.indexer.reconcile.retention import load_horizons
from fleetlight.indexer.stream.bus_releases import BusReleases, ReleasesBus, release_nothing
from fleetlight.indexer.stream.cell_assignment import FairShares
from fleetlight.indexer.stream.cell_health import Activity, CellHealth
from fleetlight.indexer.stream.external_follower import ExternalFollower
from fleetlight.indexer.stream.follower import Follower, FollowerParts
from fleetlight.indexer.stream.liveness import SignOfLife
from fleetlight.indexer.stream.native_follower import CellFollower
from fleetlight.indexer.stream.saved_progress import SavedProgress
from fleetlight.indexer.writing.ownership import PromptOwners

_log = structlog.get_logger(__name__)

# A write under way usually ends sooner. All cells wait so long for a follower to stop.
_LEAVE_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class _Running:
    follower: Follower
    stop: Event
    threads: ThreadPoolExecutor
    done: Future[None]


class IndexerService:
    """Follows every enabled cell of a fleet.

    cells: returns the cells of the fleet; raises FleetUnreachableError. open_adapter, for native cells, and
    open_external, for all others, raise CellUnreachableError. parts: for all followers; the caller closes them.
    release_bus: removes the queue of a cell with a bus of another program after this indexer left the cell.

    A follower holds a lease on its cell, so that no process removes the cell meanwhile. If the leases are lost with the
    connection to the fleet database, the followers continue, since a removal needs that database too; when it is back,
    all of them start anew from the saved progress.

    If a bus, cell or index fails, only the follower of that cell waits; `health` shows it. Any other error is a mistake
    of this program: `run` stops all followers and raises it, since an index that drifts in silence is worse than an
    indexer that stops.
    """

    def __init__(
        self,
        cells: Callable[[], Sequence[Cell]],
        parts: FollowerParts,
        *,
        open_adapter: Callable[[Cell], ChangelogAdapter],
        open_external: Callable[[Cell], CellAdapter] = open_external_adapter,
        refresh_interval_s: float,
        cells_refresh_interval_s: float,
        release_bus: ReleasesBus = release_nothing,
    ) -> None:
        self._cells = cells
        self._parts = replace(parts, owners=PromptOwners(parts.owners), release_bus=release_bus)
        self._open_adapter = open_adapter
        self._open_external = open_external
        self._refresh_interval_s = refresh_interval_s
        self._cells_refresh_interval_s = cells_refresh_interval_s
        self._allow_due_s = 0.0
        self._running: dict[str, _Running] = {}
        self._saved = SavedProgress(parts.writer, parts.clock)
        self._shares = FairShares(parts.leases, parts.metrics)
        self._bus_releases = BusReleases(cells, parts.leases, release_bus)
        self._sign_of_life = SignOfLife()
        self._is_prepared = False
        self._index_problem: str | None = None
        self._fleet_problem: str | None = None
        self._beside: Collection[Future[None]] = ()

    def run(self, stop: Event, beside: Collection[Future[None]] = ()) -> None:
        """Follow the cells until `stop` is set; then finish received messages, save the progress and return.

        beside: other work of this process for the index; its errors are raised as well. If another index replaces the
        prepared one, all followers start anew with the progress in that index. Raises IndexRequestError if the index
        cannot be prepared.
        """
        self._beside = beside
        while not stop.is_set():
            try:
                if self._prepare(stop):
                    self._follow_all(stop)
            except IndexReplacedError as error:
                _log.warning("indexer.index_replaced", index=error.name, reason=str(error))
                self._parts.metrics.replacements.inc()
                self._abandon_all()

    def _follow_all(self, stop: Event) -> None:
        """As `run`, for one prepared index. Raises IndexReplacedError while followers still run."""
        cells_due_s = 0.0
        refresh_due_s = time.monotonic()
        try:
            while not stop.is_set():
                if time.monotonic() >= cells_due_s or self._is_leaving_some:
                    pause_s = self._cells_refresh_interval_s if self._update_cells() else self._refresh_interval_s
                    cells_due_s = time.monotonic() + pause_s
                self._sign_of_life.give()
                # The duration of a refresh is part of the interval, unless it is longer.
                refresh_due_s = max(refresh_due_s + self._refresh_interval_s, time.monotonic())
                stop.wait(refresh_due_s - time.monotonic())
                self._refresh()
                assignments = {uuid: running.follower.assignment for uuid, running in self._running.items()}
                self._shares.update(assignments, knows_fleet=self._fleet_problem is None)
                self._sign_of_life.give()
                self._raise_mistakes()
        except IndexReplacedError:
            raise
        except BaseException:
            self._leave(set(self._running))
            raise
        self._leave(set(self._running))

    def _abandon_all(self) -> None:
        """Stop all followers without saving their progress."""
        running, self._running = self._running, {}
        for each in running.values():
            each.stop.set()
        wait([each.done for each in running.values()])
        for uuid, each in running.items():
            each.threads.shutdown()
            self._saved.forget(uuid)
            self._parts.leases.leave(uuid)

    @property
    def health(self) -> Mapping[str, CellHealth]:
        """The health of each follower, by the uuid of its cell."""
        return {uuid: running.follower.health for uuid, running in list(self._running.items())}

    @property
    def audited(self) -> Mapping[str, AuditedCell]:
        """The native cells that this indexer follows actively and without a problem, by uuid."""
        followers = {uuid: running.follower for uuid, running in list(self._running.items())}
        return {
            uuid: AuditedCell(follower.cell, partial(_watermark, follower))
            for uuid, follower in followers.items()
            if follower.cell.can.numbers_changes
            and follower.assignment.is_active
            and follower.health == CellHealth(Activity.FOLLOWING, None)
        }

    @property
    def problem(self) -> str | None:
        """The problem of the index or the fleet database, for all cells; None if there is none."""
        return self._index_problem or self._fleet_problem

    @property
    def cell_states(self) -> Mapping[str, str]:
        """The activity of each follower, by the name of its cell; `waiting` if it has a problem."""
        followers = [running.follower for running in list(self._running.values())]
        return {
            follower.cell.name: "waiting" if follower.health.problem else follower.health.activity.value
            for follower in followers
        }

    @property
    def is_prepared(self) -> bool:
        """Whether the index has all its parts for reads and writes."""
        return self._is_prepared

    @property
    def is_ready(self) -> bool:
        """Whether the index takes the writes of the followers."""
        return self._is_prepared and self._index_problem is None

    @property
    def stuck(self) -> Sequence[str]:
        """Names of the cells whose follower gave no sign of life for `liveness_timeout_s`; an empty name for the thread
        of this service.
        """
        followers = {
            running.follower.cell.name: running.follower.sign_of_life for running in list(self._running.values())
        }
        return [
            name
            for name, sign in {"": self._sign_of_life, **followers}.items()
            if sign.silent_s > self._parts.settings.liveness_timeout_s
        ]

    def _prepare(self, stop: Event) -> bool:
        def before_wait(error: IndexerError, _attempt: int, _wait_s: float) -> None:
            self._sign_of_life.give()
            self._index_failed(error)
            if self._is_prepared:
                self._allow_writes()

        def prepare() -> None:
            self._parts.writer.prepare()
            self._index_works()
            self._is_prepared = True

        self._sign_of_life.give()
        longest_wait_s = min(self._refresh_interval_s, self._parts.settings.retry_wait_max_s)
        # An operator must fix what the index refuses at the start; later an operator may be working on the index.
        waited_out = IndexerError if self._is_prepared else IndexUnavailableError
        retrying_until(stop, waited_out, before_wait, longest_wait_s=longest_wait_s)(prepare)
        return self._is_prepared and not stop.is_set()

    def _update_cells(self) -> bool:
        """Follow the enabled cells of the fleet; False if the index was down, so that another attempt is due soon."""
        try:
            lost = [uuid for uuid in self._running if not self._parts.leases.is_following(uuid)]
            cells = self._wanted_cells()
            # A cell whose addresses changed is followed anew.
            unwanted = {
                uuid
                for uuid, running in self._running.items()
                if cells.get(uuid) != running.follower.cell or running.stop.is_set()
            }
            followed = {uuid: self._running[uuid].follower.cell for uuid in unwanted.union(lost)}
            left = self._leave(followed.keys(), deadline_s=_LEAVE_TIMEOUT_S)
            for uuid in left:
                _log.info("indexer.cell_left", cell=followed[uuid].name)
            self._bus_releases.add(followed[uuid] for uuid in left - cells.keys())
            new = cells.keys() - self._running.keys()
            if new:
                self._start_followers(new)
            for uuid, horizon in load_horizons(self._parts.writer).items():
                if uuid in self._running:
                    self._running[uuid].follower.horizon = horizon
            self._show_complete()
            self._bus_releases.release(self._running)
            self._parts.metrics.failures_kept(cells, self._parts.failures.counts(), self._parts.failures.dropped())
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

    def _show_complete(self) -> None:
        """Show which cells are complete for lists: another process may have withdrawn or disproved our promise."""
        writer, metrics = self._parts.writer, self._parts.metrics
        # Read the facts before the progress, as searchers do.
        facts = {(kind, uuid): fact for kind in CELL_FACTS for uuid, fact in writer.load_state(kind).items()}
        saved, seal = writer.load_progress(), SealState.of(facts)
        for uuid in self._running:
            is_complete = uuid in saved and saved[uuid].with_facts(facts, seal).is_complete
            metrics.is_complete.labels(uuid).set(is_complete)

    @property
    def _is_leaving_some(self) -> bool:
        return any(running.stop.is_set() for running in self._running.values())

    def _allow_writes(self) -> None:
        """Lift a block of writes, which a rebuild that was killed at its end, or an operator, may have left."""
        if time.monotonic() < self._allow_due_s:
            return
        self._allow_due_s = time.monotonic() + self._cells_refresh_interval_s
        try:
            with self._parts.leases.rebuild():
                self._parts.writer.allow_writes()
        except (RebuildRunningError, FleetUnreachableError):
            return
        except IndexerError as error:
            self._index_failed(error)

    def _wanted_cells(self) -> dict[str, Cell]:
        return {cell.uuid: cell for cell in self._cells() if not cell.disabled}

    def _leave(self, uuids: Collection[str], deadline_s: float | None = None) -> Set[str]:
        """Stop the followers of these cells; release each lease after the last write, including the progress.

        deadline_s: None waits for all of them. Returns the cells whose follower has ended; followers that hang longer
        are left to a later call, so that no other cell waits for them.
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
            self._parts.leases.leave(uuid)
        return left

    def _start_followers(self, uuids: Collection[str]) -> None:
        """Follow the cells that no process removes, unless one was disabled or removed before we had its lease."""
        leased = set()
        try:
            for uuid in uuids:
                if self._parts.leases.follow(uuid):
                    leased.add(uuid)
            cells = self._wanted_cells()
            # Another process may have followed, synced or removed a cell since we last read its progress.
            self._saved.learn(cells.keys() & leased)
            horizons = load_horizons(self._parts.writer)
            for uuid in cells.keys() & leased:
                self._start_follower(cells[uuid], horizons.get(uuid, 0))
        finally:
            for uuid in leased - self._running.keys():
                self._parts.leases.leave(uuid)

    def _start_follower(self, cell: Cell, horizon: int) -> None:
        saved = self._saved.of(cell.uuid)
        follower: Follower
        if cell.can.numbers_changes:
            follower = CellFollower(cell, saved, self._parts, self._open_adapter)
        else:
            follower = ExternalFollower(cell, saved, self._parts, self._open_external)
        follower.horizon = horizon
        self._parts.metrics.cell_followed(follower.reached.progress)
        stop = Event()
        threads = ThreadPoolExecutor(1, thread_name_prefix=f"indexer-{cell.name}")
        self._running[cell.uuid] = _Running(follower, stop, threads, threads.submit(follower.run, stop))
        _log.info("indexer.cell_started", cell=cell.name)

    def _refresh(self) -> None:
        """Refresh the index, then save the progress that the followers had before."""
        followed = [running.follower.reached for running in self._running.values()]
        highest_known = {uuid: running.follower.highest_known for uuid, running in self._running.items()}
        try:
            self._parts.writer.make_searchable()
            with self._parts.saving:
                # A follower that has withdrawn or renewed its promise meanwhile has saved that itself.
                taken_back = self._saved.save([reached for reached in followed if self._still_holds(reached.progress)])
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
                # The next update starts a new follower, which begins with the progress in the index.
                running.stop.set()
        for reached in followed:
            self._parts.metrics.searchable(reached.progress, highest_known[reached.progress.cell_uuid])
            if (traces := self._parts.traces) is not None:
                traces.searchable(reached.progress.cell_uuid, reached.progress.watermark, self._parts.clock())

    def _still_holds(self, progress: CellProgress) -> bool:
        reached = self._running[progress.cell_uuid].follower.progress
        return progress.watermark <= reached.watermark and progress.is_complete >= reached.is_complete

    def _index_failed(self, error: IndexerError) -> None:
        if self._index_problem is None:
            _log.warning("indexer.index_unavailable", reason=str(error))
        self._index_problem = str(error)
        # Count the failure for every cell, also for one without changes.
        for uuid in list(self._running):
            self._parts.metrics.failures.labels(uuid, type(error).__name__).inc()
            self._parts.metrics.is_complete.labels(uuid).set(0)

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
