"""Several processes follow one fleet at any lag: a reader whom they answer in turn gets each change once, in order."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from fleetlight.api.changes.routes import next_batch
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.epochs import Position
from fleetlight.cells.errors import CellUnreachableError, FleetUnreachableError, UnknownCellError
from fleetlight.cells.fleet.journals import DetectedChange, JournalReading
from fleetlight.cells.model import Cell, CellAdapter, InstanceRow
from fleetlight.listing.watches import changelogs, watch
from fleetlight.listing.watches.changelogs import ChangedItem, Changelogs, ResetReason
from fleetlight.listing.watches.feed import ChangeFeed
from fleetlight.listing.watches.positions import PositionCodec
from fleetlight.listing.watches.watch import Watch, WatchEvent
from fleetlight.listing.watches.watched_list import ChangeKind, Condition, CoveredCell, Effect
from fleetlight.query.filters import EVERYTHING, Eq
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.property.reaching import shares
from tests.support.examples import examples
from tests.support.fleets.documents import make_record
from tests.support.memory.memory_cell import NOW, MemoryCell

PROCESSES = 3
_CODEC = PositionCodec("a secret of sixteen letters")
_ENOUGH = 200
"""Calls after which everything was told, or never is."""


class NumberedCell(MemoryCell):
    """A native cell whose relay begins epochs."""

    def __init__(self, uuid: str, name: str) -> None:
        super().__init__(uuid, name)
        self.restart_relay()

    def change(self, *, is_wanted: bool) -> None:
        self.create(project_id="wanted" if is_wanted else "other")

    def restart_relay(self) -> None:
        self.epochs.append((str(uuid4()), self.last_sequence))

    def restore(self, sequence: int) -> None:
        """From a backup of when the cell was there; a relay has not started yet."""
        self.changes = [change for change in self.changes if change.sequence <= sequence]
        self.epochs = [epoch for epoch in self.epochs if epoch[1] <= sequence]
        self.last_sequence = sequence


class Journal:
    """Of a cell that numbers nothing, as ReadsJournals gives it."""

    def __init__(self, uuid: str, name: str) -> None:
        self.cell = Cell(uuid, name, CellKind.NOVA_DB, "", "")
        self.epoch = str(uuid4())
        self.entries: list[DetectedChange] = []
        self.is_away = False

    @property
    def last_sequence(self) -> int:
        return len(self.entries)

    def change(self, *, is_wanted: bool) -> None:
        number = len(self.entries)
        record = make_record(number, project_id="wanted" if is_wanted else "other")
        self.entries.append(DetectedChange(record["uuid"], 1, record))

    def restart_relay(self) -> None:
        """Nothing numbers here but the fleet database."""

    def read(self, after: int, limit: int) -> JournalReading:
        if self.is_away:
            raise FleetUnreachableError("it is away")
        entries = [(number + 1, found) for number, found in enumerate(self.entries)][after : after + limit]
        return JournalReading(Position(self.epoch, len(self.entries)), NOW, NOW, entries)


class Fleet:
    """What all processes read: ListsCells, QueriesCells and ReadsJournals at once."""

    def __init__(self) -> None:
        self.logs: dict[str, NumberedCell | Journal] = {}
        for make in (NumberedCell, Journal):
            self.add(make(str(uuid4()), make.__name__))

    def add(self, log: NumberedCell | Journal) -> None:
        self.logs[log.cell.uuid] = log

    @property
    def native(self) -> NumberedCell:
        return next(log for log in self.logs.values() if isinstance(log, NumberedCell))

    def read(self, cell_uuid: str, after: int, limit: int) -> JournalReading | None:
        log = self.logs[cell_uuid]
        return log.read(after, limit) if isinstance(log, Journal) else None

    def read_back(self, cell_uuid: str, before: int, limit: int) -> JournalReading | None:
        raise AssertionError("feeds go forward")


class Registry:
    """The fleet as one process knows it."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._known = dict(fleet.logs)
        self.is_away = False

    async def cells(self) -> tuple[Cell, ...]:
        return tuple(log.cell for log in self._known.values())

    async def knows_all_cells(self, cell_uuids: Collection[str] = ()) -> bool:
        if not self._known.keys() >= set(cell_uuids) and not self.is_away:
            self._known = dict(self._fleet.logs)
        return not self.is_away and self._known.keys() >= set(cell_uuids)

    async def ask(self, cell_uuid: str, query: Callable[[CellAdapter], Any], _timeout_s: float) -> Any:
        log = self._known.get(cell_uuid)
        if not isinstance(log, NumberedCell):
            raise UnknownCellError(cell_uuid, ())
        return query(log)


class Process(ChangeFeed):
    """The feed of a process, which reads on only when it is told to."""

    def __init__(self, fleet: Fleet) -> None:
        self.registry = Registry(fleet)
        self._changelogs_read = Changelogs(self.registry, fleet, 5, clock=lambda: NOW)
        super().__init__(self.registry, self._changelogs_read)

    async def _follow(self, cell: Cell) -> None:
        await asyncio.Event().wait()

    async def advance(self) -> None:
        """One look at each cell."""
        for cell in [each.cell for each in self.followed()]:
            if cell.uuid not in self._positions:
                await self._find_position(cell, ResetReason.CELL_JOINED)
            elif isinstance(reason := await self._read_on(cell.uuid), ResetReason):
                await self._find_position(cell, reason)

    def stop(self) -> None:
        self.close()
        self._changelogs_read.close()


class Wanted:
    """The list of the instances of one project."""

    condition = Condition(INSTANCE_FIELDS.name, None, Eq("project_id", "wanted"), EVERYTHING)

    def shows(self, row: InstanceRow) -> bool:
        return bool(row.record["project_id"] == "wanted")

    def has(self, _row: InstanceRow) -> bool:
        return True

    def event(self, kind: ChangeKind, change: ChangedItem, row: InstanceRow) -> tuple[str, bytes]:
        return kind, row.uuid.encode()

    def coverage(self, cells: Sequence[CoveredCell], cursor: str | None) -> bytes:
        return b"{}"


class Rights:
    are_old = False

    async def confirm(self) -> None: ...


class Idle:
    """A watcher that keeps a feed running."""

    watched = Wanted()

    def offer(self, change: ChangedItem, effect: Effect) -> None: ...

    def report(self) -> None: ...

    def reset(self, reason: ResetReason, cell_uuid: str, position: Position | None) -> None: ...

    def end(self) -> None: ...


@dataclass
class Reader:
    """Who asks the processes in turn, and keeps what it was told with the cursor behind it."""

    cursor: str | None = None
    told: list[str] = field(default_factory=list)
    resets: list[ResetReason] = field(default_factory=list)
    _since_cursor: list[str] = field(default_factory=list)
    _stream: AsyncGenerator[WatchEvent] | None = None

    def watch(self, process: Process) -> Watch:
        since = None if self.cursor is None else _CODEC.decode(self.cursor)
        lost = ResetReason.UNKNOWN_CURSOR if since is None and self.cursor is not None else None
        return Watch(process, _CODEC, Wanted(), Rights(), since, lost=lost, deadline=0)

    async def poll(self, process: Process) -> bool:
        """Whether there is more, of one poll that does not wait."""
        await self.disconnect()
        batch = await next_batch(self.watch(process), 0)
        if isinstance(batch, ResetReason):
            self.resets.append(batch)
            self.cursor = None
            return False
        self.told += [change.decode() for change in batch.changes]
        self.cursor = batch.cursor
        return batch.has_more

    async def connect(self, process: Process) -> None:
        """Begin a stream there; what came behind the last cursor of the one before is not kept."""
        await self.disconnect()
        self._stream = self.watch(process).events()
        await self.take(1)

    async def take(self, events: int) -> None:
        if self._stream is None:
            return
        for _ in range(events):
            event = await anext(self._stream)
            if event.reset is not None:
                self.resets.append(event.reset)
            elif event.name in set(ChangeKind):
                self._since_cursor.append(event.data.decode())
            if event.cursor is not None:
                self.told += self._since_cursor
                self._since_cursor.clear()
                self.cursor = event.cursor

    async def disconnect(self) -> None:
        if self._stream is not None:
            await self._stream.aclose()
            self._stream = None
        self._since_cursor.clear()


@dataclass(frozen=True)
class Step:
    """what: one of the names below. process: which one. times: how often, or how much."""

    what: str
    process: int = 0
    times: int = 1


steps = st.builds(
    Step,
    st.sampled_from([*["change", "advance", "poll", "take"] * 2, "other", "epoch", "connect", "restart", "away"]),
    st.integers(0, PROCESSES - 1),
    st.integers(1, 7),
)
stories = st.lists(steps, min_size=12, max_size=40)


@pytest.fixture(autouse=True, scope="module")
def _short_times() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        # Lags are within batches too, and nobody waits for news.
        patch.setattr(changelogs, "_BATCH_SIZE", 3)
        patch.setattr(watch, "_HEARTBEAT_S", 0)
        patch.setattr(watch, "_RETRY_S", 0)
        patch.setattr("fleetlight.api.changes.routes.MAX_CHANGES", 5)
        yield


class World:
    """A fleet, its processes and a reader."""

    def __init__(self) -> None:
        self.fleet = Fleet()
        self.processes = [Process(self.fleet) for _ in range(PROCESSES)]
        self.reader = Reader()
        self.wanted: dict[str, list[str]] = {uuid: [] for uuid in self.fleet.logs}

    async def begin(self) -> None:
        for process in self.processes:
            await process.join(Idle())
        await self.reader.poll(self.processes[0])

    def change(self, cell_uuid: str, *, is_wanted: bool = True) -> None:
        log = self.fleet.logs[cell_uuid]
        log.change(is_wanted=is_wanted)
        if is_wanted:
            newest = log.entries[-1] if isinstance(log, Journal) else log.changes[-1]
            self.wanted[cell_uuid].append(newest.instance_uuid)

    async def take(self, step: Step) -> None:
        process, cells = self.processes[step.process], list(self.fleet.logs)
        match step.what:
            case "change" | "other":
                for number in range(step.times):
                    self.change(cells[number % len(cells)], is_wanted=step.what == "change")
            case "epoch":
                self.fleet.native.restart_relay()
            case "advance":
                for _ in range(step.times):
                    await process.advance()
            case "poll":
                for _ in range(step.times):
                    await self.reader.poll(process)
            case "connect":
                await self.reader.connect(process)
            case "take":
                await self.reader.take(step.times)
            case "restart":
                await self.reader.disconnect()
                process.stop()
                self.processes[step.process] = Process(self.fleet)
                await self.processes[step.process].join(Idle())
            case "away":
                log = self.fleet.logs[cells[step.times % len(cells)]]
                log.is_away = not log.is_away

    async def catch_up(self) -> None:
        """The reader polls at all processes in turn until nothing more comes."""
        for log in self.fleet.logs.values():
            log.is_away = False
        for number in range(_ENOUGH):
            process = self.processes[number % PROCESSES]
            await process.advance()
            has_more = await self.reader.poll(process)
            if not has_more and len(self.reader.told) >= sum(map(len, self.wanted.values())):
                break
        # And nothing comes once more when those that lag have caught up.
        for process in self.processes * 2:
            for _ in range(10):
                await process.advance()
            await self.reader.poll(process)

    def close(self) -> None:
        for process in self.processes:
            process.stop()


def run(scenario: Callable[[World], Any]) -> World:
    async def with_world() -> World:
        world = World()
        try:
            await world.begin()
            await scenario(world)
            await world.reader.disconnect()
        finally:
            world.close()
        return world

    return asyncio.run(with_world())


async def play(world: World, story: Sequence[Step]) -> None:
    for step in story:
        await world.take(step)
    await world.catch_up()


@settings(max_examples=examples(150), deadline=None)
@given(stories)
@example([Step("change", 0, 4), Step("advance", 0, 3), *[Step("poll", 0), Step("poll", 1)] * 2])
@example([Step("change", 0, 4), Step("advance", 0, 3), *[Step("connect"), Step("take", 0, 7), Step("connect", 1)] * 2])
@example([Step("change"), Step("poll", 0), Step("epoch"), Step("change"), Step("poll", 1), Step("advance", 2)])
def test_each_change_comes_once_and_in_order_from_processes_that_answer_in_turn(story: Sequence[Step]) -> None:
    world = run(lambda world: play(world, story))
    assert world.reader.resets == []
    for expected in world.wanted.values():
        of_cell = set(expected)
        assert [uuid for uuid in world.reader.told if uuid in of_cell] == expected
    assert len(world.reader.told) == sum(map(len, world.wanted.values()))


def test_stories_reach_cursors_that_are_ahead_of_a_process() -> None:
    def reached(story: Sequence[Step]) -> Sequence[str]:
        names: list[str] = []

        async def watched(world: World) -> None:
            for step in story:
                await world.take(step)
                since = _CODEC.decode(world.reader.cursor or "") or {}
                for process in world.processes:
                    for uuid, position in process.positions.items():
                        if since[uuid].sequence > position.sequence:
                            names.append("ahead")
                        if since[uuid].epoch != position.epoch:
                            names.append("another epoch")

        run(watched)
        return names

    counts = shares(stories, reached)
    assert counts["ahead"] >= 30
    assert counts["another epoch"] >= 20


async def get_ahead(world: World) -> None:
    """Let process 0 tell the reader four changes that no other has seen."""
    for _ in range(4):
        world.change(world.fleet.native.cell.uuid)
    for _ in range(2):
        await world.processes[0].advance()
        await world.reader.poll(world.processes[0])
    assert len(world.reader.told) == 4


def test_cursor_of_what_a_restore_took_back_is_refused_by_a_process_that_lags() -> None:
    """Also while no relay has begun an epoch yet: nothing waits for a number that never comes, or is another's."""

    async def scenario(world: World) -> None:
        await get_ahead(world)
        world.fleet.native.restore(2)
        await world.reader.poll(world.processes[1])

    assert run(scenario).reader.resets == [ResetReason.RESTORED]


def test_cursor_of_another_history_is_refused_by_a_process_that_lags() -> None:
    async def scenario(world: World) -> None:
        await get_ahead(world)
        world.fleet.native.restore(2)
        world.fleet.native.restart_relay()
        for _ in range(9):
            world.fleet.native.change(is_wanted=True)
        await world.reader.poll(world.processes[1])

    assert run(scenario).reader.resets == [ResetReason.RESTORED]


def test_stream_at_a_process_that_lags_hears_of_a_restore() -> None:
    async def scenario(world: World) -> None:
        await get_ahead(world)
        await world.reader.connect(world.processes[1])
        await world.reader.take(2)
        world.fleet.native.restore(2)
        world.fleet.native.restart_relay()
        world.fleet.native.change(is_wanted=True)
        await world.processes[1].advance()
        await world.reader.take(3)

    assert run(scenario).reader.resets == [ResetReason.RESTORED]


@pytest.mark.parametrize("kind", [NumberedCell, Journal])
def test_cursor_with_a_cell_that_a_process_does_not_know_yet_goes_on(kind: type[NumberedCell | Journal]) -> None:
    async def scenario(world: World) -> None:
        joined = kind(str(uuid4()), "joined")
        world.fleet.add(joined)
        world.wanted[joined.cell.uuid] = []
        await world.take(Step("restart"))
        world.reader.cursor = None
        await world.reader.poll(world.processes[0])
        world.change(joined.cell.uuid)
        await world.processes[0].advance()
        await world.reader.poll(world.processes[0])
        for process in world.processes[1:]:
            await world.reader.poll(process)
        world.change(joined.cell.uuid)
        await world.catch_up()

    world = run(scenario)
    assert world.reader.resets == []
    assert world.reader.told == [uuid for uuids in world.wanted.values() for uuid in uuids]


def test_cursor_with_an_unknown_cell_is_not_refused_for_good_while_the_registry_is_away() -> None:
    async def scenario(world: World) -> None:
        joined = NumberedCell(str(uuid4()), "joined")
        world.fleet.add(joined)
        await world.take(Step("restart"))
        await world.reader.poll(world.processes[0])
        world.processes[1].registry.is_away = True
        with pytest.raises(FleetUnreachableError):
            await world.reader.poll(world.processes[1])

    assert run(scenario).reader.resets == []


def test_cursor_with_a_cell_that_has_left_is_refused_by_every_process() -> None:
    async def scenario(world: World) -> None:
        gone = world.fleet.native.cell.uuid
        del world.fleet.logs[gone]
        for process in world.processes:
            process.stop()
        world.processes = [Process(world.fleet) for _ in range(PROCESSES)]
        await world.reader.poll(world.processes[1])

    assert run(scenario).reader.resets == [ResetReason.CELL_LEFT]


def test_cursor_of_another_key_is_refused() -> None:
    async def scenario(world: World) -> None:
        world.reader.cursor = PositionCodec("another secret of many letters").encode({})
        await world.reader.poll(world.processes[1])

    assert run(scenario).reader.resets == [ResetReason.UNKNOWN_CURSOR]


def test_cursor_whose_cell_is_away_keeps_its_place_in_a_process_that_lags() -> None:
    async def scenario(world: World) -> None:
        await get_ahead(world)
        before = _CODEC.decode(world.reader.cursor or "")
        world.fleet.native.is_away = True
        with pytest.raises(CellUnreachableError):
            world.fleet.native.position()
        for process in world.processes:
            await world.reader.poll(process)
        assert _CODEC.decode(world.reader.cursor or "") == before

    assert run(scenario).reader.resets == []
