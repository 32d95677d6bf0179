"""The indexer: a follower for each cell of the fleet, and what they share: what was written is made searchable for all
of them at once, and only then their progress is saved, so that a saved watermark never promises what nobody can find.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event

import structlog

from cells.errors import FleetUnreachableError
from cells.model import Cell, CellKind, ChangelogAdapter
from indexer.backends.base import CellProgress, IndexWriter
from indexer.consumer import Receives
from indexer.errors import IndexerError, IndexReplacedError, IndexUnavailableError
from indexer.follower import CellFollower, CellHealth
from indexer.metrics import IndexerMetrics
from indexer.settings import IndexerSettings

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class _Running:
    follower: CellFollower
    stop: Event
    threads: ThreadPoolExecutor
    done: Future[None]


class IndexerService:
    """Follows every enabled native cell of a fleet.

    cells: the cells of the fleet; raises FleetUnreachableError. open_adapter raises CellUnreachableError, open_receiver
    BusError. writer: shared by all, and closed by whoever opened it.
    A bus, cell or index that fails is waited out, for its cell alone; `health` tells. Anything else is a mistake of
    this program: `run` stops all followers and raises it, since a silent drift is worse than an indexer that stops.
    """

    def __init__(
        self,
        *,
        cells: Callable[[], Sequence[Cell]],
        open_adapter: Callable[[Cell], ChangelogAdapter],
        open_receiver: Callable[[Cell], Receives],
        writer: IndexWriter,
        settings: IndexerSettings,
        refresh_interval_s: float,
        cells_refresh_interval_s: float,
        metrics: IndexerMetrics,
    ) -> None:
        self._cells = cells
        self._open_adapter = open_adapter
        self._open_receiver = open_receiver
        self._writer = writer
        self._settings = settings
        self._refresh_interval_s = refresh_interval_s
        self._cells_refresh_interval_s = cells_refresh_interval_s
        self._metrics = metrics
        self._running: dict[str, _Running] = {}
        self._saved: dict[str, CellProgress] = {}
        self._index_problem: str | None = None
        self._fleet_problem: str | None = None

    def run(self, stop: Event) -> None:
        """Follow the cells until `stop` is set; then finish what was received, save the progress and return.

        Raises IndexRequestError when the index cannot be prepared, and IndexReplacedError when another one took its
        place: nothing that the followers know is true of that one, so all has to start again.
        """
        if not self._prepare(stop):
            return
        cells_due_s = 0.0
        try:
            while not stop.is_set():
                if time.monotonic() >= cells_due_s:
                    self._update_cells()
                    cells_due_s = time.monotonic() + self._cells_refresh_interval_s
                stop.wait(self._refresh_interval_s)
                self._refresh()
                self._raise_mistakes()
        finally:
            self._stop_followers(list(self._running))
            self._refresh()
            self._running.clear()

    @property
    def health(self) -> Mapping[str, CellHealth]:
        """How it stands with each cell that is followed, by uuid."""
        return {uuid: running.follower.health for uuid, running in list(self._running.items())}

    @property
    def problem(self) -> str | None:
        """What is wrong with the index or the fleet database, for all cells; None while all is well."""
        return self._index_problem or self._fleet_problem

    def _prepare(self, stop: Event) -> bool:
        while not stop.is_set():
            try:
                self._writer.prepare()
                self._saved = dict(self._writer.load_progress())
            except IndexUnavailableError as error:
                self._index_failed(error)
                stop.wait(min(self._refresh_interval_s, self._settings.retry_wait_max_s))
            else:
                self._index_problem = None
                return True
        return False

    def _update_cells(self) -> None:
        try:
            cells = {cell.uuid: cell for cell in self._cells() if cell.kind is CellKind.NATIVE and not cell.disabled}
        except FleetUnreachableError as error:
            if self._fleet_problem is None:
                _log.warning("indexer.fleet_unreachable", reason=error.reason)
            self._fleet_problem = str(error)
            return
        self._fleet_problem = None
        # A cell whose addresses changed is followed anew.
        left = [uuid for uuid, running in self._running.items() if cells.get(uuid) != running.follower.cell]
        self._stop_followers(left)
        self._refresh()
        for uuid in left:
            del self._running[uuid]
        for uuid, cell in cells.items():
            if uuid not in self._running:
                self._start_follower(cell)

    def _start_follower(self, cell: Cell) -> None:
        follower = CellFollower(
            cell,
            self._saved.get(cell.uuid, CellProgress(cell.uuid, 0, 0, is_complete=False)),
            open_adapter=self._open_adapter,
            open_receiver=self._open_receiver,
            writer=self._writer,
            settings=self._settings,
            metrics=self._metrics,
        )
        stop = Event()
        threads = ThreadPoolExecutor(1, thread_name_prefix=f"indexer-{cell.name}")
        self._running[cell.uuid] = _Running(follower, stop, threads, threads.submit(follower.run, stop))
        _log.info("indexer.cell_started", cell=cell.name)

    def _stop_followers(self, uuids: Sequence[str]) -> None:
        for uuid in uuids:
            self._running[uuid].stop.set()
        for uuid in uuids:
            self._running[uuid].threads.shutdown()

    def _refresh(self) -> None:
        """Make what was written searchable, then save the progress that was true before that."""
        progress = [running.follower.progress for running in self._running.values()]
        highest_known = {uuid: running.follower.highest_known for uuid, running in self._running.items()}
        try:
            self._writer.make_searchable()
            changed = [cell for cell in progress if self._saved.get(cell.cell_uuid) != cell]
            if changed:
                self._writer.save_progress(changed)
        except IndexReplacedError:
            raise
        except IndexerError as error:
            self._index_failed(error)
            return
        self._index_problem = None
        for cell in progress:
            self._saved[cell.cell_uuid] = cell
            self._metrics.searchable(cell, highest_known[cell.cell_uuid])

    def _index_failed(self, error: IndexerError) -> None:
        if self._index_problem is None:
            _log.warning("indexer.index_unavailable", reason=str(error))
        self._index_problem = str(error)

    def _raise_mistakes(self) -> None:
        for running in self._running.values():
            if running.done.done():
                running.done.result()
