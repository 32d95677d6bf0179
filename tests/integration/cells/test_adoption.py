"""Mappings beside the rows of their cell, on both databases: what differs, and what only seems to."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import Engine, delete, insert, update

from fleetlight.cells.errors import FleetUnreachableError, InstanceExistsError
from fleetlight.cells.fleet import adoption
from fleetlight.cells.fleet.adoption import MappingComparison, MappingDifferences, compare_mappings, map_instances
from fleetlight.cells.fleet.fleet import Fleet, InstanceMapping
from fleetlight.cells.fleet.tables import cells as cells_table
from fleetlight.cells.fleet.tables import fleet_metadata, instance_mappings
from fleetlight.cells.kinds.native.adapter import NativeAdapter
from fleetlight.cells.model import Cell, InstanceRow
from fleetlight.cells.tables import instances
from fleetlight.manager.operations.jobs.metrics import WorkerMetrics
from fleetlight.manager.operations.mapping_upkeep import MappingUpkeep
from fleetlight.query.page import PageRequest
from tests.support.fleets.documents import make_uuid
from tests.support.fleets.instance_operations import InstanceOperations
from tests.support.servers.backups import Backup

HOUR = 3600 * 1_000_000


@pytest.fixture
def adapter(cell: Cell, engine: Engine) -> NativeAdapter:
    return NativeAdapter(cell, engine=engine)


@pytest.fixture
def create(cell: Cell, engine: Engine, fleet: Fleet) -> Callable[[], str]:
    operations = InstanceOperations(engine, fleet, cell)
    return lambda: operations.create({"project_id": "demo", "user_id": "ada"}).uuid


@pytest.fixture(autouse=True)
def pages_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adoption, "_BATCH_SIZE", 2)


def forget(fleet: Fleet, *uuids: str) -> None:
    with fleet.database.writing() as connection:
        connection.execute(delete(instance_mappings).where(instance_mappings.c.instance_uuid.in_(uuids)))


Summary = tuple[int, list[str], list[str], list[str], dict[str, str]]


def summary(found: MappingDifferences) -> Summary:
    return found.rows, sorted(found.missing), sorted(found.changed), sorted(found.gone), dict(found.elsewhere)


def test_mappings_of_a_cell_that_works_differ_in_nothing(
    adapter: NativeAdapter, fleet: Fleet, create: Callable[[], str]
) -> None:
    for _ in range(5):
        create()
    assert summary(compare_mappings(adapter, fleet, repair=True)) == (5, [], [], [], {})


def test_every_difference_is_named_and_repaired_once(
    adapter: NativeAdapter, fleet: Fleet, cell: Cell, create: Callable[[], str], engine: Engine
) -> None:
    uuids = sorted(create() for _ in range(7))
    missing, changed, deleted = uuids[0:2], uuids[2], uuids[3]
    InstanceOperations(engine, fleet, cell).delete(deleted)
    fleet.mark_queued_for_delete(cell.uuid, [deleted], queued=False)
    forget(fleet, *missing)
    with fleet.database.writing() as connection:
        wrong = update(instance_mappings).where(instance_mappings.c.instance_uuid == changed)
        connection.execute(wrong.values(project_id="other"))
    fleet.add_mappings([InstanceMapping(make_uuid(1), cell.uuid, "demo", "ada", 1)])
    expected: Summary = (7, missing, [changed, deleted], [make_uuid(1)], {})
    assert summary(compare_mappings(adapter, fleet, repair=False)) == expected
    assert summary(compare_mappings(adapter, fleet, repair=True)) == expected
    assert summary(compare_mappings(adapter, fleet, repair=True)) == (7, [], [], [], {})
    known = fleet.mappings_of([*uuids, make_uuid(1)])
    assert {each.project_id for each in known.values()} == {"demo"}
    assert {uuid for uuid, each in known.items() if each.queued_for_delete} == {deleted, make_uuid(1)}


def test_instance_that_is_being_created_is_not_gone(adapter: NativeAdapter, fleet: Fleet, cell: Cell) -> None:
    fleet.add_mappings([InstanceMapping(make_uuid(1), cell.uuid, "demo", "ada", 10 * HOUR)])
    early = MappingComparison(adapter, fleet, repair=True, clock=lambda: 11 * HOUR)
    late = MappingComparison(adapter, fleet, repair=True, clock=lambda: 11 * HOUR + 1)
    assert [found.gone for found in (early.step(), late.step()) if found] == [[], [make_uuid(1)]]


@pytest.mark.parametrize(
    "state", [{"vm_state": "soft-delete", "task_state": None}, {"vm_state": "active", "task_state": "deleting"}]
)
def test_instance_that_is_being_deleted_or_can_be_restored_stays_queued(
    adapter: NativeAdapter, fleet: Fleet, engine: Engine, create: Callable[[], str], state: dict[str, str]
) -> None:
    uuid = create()
    with engine.begin() as connection:
        connection.execute(update(instances).where(instances.c.uuid == uuid).values(state))
    fleet.mark_queued_for_delete(adapter.cell.uuid, [uuid])
    comparison = MappingComparison(adapter, fleet, repair=True)
    assert [summary(found) for found in (comparison.step(), comparison.step()) if found] == [(1, [], [], [], {})] * 2


def test_living_instance_that_was_found_queued_twice_is_not_queued_any_more(
    adapter: NativeAdapter, fleet: Fleet, cell: Cell, create: Callable[[], str]
) -> None:
    uuid = create()
    fleet.mark_queued_for_delete(cell.uuid, [uuid])
    comparison = MappingComparison(adapter, fleet, repair=True)
    found = [comparison.step() for _ in range(3)]
    assert [each.changed for each in found if each] == [[], [uuid], []]
    mapping = fleet.mapping_of(uuid)
    assert mapping is not None
    assert not mapping.queued_for_delete


def test_instance_that_another_cell_has_is_named_and_left_to_it(
    adapter: NativeAdapter, fleet: Fleet, cell: Cell, create: Callable[[], str]
) -> None:
    mine, theirs = create(), create()
    other = replace(cell, uuid=make_uuid(99), name="other")
    with fleet.database.writing() as connection:
        values = {"uuid": other.uuid, "name": other.name, "kind": "native", "database_url": "", "transport_url": ""}
        connection.execute(
            insert(cells_table).values({**values, "disabled": False, "takes_announcements": False, "number": 99})
        )
        moved = update(instance_mappings).where(instance_mappings.c.instance_uuid == theirs)
        connection.execute(moved.values(cell_uuid=other.uuid))
    forget(fleet, mine)
    assert summary(compare_mappings(adapter, fleet, repair=True)) == (2, [mine], [], [], {theirs: other.uuid})
    assert fleet.cells_of([mine, theirs]) == {mine: cell.uuid, theirs: other.uuid}
    with pytest.raises(InstanceExistsError, match=theirs):
        map_instances(adapter, fleet)


class Clock:
    now = 100 * HOUR

    def __call__(self) -> int:
        return self.now


class CountingAdapter(NativeAdapter):
    """Counts the comparisons that are begun."""

    begun = 0

    def read_page(self, request: PageRequest) -> Sequence[InstanceRow]:
        self.begun += request.after is None
        return super().read_page(request)


def begun_by(upkeep: MappingUpkeep, adapter: CountingAdapter) -> int:
    """How many comparisons it makes when it is called now."""
    before = adapter.begun
    while upkeep.step():
        pass
    return adapter.begun - before


def test_comparison_is_made_at_the_start_then_at_intervals_and_at_once_when_the_database_went_back(
    cell: Cell, engine: Engine, fleet: Fleet, create: Callable[[], str], tmp_path: Path
) -> None:
    adapter = CountingAdapter(cell, engine=engine)
    fleet.clock = clock = Clock()  # type: ignore[assignment]
    uuids = [create() for _ in range(3)]
    metrics = WorkerMetrics()
    upkeep, other = (MappingUpkeep(adapter, fleet, metrics, interval_s=60) for _ in range(2))
    backup = Backup(fleet.database.engine, tmp_path, fleet_metadata)
    assert [begun_by(upkeep, adapter), begun_by(upkeep, adapter)] == [1, 0]
    clock.now += 1
    assert [begun_by(other, adapter), begun_by(other, adapter), begun_by(upkeep, adapter)] == [1, 0, 0]
    clock.now += 60 * 1_000_000
    assert [begun_by(upkeep, adapter), begun_by(other, adapter)] == [1, 0], "one of them is enough"
    backup.restore()
    forget(fleet, *uuids)
    clock.now += 1
    assert begun_by(upkeep, adapter) == 1
    assert len(fleet.mappings_of(uuids)) == 3
    known = fleet.compared_mappings.of(adapter.cell.uuid)
    assert known is not None
    assert (known.repaired, known.repaired_at, known.compared_at) == (3, clock.now, clock.now)


def test_worker_goes_on_without_the_comparison_while_the_fleet_database_is_away(
    adapter: NativeAdapter, fleet: Fleet, create: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    uuid = create()
    upkeep = MappingUpkeep(adapter, fleet, WorkerMetrics(), interval_s=60)
    with monkeypatch.context() as away:
        away.setattr(fleet, "mappings_of", partial(_fail, FleetUnreachableError("it is away")))
        assert upkeep.step() == 0
    forget(fleet, uuid)
    while upkeep.step():
        pass
    assert fleet.mapping_of(uuid) is not None


def _fail(error: Exception, *_arguments: object) -> None:
    raise error
