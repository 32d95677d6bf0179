from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Event
from uuid import uuid4

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from fleetlight.bus.bus import Receiver
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.errors import FleetUnreachableError
from fleetlight.cells.fleet.cell_keys import CellKeys, Keyring
from fleetlight.cells.fleet.database import FleetDatabase
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.native.relay_metrics import RelayMetrics
from fleetlight.cells.migrations import upgrade_cell, upgrade_fleet
from fleetlight.cells.model import Cell
from fleetlight.cells.settings import FleetSettings, RelaySettings
from fleetlight.cli.processes import relaying
from fleetlight.cli.processes.cell_heartbeats import CellHeartbeats
from fleetlight.cli.processes.parts import ProcessPart
from fleetlight.cli.processes.relaying import SendHeartbeat, run_relay, run_relays
from fleetlight.cli.settings import Settings
from fleetlight.indexer.stream.liveness import Probe
from fleetlight.indexer.transform.messages import Heartbeat, interpret
from fleetlight.resources.clock import Clock, system_clock
from tests.support.fleets.indexer_worlds import in_thread
from tests.support.fleets.instance_operations import InstanceOperations
from tests.support.waiting import wait_until

SETTINGS = Settings(
    fleet=FleetSettings(cells_refresh_interval_s=0.01), relay=RelaySettings(poll_interval_s=0.01, retry_wait_max_s=0.05)
)


LONG_AGO = 1_500_000_000_000_000


class World:
    """Cells in files, and which of them are chosen."""

    def __init__(self, folder: Path, opened: ExitStack) -> None:
        self.folder = folder
        self.opened = opened
        self.chosen: list[Cell] = []
        self.fleet_is_away = False
        self.looks = 0
        self.heartbeats = CellHeartbeats()

    def new_cell(self, name: str) -> Cell:
        cell = Cell(str(uuid4()), name, CellKind.NATIVE, f"sqlite:///{self.folder}/{name}.db", "memory://")
        with self._operations(cell) as operations:
            operations.create({})
        return cell

    def change(self, cell: Cell) -> None:
        with self._operations(cell) as operations:
            operations.create({})

    def keys(self) -> Keyring:
        engine = create_database_engine(f"sqlite:///{self.folder}/fleet.db")
        self.opened.callback(engine.dispose)
        upgrade_fleet(engine)
        return Keyring(CellKeys(FleetDatabase(engine)))

    def choose(self) -> list[Cell]:
        self.looks += 1
        if self.fleet_is_away:
            raise FleetUnreachableError("it is away")
        return list(self.chosen)

    @contextmanager
    def _operations(self, cell: Cell) -> Iterator[InstanceOperations]:
        engine = create_database_engine(cell.database_url)
        upgrade_cell(engine)
        fleet_engine = create_database_engine(f"sqlite:///{self.folder}/fleet.db")
        upgrade_fleet(fleet_engine)
        fleet = Fleet(fleet_engine)
        added = fleet.add_cell(cell.name, cell.kind, cell.database_url, cell.transport_url, uuid=cell.uuid)
        yield InstanceOperations(engine, fleet, added)
        fleet.close()
        engine.dispose()


def changes_arrive(cell: Cell, count: int) -> bool:
    """Whether `count` changes of the cell come through its bus."""
    arrived = 0
    with closing(Receiver(cell.transport_url, cell.uuid, 100)) as receiver:

        def all_there() -> bool:
            nonlocal arrived
            deliveries = receiver.receive(100, 1_000_000, 0.05)
            changes = [delivery for delivery in deliveries if "fleetlight-sequence" in delivery.headers]
            assert all("fleetlight-signature" in change.headers for change in changes)
            arrived += len(changes)
            receiver.ack(deliveries)
            return arrived >= count

        wait_until(all_there)
    return True


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ExitStack() as opened:
        yield World(tmp_path, opened)


@contextmanager
def relays_running(world: World, clock: Clock = system_clock) -> Iterator[ProcessPart]:
    metrics = RelayMetrics(CollectorRegistry())
    relays = partial(run_relays, SETTINGS, world.choose, world.heartbeats, metrics, keys=world.keys(), clock=clock)
    part = ProcessPart("relays", relays, lambda: None)
    yield part
    part.stop()


def test_cell_that_is_registered_later_is_relayed(world: World) -> None:
    first, second = world.new_cell("one"), world.new_cell("two")
    world.chosen = [first]
    with capture_logs() as logs, relays_running(world):
        assert changes_arrive(first, 1)
        world.chosen.append(second)
        assert changes_arrive(second, 1)
        world.chosen = [second]
        looks = world.looks
        wait_until(lambda: world.looks > looks + 2)
        world.change(second)
        assert changes_arrive(second, 1)
    assert [entry["cell"] for entry in logs if entry["event"] == "relay.cell_left"] == ["one"]


def test_heartbeats_tell_the_time_of_the_fleet_whatever_the_clock_of_the_machine_says(world: World) -> None:
    """Of one that is ahead nobody could tell how long its messages have waited on the bus."""
    cell = world.new_cell("one")
    world.chosen = [cell]
    heartbeats: list[Heartbeat] = []

    def one_arrives() -> bool:
        for delivery in receiver.receive(100, 1_000_000, 0.05):
            meaning = interpret(delivery.body, None)
            heartbeats.extend([meaning] if isinstance(meaning, Heartbeat) else [])
        return bool(heartbeats)

    with relays_running(world, lambda: LONG_AGO), closing(Receiver(cell.transport_url, cell.uuid, 100)) as receiver:
        wait_until(one_arrives)
    assert heartbeats[0].at == LONG_AGO


def test_cell_with_an_address_that_cannot_be_used_waits_for_a_better_one(world: World) -> None:
    first, second = world.new_cell("one"), world.new_cell("two")
    world.chosen = [replace(second, database_url="mysql://nowhere"), first]
    with relays_running(world) as relays:
        assert changes_arrive(first, 1)
        world.chosen = [second, first]
        assert changes_arrive(second, 1)
    assert not relays.has_failed


def test_relay_that_stands_by_says_that_it_does_not_reach_the_bus(world: World) -> None:
    cell = world.new_cell("one")
    world.chosen = [cell]
    stranded = World(world.folder, world.opened)
    stranded.chosen = [replace(cell, transport_url="amqp://127.0.0.1:9//")]
    with relays_running(world):
        assert changes_arrive(cell, 1)
        with capture_logs() as logs, relays_running(stranded):
            wait_until(lambda: any(entry["event"] == "relay.standby_without_bus" for entry in logs))
        assert [entry["cell"] for entry in logs if entry["event"] == "relay.standby_without_bus"] == ["one"]


def test_relays_go_on_while_the_fleet_database_is_away(world: World) -> None:
    first = world.new_cell("one")
    world.chosen = [first]
    with relays_running(world):
        assert changes_arrive(first, 1)
        world.fleet_is_away = True
        looks = world.looks
        wait_until(lambda: world.looks > looks + 1)
        world.change(first)
        assert changes_arrive(first, 1)


def test_relay_that_made_a_mistake_ends_all_of_them(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, keys: Keyring, clock: Clock) -> None:
        raise RuntimeError("a mistake")

    monkeypatch.setattr(relaying, "run_relay", fail)
    world.chosen = [world.new_cell("one")]
    with relays_running(world) as relays:
        wait_until(lambda: relays.has_failed)


def test_relay_that_hangs_is_not_alive(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(
        _settings: Settings,
        _metrics: RelayMetrics,
        _cell: Cell,
        stop: Event,
        _beat: SendHeartbeat,
        *,
        keys: Keyring,
        clock: Clock,
        traces: None,
    ) -> None:
        stop.wait()

    monkeypatch.setattr(relaying, "run_relay", hang)
    world.heartbeats = CellHeartbeats(timeout_s=0.1)
    world.chosen = [world.new_cell("hangs")]
    with relays_running(world):
        wait_until(lambda: world.heartbeats.healthz() == Probe(False, {"status": "stuck", "cells": ["hangs"]}))
        world.chosen = []
        wait_until(lambda: world.heartbeats.healthz().is_well)


@pytest.mark.parametrize("is_away", [True, False])
def test_relay_that_waits_for_its_database_or_for_work_is_alive(world: World, is_away: bool) -> None:
    """Starting it again would not help."""
    cell = world.new_cell("one")
    if is_away:
        cell = replace(cell, database_url="sqlite:////nowhere/at/all.db")
    beats: list[None] = []

    def run(stop: Event) -> None:
        run_relay(
            SETTINGS,
            RelayMetrics(CollectorRegistry()),
            cell,
            stop,
            lambda: beats.append(None),
            keys=world.keys(),
            clock=system_clock,
        )

    with in_thread(run):
        wait_until(lambda: len(beats) > 5)
