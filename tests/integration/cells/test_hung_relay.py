"""A relay that hangs is replaced, and does no harm when it wakes up. On PostgreSQL: a lock on a file is kept."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import Engine, select
from sqlalchemy.exc import InternalError
from structlog.testing import capture_logs

from fleetlight.cells.database.engines import create_database_engine, writing
from fleetlight.cells.kinds.native.relay import Relay
from fleetlight.cells.kinds.native.relay_metrics import RelayMetrics
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import cell_state
from fleetlight.resources.clock import Clock
from tests.integration.cells.test_leases import END_THE_HOLDERS
from tests.integration.cells.test_relay import SETTINGS, Bus, epochs_of
from tests.support.fleets.instance_operations import InstanceOperations
from tests.support.waiting import wait_until

pytestmark = pytest.mark.postgresql


@pytest.fixture
def new_database(new_postgresql_database: Callable[[], str]) -> Callable[[], str]:
    return new_postgresql_database


RELAY_PROCESS = """
import sys
from pathlib import Path
from threading import Event
import msgspec
from fleetlight.cells.database.engines import create_database_engine
from fleetlight.cells.kinds.native.relay import Relay
from fleetlight.cells.model import Cell
from fleetlight.cells.settings import RelaySettings

cell, log = msgspec.json.decode(sys.argv[1], type=Cell), Path(sys.argv[2])

class Written:
    def publish(self, messages):
        with log.open("a") as file:
            for message in messages:
                print(message.headers.get("fleetlight-sequence", "heartbeat"), file=file)

engine = create_database_engine(cell.database_url, idle_transaction_timeout_s=1)
settings = RelaySettings(poll_interval_s=0.01, heartbeat_interval_s=0.05)
Relay(engine, cell, Written(), settings, takeover_after_s=1).run(Event())
"""


def test_relay_process_that_hangs_is_replaced_and_does_no_harm_when_it_wakes_up(
    operations: InstanceOperations, cell: Cell, engine: Engine, clock: Clock, tmp_path: Path
) -> None:
    bus = Bus()
    log = tmp_path / "published"
    arguments = [sys.executable, "-c", RELAY_PROCESS, msgspec.json.encode(cell).decode(), str(log)]

    def published() -> list[str]:
        return [line for line in log.read_text().splitlines() if line != "heartbeat"] if log.exists() else []

    with (
        subprocess.Popen(arguments) as process,
        closing(Relay(engine, cell, bus, SETTINGS, clock, takeover_after_s=1)) as standby,
    ):
        operations.create_many([{}] * 3)
        wait_until(lambda: len(published()) == 3)
        assert standby.run_once() == 0
        process.send_signal(signal.SIGSTOP)
        operations.create_many([{}] * 2)
        began = time.monotonic()
        wait_until(lambda: standby.run_once() == 2)
        assert time.monotonic() - began < 3
        process.send_signal(signal.SIGCONT)
        # As many beats as it needs to notice, beside work that it would take.
        for _ in range(20):
            operations.create({})
            wait_until(lambda: standby.run_once() == 1)
        process.kill()
    assert published() == ["1", "2", "3"]
    assert bus.sequences == [*range(4, 26)]
    assert len(set(epochs_of(bus))) == 1


def test_relay_that_was_replaced_before_it_gave_numbers_gives_none(
    operations: InstanceOperations, cell: Cell, engine: Engine, clock: Clock
) -> None:
    bus, other_bus = Bus(), Bus()
    standby = Relay(engine, cell, other_bus, SETTINGS, clock)
    is_stopped = False

    def stopped_clock() -> int:
        nonlocal is_stopped
        if is_stopped:
            is_stopped = False
            with engine.connect() as connection:
                connection.execute(END_THE_HOLDERS)
            wait_until(lambda: standby.run_once() == 2)
            operations.create({})
        return clock()

    with closing(Relay(engine, cell, bus, SETTINGS, stopped_clock)) as relay, closing(standby):
        operations.create({})
        assert relay.run_once() == 1
        assert relay.run_once() == 0
        operations.create_many([{}] * 2)
        is_stopped = True
        with capture_logs() as logs:
            assert relay.run_once() == 0
        assert [entry["event"] for entry in logs] == ["relay.replaced"]
        assert not relay.is_active
        assert standby.run_once() == 1
        assert relay.run_once() == 0
    assert (bus.sequences, other_bus.sequences) == ([1], [2, 3, 4])
    assert len(epochs_of(other_bus)) == 1


def test_relay_that_hung_after_it_gave_numbers_goes_on_when_another_has_published_them(
    operations: InstanceOperations, cell: Cell, engine: Engine, clock: Clock
) -> None:
    bus, other_bus = Bus(), Bus()
    standby = Relay(engine, cell, other_bus, SETTINGS, clock)

    class HangsWithNumbers(RelayMetrics):
        def numbered(self, cell_uuid: str, last_sequence: int) -> None:
            super().numbered(cell_uuid, last_sequence)
            if last_sequence == 3 and not other_bus.sequences:
                with engine.connect() as connection:
                    connection.execute(END_THE_HOLDERS)
                wait_until(lambda: standby.run_once() == 2)

    metrics = HangsWithNumbers(CollectorRegistry())
    with closing(Relay(engine, cell, bus, SETTINGS, clock, metrics=metrics)) as relay, closing(standby):
        operations.create({})
        assert relay.run_once() == 1
        operations.create_many([{}] * 2)
        with capture_logs() as logs:
            assert relay.run_once() == 0
        assert [entry["event"] for entry in logs] == ["relay.replaced"]
        assert not relay.is_active
        standby.close()
        operations.create({})
        wait_until(lambda: relay.run_once() == 1)
    assert (bus.sequences, other_bus.sequences) == ([1, 4], [2, 3])


@pytest.mark.usefixtures("engine")
def test_process_that_hangs_in_a_transaction_keeps_nothing_locked(cell: Cell) -> None:
    hangs = create_database_engine(cell.database_url, idle_transaction_timeout_s=0.5)
    other = create_database_engine(cell.database_url, statement_timeout_s=5)
    locked = select(cell_state.c.last_sequence).with_for_update()
    with hangs.connect() as connection:
        connection.execute(locked)
        with writing(other) as waits:
            waits.execute(locked)
        with pytest.raises(InternalError, match="idle-in-transaction timeout"):
            connection.execute(locked)
    hangs.dispose()
    other.dispose()
