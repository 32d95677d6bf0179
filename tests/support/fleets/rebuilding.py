"""Rebuilds of an index, as `fleetlight index rebuild` does them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from threading import Event

from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.opening import open_changelog_adapter
from fleetlight.cells.model import Cell
from fleetlight.indexer.backends.opening import open_generations, open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.reconcile.rebuild import RebuildParts, RebuildPhase
from fleetlight.indexer.writing.leases import CellLeases
from fleetlight.indexer.writing.throttle import Throttle


class Silent:
    """Looks on at a rebuild and says nothing."""

    def on_step(self) -> None: ...

    def on_phase(self, phase: RebuildPhase) -> None: ...

    def on_rows(self, cell: Cell, rows: int) -> None: ...

    def on_notice(self, text: str) -> None: ...


@contextmanager
def open_parts(
    settings: IndexSettings,
    fleet: Fleet,
    *,
    cells: Callable[[], Sequence[Cell]] | None = None,
    batch_size: int = 20,
) -> Iterator[RebuildParts]:
    """What a rebuild of that index works with. cells: those of the fleet, unless said otherwise."""
    with (
        closing(open_writer(settings)) as current,
        closing(open_generations(settings)) as generations,
        closing(CellLeases(fleet.open_leases("rebuild"))) as leases,
    ):
        yield RebuildParts(
            cells=cells or fleet.cells,
            open_adapter=open_changelog_adapter,
            current=current,
            generations=generations,
            leases=leases,
            owners=fleet,
            pace=Throttle(None, Event()),
            batch_size=batch_size,
            parallel=2,
        )
