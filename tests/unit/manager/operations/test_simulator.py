"""The simulator on one real cell database."""

from collections import Counter
from random import Random
from threading import Event

import pytest
import structlog
from sqlalchemy import Engine, func, select

from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.fleet.fleet import Fleet
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import changes, instances
from fleetlight.manager.operations.actions.accepting import Acceptance
from fleetlight.manager.operations.cell_worker import new_worker
from fleetlight.manager.operations.hosts.cell_nodes import CellNodes
from fleetlight.manager.operations.jobs.worker import Worker
from fleetlight.manager.operations.simulation import simulator
from fleetlight.manager.operations.simulation.simulated_instances import (
    DEMO_PROJECT,
    host_name,
    new_hosts,
    new_instance,
    zone_of,
)
from fleetlight.manager.operations.simulation.simulator import SimulatedCell, Simulator
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.support.fleets.instance_operations import InstanceOperations


@pytest.fixture
def simulated(fleet: Fleet, cell: Cell, engine: Engine) -> SimulatedCell:
    CellNodes(engine, cell).add_hosts(new_hosts("one"))
    return SimulatedCell(cell, engine, fleet, Acceptance(engine, fleet, cell))


@pytest.fixture
def worker(engine: Engine, fleet: Fleet, cell: Cell) -> Worker:
    return new_worker(engine, fleet, cell)


def work(worker: Worker) -> None:
    while worker.run_once():
        pass


def count_live(engine: Engine) -> int:
    with engine.connect() as connection:
        statement = select(func.count()).select_from(instances).where(instances.c.deleted.is_(False))
        return connection.execute(statement).scalar_one()


def announced(engine: Engine) -> Counter[str]:
    """What was told of instances."""
    statement = select(changes.c.event_type).where(changes.c.instance_uuid != "")
    with engine.connect() as connection:
        return Counter(connection.execute(statement).scalars())


def test_new_instance_has_only_fields_that_a_record_has() -> None:
    assert new_instance(Random(1), "cell1", created_at=0).keys() <= INSTANCE_FIELDS.keys()


def test_same_seed_makes_the_same_instances() -> None:
    assert new_instance(Random(7), "cell1", 0) == new_instance(Random(7), "cell1", 0)
    assert new_instance(Random(7), "cell1", 0) != new_instance(Random(8), "cell1", 0)


def test_most_instances_belong_to_project_demo() -> None:
    random = Random(1)
    projects = Counter(new_instance(random, "cell1", 0)["project_id"] for _ in range(500))
    assert projects.most_common(1)[0][0] == DEMO_PROJECT
    assert len(projects) > 2


def test_each_host_is_in_one_zone_of_its_cell() -> None:
    assert zone_of("cell1", host_name("cell1", 0)) == "cell1-b"
    assert zone_of("cell1", host_name("cell1", 1)) == "cell1-a"


def test_fill_creates_exactly_what_is_missing(simulated: SimulatedCell, engine: Engine) -> None:
    Simulator([simulated], instance_count=30, rate=0, seed=1).run(Event())
    assert count_live(engine) == 30
    assert announced(engine) == {"instance.create.end": 30}

    Simulator([simulated], instance_count=35, rate=0, seed=1).run(Event())
    assert count_live(engine) == 35

    Simulator([simulated], instance_count=10, rate=0, seed=1).run(Event())
    assert count_live(engine) == 35


def test_fill_ends_early_when_told_to_stop(simulated: SimulatedCell, engine: Engine) -> None:
    stop = Event()
    stop.set()
    Simulator([simulated], instance_count=30, rate=0).run(stop)
    assert count_live(engine) == 0


def test_steps_create_change_move_and_delete_and_keep_the_count(
    simulated: SimulatedCell, engine: Engine, worker: Worker
) -> None:
    simulator = Simulator([simulated], instance_count=20, rate=100, seed=2)
    simulator.fill(Event())
    for _ in range(100):
        simulator.step()
        work(worker)
    kinds = announced(engine)
    assert {
        "instance.create.end",
        "instance.update",
        "instance.power_off.end",
        "instance.power_on.end",
        "instance.live_migration_post_dest.end",
        "instance.delete.end",
    } <= kinds.keys()
    assert 10 <= count_live(engine) <= 30
    assert count_live(engine) == simulator.live_count


def test_steps_survive_instances_that_somebody_else_deleted(
    simulated: SimulatedCell, engine: Engine, fleet: Fleet, cell: Cell, worker: Worker
) -> None:
    simulator = Simulator([simulated], instance_count=5, rate=100, seed=3)
    simulator.fill(Event())
    other = InstanceOperations(engine, fleet, cell)
    for uuid in list(simulated.live):
        other.delete(uuid)
    for _ in range(50):
        simulator.step()
    work(worker)
    assert count_live(engine) == simulator.live_count


def test_run_waits_while_a_cell_is_away(simulated: SimulatedCell, engine: Engine) -> None:
    failures = iter([CellUnreachableError("one", "it is being restarted")])

    class Flaky(SimulatedCell):
        def load(self) -> None:
            for failure in failures:
                raise failure
            super().load()

    flaky = Flaky(simulated.cell, simulated.engine, simulated.fleet, simulated.acceptance)
    Simulator([flaky], instance_count=3, rate=0).run(Event())
    assert count_live(engine) == 3


def test_nothing_happens_in_the_future(simulated: SimulatedCell, engine: Engine, fleet: Fleet, cell: Cell) -> None:
    now = 1_700_000_000_000_000
    simulator = Simulator([simulated], instance_count=5, rate=100, seed=4, clock=lambda: now)
    simulated.acceptance = Acceptance(engine, fleet, cell, clock=lambda: now)
    simulator.fill(Event())
    for _ in range(50):
        simulator.step()
    work(new_worker(engine, fleet, cell, clock=lambda: now))
    with engine.connect() as connection:
        launched = connection.execute(select(func.max(instances.c.launched_at))).scalar_one()
    assert launched <= now


def test_filling_says_how_far_it_is_and_how_long_it_takes(
    simulated: SimulatedCell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulator, "_SAID_EACH_S", 0)
    with structlog.testing.capture_logs() as logs:
        Simulator([simulated], instance_count=300, rate=0).fill(Event())
    filling = [log for log in logs if log["event"] == "simulator.filling"]
    assert [(log["instances"], log["of"]) for log in filling] == [(250, 300), (300, 300)]
    assert all(log["per_s"] > 0 for log in filling)
    assert [log["left_s"] == 0 for log in filling][-1]
