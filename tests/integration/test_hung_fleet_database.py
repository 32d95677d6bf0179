"""The fleet database hangs: what is asked of it ends, and an indexer goes on with what it follows."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from bench.faults.proxy import TcpProxy, tcp_proxy
from cells.database import create_database_engine
from cells.errors import FleetUnreachableError
from cells.fleet.fleet import Fleet
from cells.migrations import upgrade_fleet
from indexer.backends.settings import IndexSettings
from tests.support.indexer_worlds import World, indexing, new_world
from tests.support.memory_cell import CELL_UUID
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.postgresql, pytest.mark.timeout(300)]


@pytest.fixture
def proxy(postgresql_url: str) -> Iterator[TcpProxy]:
    server = make_url(postgresql_url)
    with tcp_proxy(server.host or "127.0.0.1", server.port or 5432) as proxy:
        yield proxy
        proxy.restore()


@pytest.fixture
def fleet(postgresql_database: str, proxy: TcpProxy) -> Iterator[Fleet]:
    """Without a cell, behind the proxy."""
    engine = create_database_engine(postgresql_database)
    upgrade_fleet(engine)
    engine.dispose()
    address = make_url(postgresql_database).set(host="127.0.0.1", port=proxy.port)
    with closing(
        Fleet(create_database_engine(address.render_as_string(hide_password=False), answer_timeout_s=1))
    ) as fleet:
        yield fleet


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with new_world(tmp_path, "memory://", CELL_UUID, IndexSettings(path=tmp_path / "index.db")) as world:
        yield world


def test_answer_that_takes_too_long_is_not_waited_for_and_the_next_question_is_answered(fleet: Fleet) -> None:
    with pytest.raises(FleetUnreachableError, match="it has not answered for 1 s"), fleet.database.reading() as asked:
        asked.execute(text("SELECT pg_sleep(60)"))
    with fleet.database.reading() as asked:
        assert asked.execute(text("SELECT 1")).scalar_one() == 1


def test_lease_of_a_session_that_hangs_is_lost(fleet: Fleet, proxy: TcpProxy) -> None:
    with closing(fleet.open_leases("test")) as leases:
        assert leases.acquire("one")
        proxy.hold()
        assert not leases.holds("one")
        proxy.restore()
        wait_until(lambda: leases.acquire("one"))


def test_indexer_goes_on_whose_fleet_database_hangs(fleet: Fleet, proxy: TcpProxy, world: World) -> None:
    """What its followers write becomes searchable, and the progress is saved, by who asks the fleet database too."""
    cell = world.cell
    fleet.add_cell(cell.name, cell.kind, cell.database_url, cell.transport_url, uuid=cell.uuid)
    with world.relaying(), indexing(fleet, world.index) as service:
        wait_until(world.index_equals_cell)
        proxy.hold()
        wait_until(lambda: service.problem)
        world.operations.create({"display_name": "meanwhile"})
        wait_until(lambda: world.has_published_everything() and world.index_equals_cell())
        assert service.problem
        proxy.restore()
        wait_until(lambda: service.problem is None)
