"""A cell is removed under running indexers, on either bus and index: no row of it stays, and none comes back."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from threading import Event

import pytest

from fleetlight.bus.bus import remove_bus
from fleetlight.bus.link import bare_channel, is_in_memory
from fleetlight.bus.settings import BusSettings
from fleetlight.bus.topology import work_queue_name
from fleetlight.cells.errors import CellInUseError
from fleetlight.cells.kinds.native.relay import is_relayed
from fleetlight.cells.model import Cell
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.errors import LeaseHeldError
from fleetlight.indexer.reconcile.cell_removal import CellRemovalResult, remove_cell
from fleetlight.indexer.writing.leases import CellLeases
from fleetlight.notifications.errors import BusUnavailableError
from tests.support.fleets.indexer_worlds import World, in_thread
from tests.support.waiting import wait_until

pytestmark = pytest.mark.no_rerun


def removed(world: World, *, deadline_s: float = 10, waits: list[str] | None = None) -> CellRemovalResult:
    def on_wait(error: LeaseHeldError) -> None:
        if waits is not None:
            waits.append(error.holder)

    with (
        closing(open_writer(world.index)) as writer,
        closing(CellLeases(world.fleet.open_leases("removal"))) as leases,
    ):
        return remove_cell(
            world.fleet,
            world.cell.uuid,
            writer,
            leases,
            is_relayed=is_relayed,
            remove_bus=lambda cell: remove_bus(cell.transport_url, cell.uuid),
            deadline_s=deadline_s,
            on_wait=on_wait,
            on_batch=lambda _: None,
            pause=lambda _: None,
        )


def test_no_row_stays_and_none_comes_back_although_messages_still_arrive(world: World) -> None:
    uuids: list[str] = []

    def create_without_end(stop: Event) -> None:
        while not stop.is_set():
            uuids.append(world.operations.create({}).uuid)
            stop.wait(0.002)

    waits: list[str] = []
    # Two indexers: one is active, and the other one takes over as soon as the first has left the cell.
    with world.indexing(), world.indexing():
        with world.relaying():
            with in_thread(create_without_end):
                wait_until(lambda: len(world.documents(list(uuids))) > 20, 30)
                world.fleet.set_disabled(world.cell.uuid, True)
            wait_until(world.has_published_everything, 30)
        result = removed(world, waits=waits)
        assert result.rows > 20
        assert result.mappings == len(uuids)
        assert world.fleet.cells() == ()
        # A new cell that is followed shows that the indexers have looked at the registry since.
        world.cell = world.fleet.add_cell("one", world.cell.kind, world.cell.database_url, "memory://")
        wait_until(world.index_equals_cell, 30)
        assert {document.cell_uuid for document in world.documents(uuids).values()} == {world.cell.uuid}


def test_cell_that_is_followed_is_not_touched(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with world.relaying(), world.indexing() as service:
        uuid = world.operations.create({}).uuid
        wait_until(world.index_equals_cell, 30)
        with pytest.raises(CellInUseError, match="disable it first"):
            removed(world)
        # Disabled, but this indexer never learns of it.
        monkeypatch.setattr(service, "_cells", lambda cells=(world.cell,): cells)
        world.fleet.set_disabled(world.cell.uuid, True)
        waits: list[str] = []
        with pytest.raises(LeaseHeldError, match="test"):
            removed(world, deadline_s=0.5, waits=waits)
        assert len(waits) == 1
        assert world.documents([uuid]).keys() == {uuid}
        assert world.progress() is not None


def test_cell_that_is_still_relayed_is_not_touched(world: World) -> None:
    uuid = world.operations.create({}).uuid
    with world.relaying():
        with world.indexing():
            wait_until(world.index_equals_cell, 30)
        world.fleet.set_disabled(world.cell.uuid, True)
        with pytest.raises(CellInUseError, match="relay"):
            removed(world, deadline_s=0.5)
    assert world.documents([uuid]).keys() == {uuid}
    assert removed(world) == CellRemovalResult(rows=1, mappings=1)


def test_relay_that_is_about_to_leave_the_cell_is_waited_for(world: World) -> None:
    world.operations.create({})
    waits: list[str] = []
    with ThreadPoolExecutor(1) as threads:
        with world.relaying():
            with world.indexing():
                wait_until(world.index_equals_cell, 30)
            world.fleet.set_disabled(world.cell.uuid, True)
            removal = threads.submit(removed, world, deadline_s=60, waits=waits)
            wait_until(lambda: waits)
        assert removal.result(60) == CellRemovalResult(rows=1, mappings=1)
    assert waits == ["its relay"]


def test_queues_go_with_their_cell(world: World) -> None:
    queue, settings = work_queue_name(world.cell.uuid), BusSettings()
    world.operations.create({})

    def is_there() -> bool:
        try:
            with bare_channel(world.cell.transport_url, settings) as channel:
                return channel.queue_declare(queue=queue, passive=True) is not None
        except BusUnavailableError:
            return False

    with world.relaying(), world.indexing():
        wait_until(world.index_equals_cell, 30)
        wait_until(is_there, 30)
    world.fleet.set_disabled(world.cell.uuid, True)
    removed(world)
    assert is_there() == is_in_memory(world.cell.transport_url), "which ends with its process"


def test_removal_that_was_cut_off_can_be_repeated(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    uuid = world.operations.create({}).uuid
    with world.relaying(), world.indexing():
        wait_until(world.index_equals_cell, 30)
    world.fleet.set_disabled(world.cell.uuid, True)

    def killed(_cell: Cell) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(world.fleet, "remove_cell", killed)
        with pytest.raises(KeyboardInterrupt):
            removed(world)
    assert world.documents([uuid]) == {}
    assert world.fleet.cell("one").disabled
    assert removed(world) == CellRemovalResult(rows=0, mappings=1)
    assert world.fleet.cells() == ()


def test_cell_that_is_enabled_again_after_a_removal_was_cut_off_is_filled_again(world: World) -> None:
    world.operations.create({})
    with world.relaying(), world.indexing():
        wait_until(world.index_equals_cell, 30)
        with closing(open_writer(world.index)) as writer:
            world.fleet.set_disabled(world.cell.uuid, True)
            leases = CellLeases(world.fleet.open_leases("removal"))
            with leases.removal(world.cell, deadline_s=10, on_wait=lambda _: None) as confirm:
                confirm()
                assert writer.remove_cell(world.cell.uuid) == 1
        world.fleet.set_disabled(world.cell.uuid, False)
        wait_until(world.index_equals_cell, 30)
