"""The relay and the real buses: what an operation announced arrives, in order."""

import threading
from pathlib import Path

import pytest
from sqlalchemy import Engine

from fleetlight.bus.bus import Delivery, Publisher, Receiver
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.kinds.native.relay import Relay
from fleetlight.cells.model import Cell
from fleetlight.cells.settings import RelaySettings
from tests.support.fleets.cell_databases import fleet
from tests.support.fleets.instance_operations import InstanceOperations

__all__ = ["fleet"]


@pytest.fixture(params=["memory", pytest.param("amqp", marks=pytest.mark.rabbitmq)])
def transport(request: pytest.FixtureRequest) -> tuple[str, str | None]:
    """URL of the bus and uuid of the cell."""
    if request.param == "memory":
        return "memory://", None
    return request.getfixturevalue("amqp_url"), request.getfixturevalue("amqp_cell")


@pytest.fixture
def cell(fleet: Fleet, tmp_path: Path, transport: tuple[str, str | None]) -> Cell:
    url, uuid = transport
    return fleet.add_cell("one", CellKind.NATIVE, f"sqlite:///{tmp_path}/cell.db", url, uuid=uuid)


def test_changes_arrive_at_the_work_queue_in_order_with_their_headers(engine: Engine, fleet: Fleet, cell: Cell) -> None:
    publisher = Publisher(cell.transport_url, cell.uuid)
    receiver = Receiver(cell.transport_url, cell.uuid, prefetch=100)
    relay = Relay(engine, cell, publisher, RelaySettings(batch_size=10, poll_interval_s=0.01))
    stop = threading.Event()
    thread = threading.Thread(target=relay.run, args=(stop,))
    thread.start()
    try:
        created = InstanceOperations(engine, fleet, cell).create_many([{}] * 35)
        received: list[Delivery] = []
        while len(received) < len(created):
            batch = receiver.receive(100, 1_000_000, wait_s=5)
            assert batch
            receiver.ack(batch)
            received.extend(delivery for delivery in batch if "fleetlight-sequence" in delivery.headers)
    finally:
        stop.set()
        thread.join(timeout=60)
        publisher.close()
        receiver.close()
    assert [delivery.headers["fleetlight-sequence"] for delivery in received] == list(range(1, 36))
    assert [delivery.headers["fleetlight-resource"] for delivery in received] == [changed.uuid for changed in created]
