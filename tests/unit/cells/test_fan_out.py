import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pytest

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.errors import CellUnreachableError, FleetUnreachableError, UnknownCellError
from fleetlight.cells.fan_out import cell_pool
from fleetlight.cells.fan_out.cell_pool import CellPool
from fleetlight.cells.model import Cell, InstanceRow
from fleetlight.query.filters import EVERYTHING
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import SortOrder
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.support.waiting import eventually

ONE = Cell("uuid-1", "one", CellKind.NATIVE, "sqlite:///one.db", "memory://")
TWO = Cell("uuid-2", "two", CellKind.NATIVE, "sqlite:///two.db", "memory://")
REQUEST = PageRequest(EVERYTHING, SortOrder.of(INSTANCE_FIELDS, []), 10)
SOON_S = 0.05
LONG_S = 3600


@dataclass
class FakeAdapter:
    """Answers every question with one row, or hangs while `gate` is closed."""

    cell: Cell
    gate: threading.Event = field(default_factory=threading.Event)
    asked: int = 0
    failure: Exception | None = None
    is_closed: bool = False

    def read_page(self, request: PageRequest) -> Sequence[InstanceRow]:
        self.asked += 1
        self.gate.wait(60)
        if self.failure:
            raise self.failure
        return [InstanceRow(self.cell.uuid, 1, {"uuid": "a"})][: request.limit]

    def find(self, uuid: str) -> InstanceRow | None:
        return next((row for row in self.read_page(REQUEST) if row.uuid == uuid), None)

    def close(self) -> None:
        self.is_closed = True


class Fleet:
    """A fleet whose cells are fake; every adapter that was opened is in `adapters`, the newest last."""

    def __init__(self) -> None:
        self.cells: list[Cell] = [ONE, TWO]
        self.adapters: list[FakeAdapter] = []
        self.is_reachable = True
        self.listed = 0

    def list_cells(self) -> Sequence[Cell]:
        self.listed += 1
        if not self.is_reachable:
            raise FleetUnreachableError("gone")
        return list(self.cells)

    def open_adapter(self, cell: Cell) -> FakeAdapter:
        adapter = FakeAdapter(cell)
        adapter.gate.set()
        self.adapters.append(adapter)
        return adapter

    def adapter(self, cell: Cell) -> FakeAdapter:
        return next(adapter for adapter in self.adapters if adapter.cell == cell)


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    fleet = Fleet()
    yield fleet
    for adapter in fleet.adapters:
        adapter.gate.set()


def new_pool(fleet: Fleet, refresh_interval_s: float = 100, threads: int = 2, deadline_s: float = LONG_S) -> CellPool:
    return CellPool(
        fleet.list_cells,
        fleet.open_adapter,
        threads_per_cell=threads,
        refresh_interval_s=refresh_interval_s,
        deadline_s=deadline_s,
        probe_interval_s=0.01,
    )


async def test_cells_are_asked_at_the_same_time(fleet: Fleet) -> None:
    pool = new_pool(fleet)
    await pool.read_page(ONE.uuid, REQUEST, 5)
    await pool.read_page(TWO.uuid, REQUEST, 5)
    for adapter in fleet.adapters:
        adapter.gate.clear()
    both = asyncio.gather(*(pool.read_page(cell.uuid, REQUEST, 5) for cell in fleet.cells))
    await eventually(lambda: [adapter.asked for adapter in fleet.adapters] == [2, 2])
    for adapter in fleet.adapters:
        adapter.gate.set()
    assert [rows[0].cell_uuid for rows in await both] == [ONE.uuid, TWO.uuid]
    found = await pool.find(ONE.uuid, "a", 5)
    assert found is not None
    assert await pool.find(ONE.uuid, "b", 5) is None
    await pool.close()


async def test_hanging_cell_is_waited_for_once_and_asked_again_after_it_answered_a_probe(fleet: Fleet) -> None:
    pool = new_pool(fleet, deadline_s=SOON_S)
    await pool.read_page(ONE.uuid, REQUEST, 5)
    hanging = fleet.adapter(ONE)
    hanging.gate.clear()
    with pytest.raises(CellUnreachableError, match=r"'one' cannot be reached: no answer within 0\.05 s"):
        await pool.read_page(ONE.uuid, REQUEST, SOON_S)
    await eventually(lambda: pool.hanging() == {ONE.uuid})
    with pytest.raises(CellUnreachableError, match="it is probed in the background"):
        await pool.read_page(ONE.uuid, REQUEST, 3600)
    assert len(await pool.read_page(TWO.uuid, REQUEST, 5)) == 1

    hanging.gate.set()

    await eventually(lambda: not pool.hanging())
    assert len(await pool.read_page(ONE.uuid, REQUEST, 5)) == 1
    await pool.close()


async def test_cell_that_hangs_for_one_kind_of_question_hangs_for_lists_and_changes(fleet: Fleet) -> None:
    pool = new_pool(fleet, deadline_s=SOON_S)
    await pool.read_page(ONE.uuid, REQUEST, 5)
    hanging = fleet.adapter(ONE)
    hanging.gate.clear()
    with pytest.raises(CellUnreachableError, match="no answer within"):
        await pool.ask_known(ONE, lambda: hanging.gate.wait(60), SOON_S)
    await eventually(lambda: pool.hanging() == {ONE.uuid})
    with pytest.raises(CellUnreachableError, match="it is probed in the background"):
        await pool.read_page(ONE.uuid, REQUEST, 3600)
    with pytest.raises(CellUnreachableError, match="it is probed in the background"):
        await pool.act(ONE, lambda: pytest.fail("this is not made"))
    hanging.gate.set()
    await eventually(lambda: not pool.hanging())
    assert await pool.act(ONE, lambda: "changed") == "changed"
    await pool.close()


async def test_cell_is_opened_once_for_lists_other_questions_and_changes(fleet: Fleet) -> None:
    pool = new_pool(fleet)
    opened = await pool.ask_known(ONE, lambda: pool.opened(ONE), 5)  # before the registry was read
    assert await pool.act(ONE, lambda: pool.opened(ONE)) is opened
    await pool.read_page(ONE.uuid, REQUEST, 5)
    assert pool.opened(ONE) is opened
    assert fleet.adapters == [opened]
    await pool.close()
    await eventually(lambda: fleet.adapters[0].is_closed)
    with pytest.raises(CellUnreachableError, match="about to end"):
        pool.opened(ONE)


async def test_cell_that_has_moved_is_asked_and_changed_at_its_new_address_at_once(fleet: Fleet) -> None:
    pool = new_pool(fleet, refresh_interval_s=0)
    await pool.read_page(ONE.uuid, REQUEST, 5)
    fleet.cells[0] = moved = replace(ONE, database_url="sqlite:///elsewhere.db")
    assert await pool.act(moved, lambda: pool.opened(moved).cell) == moved
    assert await pool.ask(ONE.uuid, lambda adapter: adapter.cell, 5) == moved
    await eventually(lambda: [adapter.is_closed for adapter in fleet.adapters] == [True, False])
    await pool.close()
    await eventually(lambda: fleet.adapters[1].is_closed)


async def test_list_of_cells_that_was_never_read_is_not_what_was_asked_for_otherwise(fleet: Fleet) -> None:
    pool = new_pool(fleet)
    fleet.is_reachable = False
    assert await pool.ask_known(ONE, lambda: "answer", 5) == "answer"
    with pytest.raises(FleetUnreachableError):
        await pool.cells()
    await pool.close()


async def test_busy_cell_lets_questions_wait_inside_their_deadline(fleet: Fleet) -> None:
    pool = new_pool(fleet, threads=1)
    await pool.read_page(ONE.uuid, REQUEST, 5)
    adapter = fleet.adapter(ONE)
    adapter.gate.clear()
    questions = asyncio.gather(*(pool.read_page(ONE.uuid, REQUEST, 5) for _ in range(10)))
    await eventually(lambda: adapter.asked == 2)
    adapter.gate.set()
    assert [len(rows) for rows in await questions] == [1] * 10
    await pool.close()


async def test_question_that_missed_its_deadline_while_waiting_is_never_asked(fleet: Fleet) -> None:
    pool = new_pool(fleet, threads=1)
    await pool.read_page(ONE.uuid, REQUEST, 5)
    adapter = fleet.adapter(ONE)
    adapter.gate.clear()
    running = asyncio.ensure_future(pool.read_page(ONE.uuid, REQUEST, 5))
    await eventually(lambda: adapter.asked == 2)
    with pytest.raises(CellUnreachableError):
        await pool.read_page(ONE.uuid, REQUEST, SOON_S)
    adapter.gate.set()
    await running
    await pool.read_page(ONE.uuid, REQUEST, 5)
    assert adapter.asked == 3
    await pool.close()


async def test_failing_cell_raises_what_it_said(fleet: Fleet) -> None:
    pool = new_pool(fleet)
    await pool.read_page(ONE.uuid, REQUEST, 5)
    fleet.adapter(ONE).failure = CellUnreachableError("one", "connection refused")
    with pytest.raises(CellUnreachableError, match="connection refused"):
        await pool.read_page(ONE.uuid, REQUEST, 5)
    await pool.close()


async def test_cell_that_cannot_be_opened_is_tried_again_at_the_next_question(fleet: Fleet) -> None:
    opened: list[Cell] = []

    def open_second_time(cell: Cell) -> FakeAdapter:
        opened.append(cell)
        if len(opened) == 1:
            raise CellUnreachableError(cell.name, "no adapter")
        return fleet.open_adapter(cell)

    pool = CellPool(fleet.list_cells, open_second_time)
    with pytest.raises(CellUnreachableError, match="no adapter"):
        await pool.read_page(ONE.uuid, REQUEST, 5)
    assert len(await pool.read_page(ONE.uuid, REQUEST, 5)) == 1
    await pool.close()


async def test_list_of_cells_follows_the_registry_and_survives_its_absence(fleet: Fleet) -> None:
    pool = new_pool(fleet, refresh_interval_s=0)
    await pool.read_page(ONE.uuid, REQUEST, 5)
    await pool.read_page(TWO.uuid, REQUEST, 5)
    moved = replace(ONE, database_url="sqlite:///elsewhere.db")
    fleet.cells = [moved]
    assert await pool.cells() == (moved,)
    await eventually(lambda: all(adapter.is_closed for adapter in fleet.adapters))
    with pytest.raises(UnknownCellError, match="known: one"):
        await pool.read_page(TWO.uuid, REQUEST, 5)
    await pool.read_page(ONE.uuid, REQUEST, 5)
    assert fleet.adapters[-1].cell == moved

    fleet.is_reachable = False
    assert await pool.cells() == (moved,)
    await pool.close()


async def test_registry_that_hangs_costs_a_moment_and_is_not_asked_twice(fleet: Fleet) -> None:
    gate = threading.Event()

    def list_cells() -> Sequence[Cell]:
        cells = fleet.list_cells()
        if fleet.listed > 1:
            gate.wait(10)
        return cells

    pool = CellPool(list_cells, fleet.open_adapter, refresh_interval_s=0, list_timeout_s=SOON_S)
    known = await pool.cells()
    fleet.cells = [ONE]
    for _ in range(3):
        assert await pool.cells() == known
    assert fleet.listed == 2
    gate.set()
    assert await pool.cells() == (ONE,)
    await pool.close()


async def test_registry_that_hangs_from_the_beginning_is_reported(fleet: Fleet) -> None:
    gate = threading.Event()

    def list_cells() -> Sequence[Cell]:
        gate.wait(10)
        return fleet.list_cells()

    pool = CellPool(list_cells, fleet.open_adapter, list_timeout_s=SOON_S)
    with pytest.raises(FleetUnreachableError, match="no answer within"):
        await pool.cells()
    gate.set()
    assert await pool.cells() == (ONE, TWO)
    await pool.close()


async def test_registry_that_was_read_proves_for_a_while_which_cells_there_are(fleet: Fleet) -> None:
    pool = CellPool(fleet.list_cells, fleet.open_adapter, refresh_interval_s=0, proves_for_s=0.5)
    began = time.monotonic()
    assert await pool.knows_all_cells()
    fleet.is_reachable = False
    while await pool.knows_all_cells():
        assert time.monotonic() - began < 5, "it proves nothing any more"
        await asyncio.sleep(0)
    assert time.monotonic() - began > 0.4
    assert fleet.listed > 1, "it was read again beside the questions"
    fleet.is_reachable = True
    # The first question may be answered by a reading that had begun before.
    assert await pool.knows_all_cells() or await pool.knows_all_cells()
    await pool.close()


async def test_registry_that_hangs_is_not_waited_for_while_it_is_known(fleet: Fleet) -> None:
    gate = threading.Event()

    def list_cells() -> Sequence[Cell]:
        if fleet.listed:
            gate.wait(60)
        return fleet.list_cells()

    pool = CellPool(list_cells, fleet.open_adapter, refresh_interval_s=0, proves_for_s=60, list_timeout_s=60)
    await pool.cells()
    for _ in range(3):
        async with asyncio.timeout(30):
            assert await pool.knows_all_cells()
    gate.set()
    await pool.close()


async def test_registry_that_hangs_is_waited_for_from_the_beginning_of_its_reading(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = threading.Event()
    now_s = 0.0
    monkeypatch.setattr(cell_pool, "time", SimpleNamespace(monotonic=lambda: now_s))

    def list_cells() -> Sequence[Cell]:
        if fleet.listed:
            gate.wait(60)
        return fleet.list_cells()

    pool = CellPool(list_cells, fleet.open_adapter, refresh_interval_s=0, proves_for_s=60, list_timeout_s=60)
    await pool.cells()
    now_s = 1
    await pool.cells()
    now_s = 62
    # A tenth of a second for each of the two looks in it, and not what any list may wait.
    async with asyncio.timeout(30):
        assert not await pool.knows_all_cells()
    gate.set()
    await pool.close()


async def test_registry_is_not_read_for_every_question(fleet: Fleet) -> None:
    pool = new_pool(fleet)
    await asyncio.gather(*(pool.read_page(ONE.uuid, REQUEST, 5) for _ in range(5)))
    assert fleet.listed == 1
    await pool.close()


async def test_cell_that_has_just_joined_is_asked_as_soon_as_somebody_knows_of_it(fleet: Fleet) -> None:
    fleet.cells = [ONE]
    pool = new_pool(fleet)
    assert await pool.knows_all_cells()
    fleet.cells = [ONE, TWO]
    assert await pool.knows_all_cells(), "as of some time ago"
    assert await pool.read_page(TWO.uuid, REQUEST, 60) is not None
    assert await pool.cells() == (ONE, TWO)
    assert not await pool.knows_all_cells(["somewhere else"])
    await pool.close()


async def test_nobody_knows_whether_there_are_more_cells_while_the_registry_is_away(fleet: Fleet) -> None:
    pool = new_pool(fleet, refresh_interval_s=0)
    assert await pool.knows_all_cells()
    fleet.is_reachable = False
    assert not await pool.knows_all_cells()
    assert await pool.cells() == (ONE, TWO)
    fleet.is_reachable = True
    assert await pool.knows_all_cells()
    await pool.close()


def test_fleet_that_was_never_read_is_reported(fleet: Fleet) -> None:
    fleet.is_reachable = False
    with pytest.raises(FleetUnreachableError):
        asyncio.run(new_pool(fleet).cells())


class SlowRegistry:
    """A registry that has read its cells, and hands them over once `gate` is open."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self.gate = threading.Event()
        self.has_read = threading.Event()

    def list_cells(self) -> Sequence[Cell]:
        cells = self._fleet.list_cells()
        self.has_read.set()
        self.gate.wait(60)
        return cells


async def test_cell_that_joins_while_the_registry_is_read_stays(fleet: Fleet) -> None:
    registry = SlowRegistry(fleet)
    fleet.cells = [ONE]
    pool = CellPool(registry.list_cells, fleet.open_adapter, list_timeout_s=60)
    reading = asyncio.create_task(pool.cells())
    await eventually(registry.has_read.is_set)
    fleet.cells = [ONE, TWO]
    joined = pool.opened(TWO)
    registry.gate.set()
    assert set(await reading) == {ONE, TWO}
    assert pool.opened(TWO) is joined
    assert not fleet.adapter(TWO).is_closed
    await pool.close()


async def test_cell_that_moves_while_the_registry_is_read_is_at_its_new_address(fleet: Fleet) -> None:
    registry = SlowRegistry(fleet)
    pool = CellPool(registry.list_cells, fleet.open_adapter, list_timeout_s=60)
    reading = asyncio.create_task(pool.cells())
    await eventually(registry.has_read.is_set)
    moved = replace(ONE, database_url="sqlite:///elsewhere.db")
    pool.opened(moved)
    registry.gate.set()
    assert set(await reading) == {moved, TWO}
    await pool.close()


async def test_pool_that_was_closed_while_the_registry_was_read_opens_no_cell(fleet: Fleet) -> None:
    registry = SlowRegistry(fleet)
    pool = CellPool(registry.list_cells, fleet.open_adapter, list_timeout_s=60)
    reading = asyncio.create_task(pool.cells())
    await eventually(registry.has_read.is_set)
    await pool.close()
    registry.gate.set()
    assert await reading == ()
    with pytest.raises(CellUnreachableError, match="about to end"):
        pool.opened(ONE)


async def test_adapter_is_not_opened_any_more_once_its_cell_is_closed(fleet: Fleet) -> None:
    """What asks for it in another thread has found the cell before the pool was closed."""

    may_open, is_opening = threading.Event(), threading.Event()

    def open_adapter(cell: Cell) -> FakeAdapter:
        is_opening.set()
        may_open.wait(60)
        return fleet.open_adapter(cell)

    pool = CellPool(fleet.list_cells, open_adapter)
    opening = asyncio.create_task(asyncio.to_thread(pool.opened, ONE))
    await eventually(is_opening.is_set)
    [opened] = [each for uuid, each in pool._open_cells.items() if uuid == ONE.uuid]
    await pool.close()
    may_open.set()
    await opening
    await eventually(lambda: fleet.adapter(ONE).is_closed)
    with pytest.raises(CellUnreachableError, match="ends"):
        opened.opened()
    assert len(fleet.adapters) == 1
