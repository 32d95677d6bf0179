"""Comparing and repairing with real cells, buses and indexes, under live traffic."""

import random
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from threading import Event
from uuid import uuid4

import pytest
from sqlalchemy import Engine, delete, insert, update

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.database.engines import writing
from fleetlight.cells.errors import InstanceNotFoundError, InvalidTransitionError
from fleetlight.cells.kinds.opening import open_changelog_adapter
from fleetlight.cells.model import Cell
from fleetlight.cells.tables import instances
from fleetlight.indexer.backends.base import OLDEST_TIME_VERSION, IndexWriter
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.reconcile.differences import DifferenceKind, Verification
from fleetlight.indexer.reconcile.fill import sync_cell
from fleetlight.indexer.reconcile.native_cell import NativeComparison
from fleetlight.indexer.reconcile.reconcile import verify
from fleetlight.indexer.transform.documents import to_document
from fleetlight.manager.operations.actions.new_instance import new_record
from tests.support.fleets.cell_databases import engine
from tests.support.fleets.documents import make_record
from tests.support.fleets.indexer_worlds import World, in_thread, new_world
from tests.support.memory.stage import kinds
from tests.support.waiting import wait_until

__all__ = ["engine"]

pytestmark = pytest.mark.no_rerun

NOW = 1_790_000_000_000_000


@pytest.fixture
def world(tmp_path: Path, index: IndexSettings) -> Iterator[World]:
    with new_world(tmp_path, "memory://", str(uuid4()), index) as world:
        yield world


def operate_until(world: World, stop: Event) -> None:
    """Some hundred operations a second."""
    chance = random.Random(3)
    uuids = [changed.uuid for changed in world.operations.create_many([{} for _ in range(30)])]
    while not stop.wait(0.002):
        uuid = chance.choice(uuids)
        try:
            match chance.randrange(4):
                case 0:
                    uuids.append(world.operations.create({}).uuid)
                case 1:
                    world.operations.delete(uuid)
                case _:
                    world.operations.update(uuid, {"display_name": str(chance.random())})
        except (InvalidTransitionError, InstanceNotFoundError):
            continue


def verified(cell: Cell, writer: IndexWriter, *, repair: bool = False, timeout_s: float = 30) -> Verification:
    with closing(open_changelog_adapter(cell)) as adapter:
        return verify(NativeComparison(adapter, writer, catch_up_timeout_s=timeout_s), repair=repair)


def test_live_traffic_is_no_difference_and_what_was_damaged_meanwhile_is_found_and_repaired(world: World) -> None:
    quiet = [changed.uuid for changed in world.operations.create_many([{} for _ in range(8)])]
    with world.relaying(), world.indexing(), closing(open_writer(world.index)) as writer:
        wait_until(world.index_equals_cell, 30)
        with in_thread(lambda stop: operate_until(world, stop)):
            for _ in range(5):
                verification = verified(world.cell, writer)
                assert (verification.differences, verification.has_caught_up) == ((), True)
            stray = str(uuid4())
            newer = writer.read([quiet[1]])[quiet[1]]
            writer.remove({quiet[0]: 1, quiet[1]: 1})
            writer.write([to_document(world.cell.uuid, 9, newer.record)])
            writer.write([to_document(world.cell.uuid, 4, make_record(uuid=stray))])
            writer.make_searchable()
            expected = {
                quiet[0]: DifferenceKind.MISSING,
                quiet[1]: DifferenceKind.NEWER,
                stray: DifferenceKind.ONLY_IN_INDEX,
            }
            found = verified(world.cell, writer)
            assert kinds(found) == expected
            repaired = verified(world.cell, writer, repair=True)
            assert kinds(repaired) == expected
            assert repaired.remaining == ()
            assert verified(world.cell, writer).differences == ()
        wait_until(world.index_equals_cell, 30)


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def cell(request: pytest.FixtureRequest, tmp_path: Path) -> Cell:
    """A native cell with tables and nothing in it."""
    if request.param == "postgresql":
        make: Callable[[], str] = request.getfixturevalue("new_postgresql_database")
        url = make()
    else:
        url = f"sqlite:///{tmp_path}/cell.db"
    return Cell(str(uuid4()), "one", CellKind.NATIVE, url, "memory://")


@pytest.fixture
def writer(index: IndexSettings) -> Iterator[IndexWriter]:
    with closing(open_writer(index)) as writer:
        writer.prepare()
        yield writer


def test_random_differences_are_found_exactly_and_repaired(cell: Cell, engine: Engine, writer: IndexWriter) -> None:
    chance = random.Random(11)
    with writing(engine) as connection:
        connection.execute(insert(instances), [{**new_record({}, NOW), "revision": 2} for _ in range(1500)])
    with closing(open_changelog_adapter(cell)) as adapter:
        sync_cell(adapter, writer, batch_size=500)
        uuids = sorted(adapter.revisions([""]))
    external = to_document(cell.uuid, OLDEST_TIME_VERSION, make_record(uuid=str(uuid4())))
    writer.write([external])
    writer.make_searchable()
    agreed = verified(cell, writer, timeout_s=0)
    assert agreed == Verification(1500, 1500, 1, (), 0, True)

    missing, older, newer, only = (chance.sample(uuids[start::4], 10) for start in range(4))
    writer.remove(dict.fromkeys(missing, 2))
    with writing(engine) as connection:
        connection.execute(update(instances).where(instances.c.uuid.in_(older)).values(revision=3))
        connection.execute(update(instances).where(instances.c.uuid.in_(newer)).values(revision=1))
        connection.execute(delete(instances).where(instances.c.uuid.in_(only)))
    writer.make_searchable()
    expected = {
        **dict.fromkeys(missing, DifferenceKind.MISSING),
        **dict.fromkeys(older, DifferenceKind.OLDER),
        **dict.fromkeys(newer, DifferenceKind.NEWER),
        **dict.fromkeys(only, DifferenceKind.ONLY_IN_INDEX),
    }
    found = verified(cell, writer, timeout_s=0)
    assert kinds(found) == expected
    repaired = verified(cell, writer, repair=True, timeout_s=0)
    assert kinds(repaired) == expected
    assert repaired.remaining == ()
    assert verified(cell, writer, timeout_s=0) == Verification(1490, 1490, 1, (), 0, True)
    assert writer.read([external.id]) == {external.id: external}
    with closing(open_changelog_adapter(cell)) as adapter:
        for uuid in newer:
            row, document = adapter.find(uuid), writer.read([uuid])[uuid]
            assert row is not None
            assert (document.version, document.record) == (1, to_document(cell.uuid, 1, row.record).record)
