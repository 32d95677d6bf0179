"""A running fleet (tests/contract/running_world.py) with a cell of Nova too, and all kinds of upkeep."""

import random
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

from sqlalchemy import create_engine, text

from fleetlight.bus.bus import remove_bus
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.fleet.adoption import map_instances
from fleetlight.cells.kinds.native.relay import is_relayed
from fleetlight.cells.kinds.opening import open_changelog_adapter
from fleetlight.cells.model import Cell
from fleetlight.indexer.backends.base import IndexWriter
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.errors import LeaseHeldError
from fleetlight.indexer.reconcile.cell_removal import remove_cell
from fleetlight.indexer.reconcile.rebuild import rebuild_index
from fleetlight.indexer.reconcile.retention import announce, purge_cell
from fleetlight.indexer.writing.leases import CellLeases
from fleetlight.resources.clock import system_clock
from tests.contract.compute_fleet import ComputeFleet
from tests.contract.running_world import State, Truth, World
from tests.support.fleets.nova_tables import small_nova
from tests.support.fleets.rebuilding import Silent, open_parts
from tests.support.servers.backups import Backup
from tests.support.waiting import wait_until

NOVA = "nova"


class UpkeepWorld(World):
    """complete: how many lists were, of those that were made while upkeep went on."""

    def __init__(self, fleet: ComputeFleet, generator: random.Random, folder: Path) -> None:
        super().__init__(fleet, generator)
        self._folder = folder
        self._nova = small_nova(folder)
        urls = self._nova.urls
        fleet.fleet.add_cell(NOVA, CellKind.NOVA_DB, urls["cell1"], "", api_database_url=urls["api"])
        self.truth[NOVA] = Truth()
        self._backups: dict[str, tuple[Backup, State, dict[str, tuple[str, int]]]] = {}
        self.complete = 0

    def settle(self) -> None:
        self.heal()
        wait_until(self.is_all_indexed)

    def create_in_nova(self, number: int) -> None:
        began = system_clock()
        uuid = self._nova.add("cell1", number, display_name=str(number))
        self.truth[NOVA].add(began, uuid, number, deleted=False)

    def change_nova(self, number: int) -> None:
        known = [uuid for uuid, (_, is_deleted) in self.truth[NOVA].now.items() if not is_deleted]
        if not known:
            return
        uuid, began = self._generator.choice(known), system_clock()
        is_deleted = self._generator.random() < 0.3
        shown = self.truth[NOVA].now[uuid][0] if is_deleted else number
        what = "deleted = id, deleted_at = CURRENT_TIMESTAMP" if is_deleted else "display_name = :name"
        engine = create_engine(self._nova.urls["cell1"])
        with engine.begin() as connection:
            changed = text(f"UPDATE instances SET {what} WHERE uuid = :uuid")  # noqa: S608
            connection.execute(changed, {"uuid": uuid} | ({} if is_deleted else {"name": str(number)}))
        engine.dispose()
        self.truth[NOVA].add(began, uuid, shown, deleted=is_deleted)

    def rebuild(self) -> None:
        """While somebody lists."""
        self.settle()
        with (
            open_parts(self.fleet.index_settings, self.fleet.fleet, batch_size=5) as parts,
            ThreadPoolExecutor(1) as threads,
        ):
            parts.current.prepare()
            rebuilding = threads.submit(rebuild_index, parts, Silent(), back=False)
            while not rebuilding.done():
                self.complete += self.check_lists()
            rebuilding.result()

    def purge(self) -> None:
        """Forget all that is deleted, as soon as those who list have heard of that."""
        with self._writer() as writer, self._leases() as leases:
            cells = self.fleet.fleet.cells()
            horizons = announce(writer, [cell.uuid for cell in cells], 0, system_clock())
            wait_until(lambda: self._has_heard_of(horizons))
            for cell in cells:
                wait_until(lambda: _purged(writer, leases, cell, horizons[cell.uuid]))  # noqa: B023
                self.complete += self.check_lists()

    def back_up(self, cell: str) -> None:
        folder = self._folder / f"backup-{cell}"
        folder.mkdir(exist_ok=True)
        of_cell = {uuid: token for uuid, token in self.tokens.items() if uuid in self.truth[cell].now}
        self._backups[cell] = (Backup(self.fleet.engine(cell), folder), self.truth[cell].now, of_cell)

    def restore(self, cell: str) -> None:
        if cell not in self._backups:
            return
        backup, state, tokens = self._backups[cell]
        began = system_clock()
        backup.restore()
        for uuid in self.truth[cell].now:
            self.tokens.pop(uuid, None)
        self.tokens |= tokens
        self.truth[cell].become(began, state)

    def remove_and_add_again(self, name: str) -> None:
        """The cell has another uuid afterwards."""
        self.settle()
        cell, truth = self.fleet.cells[name], self.truth[name]
        self.fleet.fleet.set_disabled(cell.uuid, True)
        self.stop_relay(name)
        before, began = truth.now, system_clock()
        for uuid in before:
            self.tokens.pop(uuid, None)

        def pause(_wait_s: float) -> None:
            wait_until(lambda: self._has_heard_that_it_is_not_whole(cell))

        with self._writer() as writer, self._leases() as leases:
            remove_cell(
                self.fleet.fleet,
                cell.uuid,
                writer,
                leases,
                is_relayed=is_relayed,
                remove_bus=lambda gone: remove_bus(gone.transport_url, gone.uuid),
                deadline_s=60,
                on_wait=lambda _: None,
                on_batch=self._look_on,
                pause=pause,
            )
        truth.become(began, {})
        self.complete += self.check_lists()
        began = system_clock()
        self.fleet.cells[name] = self.fleet.fleet.add_cell(name, cell.kind, cell.database_url, cell.transport_url)
        with closing(open_changelog_adapter(self.fleet.cells[name])) as adapter:
            map_instances(adapter, self.fleet.fleet)
        truth.become(began, before)
        self.start_relay(name)

    def _look_on(self, _rows: int) -> None:
        self.complete += self.check_lists()

    def _has_heard_of(self, horizons: Mapping[str, int]) -> bool:
        self.check_lists()
        progress = self.api.run(self.api.index.progress_or_nothing())
        return all(progress[uuid].horizon == horizon for uuid, horizon in horizons.items() if uuid in progress)

    def _has_heard_that_it_is_not_whole(self, cell: Cell) -> bool:
        self.check_lists()
        progress = self.api.run(self.api.index.progress_or_nothing())
        return cell.uuid not in progress or not progress[cell.uuid].is_complete

    @contextmanager
    def _writer(self) -> Iterator[IndexWriter]:
        with closing(open_writer(self.fleet.index_settings)) as writer:
            writer.prepare()
            yield writer

    @contextmanager
    def _leases(self) -> Iterator[CellLeases]:
        with closing(CellLeases(self.fleet.fleet.open_leases("upkeep"))) as leases:
            yield leases


def _purged(writer: IndexWriter, leases: CellLeases, cell: Cell, horizon: int) -> bool:
    try:
        purge_cell(writer, leases, cell, horizon, lambda _: None)
    except LeaseHeldError:
        # An indexer compares the cell.
        return False
    return True
