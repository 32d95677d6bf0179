"""`GET /servers/detail` as a stream: later changes that match, for who may see them, without a gap."""

import asyncio
import socket
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from fleetlight.api.limits.request_deadlines import RequestDeadlines
from fleetlight.api.server import serve
from fleetlight.api.settings import ApiSettings
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.epochs import Position
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.fan_out.cell_pool import CellPool
from fleetlight.cells.kinds.opening import open_adapter
from fleetlight.cells.model import Cell, InstanceRow
from fleetlight.listing.errors import RightsLostError
from fleetlight.listing.watches.changelogs import ChangedItem, ChangelogReading, Changelogs, ResetReason, read_on
from fleetlight.listing.watches.feed import ChangeFeed, FollowedCell, Watcher
from fleetlight.listing.watches.positions import PositionCodec
from fleetlight.listing.watches.watch import Watch
from fleetlight.listing.watches.watched_list import ChangeKind, Condition, CoveredCell, Effect
from fleetlight.query.filters import EVERYTHING
from fleetlight.resources.instance import INSTANCE_FIELDS
from tests.contract.compute_fleet import MEMBER, ComputeFleet, hanging_pool
from tests.contract.conftest import own_fleet
from tests.contract.streams import PATIENCE_S, STREAM, stream
from tests.support.fleets.documents import make_record
from tests.support.memory.memory_cell import MemoryCell
from tests.support.servers.backups import Backup

_CELL = str(uuid4())


@pytest.fixture
def fleet(fleet_of_any_database: ComputeFleet) -> ComputeFleet:
    return fleet_of_any_database


small_fleet = own_fleet


def test_later_changes_that_match_are_told_and_what_does_not_match_any_more_is_removed(fleet: ComputeFleet) -> None:
    before = fleet.create("north", display_name="web-before")
    fleet.number_changes()
    api = fleet.api()

    async def scenario() -> None:
        async with stream(api, "name=web", MEMBER) as watch:
            ready = await watch.next()
            assert (ready.name, ready.data) == ("ready", {"complete": True})
            fleet.create("east", display_name="web-of-others", project_id="other")
            later = fleet.create("south", display_name="web-later")
            fleet.number_changes()
            changed = await watch.next()
            assert (changed.name, changed.data["server"]["id"]) == ("changed", later)
            assert {"id", "name", "status", "links", "flavor"} <= set(changed.data["server"])
            fleet.operations("north").update(before, {"display_name": "db"})
            fleet.number_changes()
            assert await watch.told() == ("removed", before)
            fleet.operations("north").update(before, {"display_name": "db-2"})
            fleet.operations("south").delete(later)
            fleet.number_changes()
            assert await watch.told() == ("removed", later), "what was removed is not removed again"

    api.run(scenario())


def test_what_the_list_never_had_is_not_removed_from_it(fleet: ComputeFleet) -> None:
    """Neither what was there before the stream, nor what is made later; also after a break."""
    other = fleet.create("north", display_name="db")
    fleet.number_changes()
    api = fleet.api()

    def change_others() -> str:
        """Changes what does not match, and ends with a server that does; returns that one."""
        fleet.operations("north").update(other, {"metadata": {"moment": str(uuid4())}})
        new = fleet.create("north", display_name="db-new")
        fleet.operations("north").update(new, {"display_name": "db-renamed"})
        fleet.operations("north").delete(new)
        matching = fleet.create("north", display_name="web")
        fleet.number_changes()
        return matching

    async def scenario() -> None:
        async with stream(api, "name=web", MEMBER) as watch:
            await watch.next()
            one = change_others()
            assert await watch.told() == ("changed", one)
        two = change_others()
        async with stream(api, "name=web", MEMBER, last_id=watch.last_id) as again:
            await again.next()
            assert await again.told() == ("changed", two)

    api.run(scenario())


def test_stream_goes_on_from_the_last_id_with_each_change_once(fleet: ComputeFleet) -> None:
    api = fleet.api()

    async def scenario() -> None:
        async with stream(api) as first:
            await first.next()
            one = fleet.create("north")
            fleet.number_changes()
            assert await first.told() == ("changed", one)
        missed = [fleet.create(cell) for cell in ("north", "east", "south")]
        fleet.number_changes()
        async with stream(api, last_id=first.last_id) as second:
            assert (await second.next()).name == "ready"
            told = {await second.told() for _ in missed}
            assert told == {("changed", uuid) for uuid in missed}
            late = fleet.create("south")
            fleet.number_changes()
            assert await second.told() == ("changed", late)

    api.run(scenario())


def test_reader_without_an_id_of_ours_is_told_to_list_again(small_fleet: ComputeFleet) -> None:
    api = small_fleet.api()

    async def scenario() -> None:
        async with stream(api, last_id="nonsense") as watch:
            assert await watch.names(2) == ["ready", "reset"]
            fresh = small_fleet.create("north")
            small_fleet.number_changes()
            assert await watch.told() == ("changed", fresh)

    api.run(scenario())


def test_what_one_changelog_has_forgotten_is_told_as_a_reset_and_the_other_cells_go_on(fleet: ComputeFleet) -> None:
    api = fleet.api()

    async def scenario() -> None:
        async with stream(api) as watch:
            await watch.next()
        kept = {fleet.create(cell) for cell in ("north", "east")}
        fleet.create("south")
        fleet.number_changes()
        fleet.forget_changes("south")
        fleet.create("south")
        fleet.number_changes()
        async with stream(api, last_id=watch.last_id) as again:
            events = [await again.next() for _ in range(4)]
            assert sorted(event.name for event in events) == ["changed", "changed", "ready", "reset"]
            assert {event.data["server"]["id"] for event in events if event.name == "changed"} == kept
            later = fleet.create("south")
            fleet.number_changes()
            assert await again.told() == ("changed", later), "from here on nothing is missing"

    api.run(scenario())


def test_changelog_that_is_pruned_before_it_is_followed_is_told_too(small_fleet: ComputeFleet) -> None:
    with hanging_pool(small_fleet, "south") as pool:
        pool.gate.set()
        api = small_fleet.api(pool=pool.cells)

        async def scenario() -> None:
            async with stream(api) as watch:
                await watch.next()
                pool.gate.clear()
                await watch.skip_to("incomplete")
                small_fleet.create("south")
                small_fleet.number_changes()
                small_fleet.forget_changes("south")
                small_fleet.create("south")
                small_fleet.number_changes()
                pool.gate.set()
                await watch.skip_to("reset")
                later = small_fleet.create("south")
                small_fleet.number_changes()
                event = await watch.skip_to("changed")
                assert event.data["server"]["id"] == later

        api.run(scenario())


def test_restored_cell_is_told_as_a_reset_and_followed_in_its_new_history(fleet: ComputeFleet, tmp_path: Path) -> None:
    kept = fleet.create("south", display_name="kept")
    fleet.number_changes()
    backup = Backup(fleet.engine("south"), tmp_path)
    api = fleet.api()

    async def scenario() -> None:
        async with stream(api) as watch:
            await watch.next()
            lost = {fleet.create("south") for _ in range(3)}
            fleet.number_changes()
            assert {await watch.told() for _ in lost} == {("changed", uuid) for uuid in lost}
            last_id = watch.last_id
            backup.restore()
            assert (await watch.next()).name == "reset"
            # The numbers of what was lost are given to other changes.
            fleet.operations("south").update(kept, {"display_name": "otherwise"})
            fleet.number_changes()
            event = await watch.next()
            assert (event.name, event.data["server"]["name"]) == ("changed", "otherwise")
        for number in range(9):
            fleet.operations("south").update(kept, {"display_name": f"otherwise {number}"})
        fleet.number_changes()
        async with stream(api, last_id=last_id) as again:
            assert await again.names(2) == ["ready", "reset"], "there are as many changes as there had been"
        async with stream(api, last_id=watch.last_id) as again:
            assert await again.names(2) == ["ready", "changed"]

    api.run(scenario())


def test_cell_that_joins_or_leaves_the_fleet_is_a_reset(
    small_fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetlight.listing.watches.feed._CELLS_INTERVAL_S", 0.05)
    pool = CellPool(small_fleet.fleet.cells, open_adapter, refresh_interval_s=0.05, list_timeout_s=60)
    api = small_fleet.api(pool=pool)

    async def scenario() -> None:
        async with stream(api) as watch:
            await watch.next()
            small_fleet.add_cell("west")
            assert (await watch.next()).name == "reset"
            uuid = small_fleet.create("west")
            small_fleet.number_changes()
            assert await watch.told() == ("changed", uuid)
            last_id = watch.last_id
            small_fleet.remove_cell("west")
            assert (await watch.next()).name == "reset"
            small_fleet.fleet.add_cell("nova", CellKind.NOVA_API, "http://127.0.0.1:9/v2.1", "")
            assert sorted(await watch.names(2)) == ["incomplete", "reset"]
        async with stream(api, last_id=last_id) as again:
            ready = await again.next()
            assert (ready.name, ready.data) == ("ready", {"complete": False}), "Nova numbers nothing"
            assert (await again.next()).name == "reset", "its id knows a cell that is gone"
            uuid = small_fleet.create("north")
            small_fleet.number_changes()
            assert await again.told() == ("changed", uuid)

    api.run(scenario())
    small_fleet.close_pool(pool)


def test_stream_goes_on_at_another_process_with_the_same_key(fleet: ComputeFleet) -> None:
    one, another = (fleet.api(settings=ApiSettings(watch_key="a secret of sixteen letters")) for _ in range(2))
    stranger = fleet.api(settings=ApiSettings(watch_key="another secret of many letters"))

    async def scenario() -> None:
        async with stream(one) as watch:
            await watch.next()
            first = fleet.create("north")
            fleet.number_changes()
            assert await watch.told() == ("changed", first)
        second = fleet.create("east")
        fleet.number_changes()
        async with stream(another, last_id=watch.last_id) as again:
            assert (await again.next()).name == "ready"
            assert await again.told() == ("changed", second)
        async with stream(stranger, last_id=watch.last_id) as refused:
            assert await refused.names(2) == ["ready", "reset"]

    one.run(scenario())


def test_log_that_is_pruned_between_two_looks_at_it_is_not_taken_for_whole() -> None:
    class Pruned(MemoryCell):
        def position(self) -> Position:
            position = super().position()
            self.prune(2)
            return position

    cell = Pruned(instances=3)
    assert read_on(cell, Position(None, 0)) is ResetReason.FORGOTTEN
    reading = read_on(cell, Position(None, 2))
    assert isinstance(reading, ChangelogReading)
    assert [change.position.sequence for change in reading.changes] == [3]


def test_cell_that_hangs_makes_the_stream_incomplete_and_loses_nothing(small_fleet: ComputeFleet) -> None:
    with hanging_pool(small_fleet, "south") as pool:
        pool.gate.set()
        api = small_fleet.api(pool=pool.cells)

        async def scenario() -> None:
            async with stream(api) as watch:
                assert (await watch.next()).data == {"complete": True}
                pool.gate.clear()
                assert (await watch.next()).name == "incomplete"
                one = small_fleet.create("south")
                other = small_fleet.create("north")
                small_fleet.number_changes()
                assert await watch.told() == ("changed", other)
                pool.gate.set()
                told = [await watch.next() for _ in range(2)]
                assert {event.name for event in told} == {"complete", "changed"}
                assert one in {event.data.get("server", {}).get("id") for event in told}

        api.run(scenario())


def test_reader_that_is_too_slow_is_told_and_dropped() -> None:
    async def scenario() -> list[str | None]:
        feed = feed_of(_NoCells())
        asked = _Everything()
        watch = Watch(feed, PositionCodec(None), asked, _Rights())
        events = watch.events()
        told = [(await anext(events)).name]
        for number in range(1, 1500):
            row = InstanceRow("cell", number, make_record(number))
            watch.offer(ChangedItem("cell", Position(None, number), row), Effect.CHANGES)
        return told + [event.name async for event in events if event.name is not None]

    assert asyncio.run(scenario()) == ["ready", "overrun"]


async def test_reader_that_leaves_while_another_one_joins_takes_no_cell_away(small_fleet: ComputeFleet) -> None:
    cell = small_fleet.cells["north"]

    asked, gate = asyncio.Event(), asyncio.Event()

    class Slow(_NoCells):
        async def cells(self) -> tuple[Cell, ...]:
            return (cell,)

        async def ask(self, cell_uuid: str, question: Any, timeout_s: float) -> Any:
            # After the first question, which is where it begins, nothing changes.
            answered = asyncio.Event() if asked.is_set() else gate
            asked.set()
            await answered.wait()
            return Position(None, 0)

    feed = feed_of(Slow())
    joining = asyncio.create_task(feed.join(_Counter()))
    await asked.wait()
    feed.leave(_Counter())
    gate.set()
    assert (await joining).keys() == {each.cell.uuid for each in feed.followed()} == {cell.uuid}
    feed.close()


def test_streams_end_when_a_mistake_ends_the_look_out_for_cells(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fleetlight.listing.watches.feed._CELLS_INTERVAL_S", 0.01)

    class Mistaken(_NoCells):
        is_first = True

        async def cells(self) -> tuple[Cell, ...]:
            if self.is_first:
                self.is_first = False
                return ()
            raise ZeroDivisionError

    async def scenario() -> list[str | None]:
        asked = _Everything()
        events = Watch(feed_of(Mistaken()), PositionCodec(None), asked, _Rights()).events()
        async with asyncio.timeout(PATIENCE_S):
            return [event.name async for event in events if event.name is not None]

    assert asyncio.run(scenario()) == ["ready"]


@pytest.mark.night
def test_reader_that_takes_nothing_from_its_connection_is_told_when_it_reads_again(
    small_fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleetlight.listing.watches.watch._BUFFERED_EVENTS", 20)
    changes = 80
    api = small_fleet.api()
    uuid = small_fleet.create("north")
    small_fleet.number_changes()

    async def scenario() -> bytes:
        listener, client = socket.create_server(("127.0.0.1", 0)), socket.socket()
        # Otherwise the kernel would take megabytes for a reader that takes nothing.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 65_536)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        stop = asyncio.Event()
        deadlines = RequestDeadlines(60, 60, 60)
        serving = asyncio.create_task(serve(api.app, listener, stop, deadlines=deadlines, shutdown_timeout_s=5))
        client.connect(listener.getsockname())
        reader, writer = await asyncio.open_connection(sock=client)
        writer.write(b"GET /v2.1/servers/detail HTTP/1.1\r\nHost: api.test\r\nConnection: close\r\n")
        writer.write(b"Accept: text/event-stream\r\n\r\n")
        await reader.readuntil(b"event: ready")
        counter = _Counter()
        await api.services.feed.join(counter)
        for number in range(changes):
            metadata = {f"{number}-{key}": "x" * 255 for key in range(100)}
            small_fleet.operations("north").update(uuid, {"metadata": metadata})
            small_fleet.number_changes()
            await counter.takes_one()
        async with asyncio.timeout(PATIENCE_S):
            told = await reader.read()
        api.services.feed.leave(counter)
        writer.close()
        stop.set()
        await serving
        return told

    told = api.run(scenario())
    assert 0 < told.count(b"event: changed") < changes, "not served what is old by now"
    assert told.count(b"event: overrun") == 1
    assert told.rindex(b"event: overrun") > told.rindex(b"event: changed"), "the connection ends with it"


def test_rights_are_looked_at_in_the_middle_of_what_a_slow_reader_takes() -> None:
    async def scenario() -> list[str | None]:
        rights = _Rights()
        asked = _Everything()
        watch = Watch(feed_of(_NoCells()), PositionCodec(None), asked, rights)
        events = watch.events()
        told = [(await anext(events)).name, (await anext(events)).name]
        for number in range(1, 10):
            row = InstanceRow("cell", number, make_record(number))
            watch.offer(ChangedItem("cell", Position(None, number), row), Effect.CHANGES)
        told += [(await anext(events)).name for _ in range(2)]
        rights.are_old = True
        return told + [event.name async for event in events]

    assert asyncio.run(scenario()) == ["ready", None, "changed", "changed", "ended"]


def test_change_that_comes_while_a_cell_is_read_on_is_told_once_and_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """The feed passes on what the cell does not tell when it is read from where the reader was, at first."""
    monkeypatch.setattr("fleetlight.listing.watches.watch._RETRY_S", 0)
    monkeypatch.setattr("fleetlight.listing.watches.watch._HEARTBEAT_S", 0.01)
    row = InstanceRow(_CELL, 3, make_record(1, display_name="db"))
    changes = [ChangedItem(_CELL, Position(None, 2), None), ChangedItem(_CELL, Position(None, 3), row)]

    async def scenario() -> list[tuple[str | None, bytes]]:
        feed = _Interrupted(changes)
        watch = Watch(feed, PositionCodec(None), _Webs(), _Rights(), {_CELL: Position(None, 1)})
        feed.watch = watch
        events = watch.events()
        return [(event.name, event.data) for event in [await anext(events) for _ in range(8)]]

    async def told() -> list[tuple[str | None, bytes]]:
        async with asyncio.timeout(PATIENCE_S):
            return [event for event in await scenario() if event[0] in {"changed", "removed"}]

    assert asyncio.run(told()) == [("removed", b"3")]


class _Everything:
    """A list of all instances."""

    condition = Condition(INSTANCE_FIELDS.name, None, EVERYTHING, EVERYTHING)

    def shows(self, row: InstanceRow) -> bool:
        return True

    def has(self, row: InstanceRow) -> bool:
        return True

    def event(self, kind: ChangeKind, change: ChangedItem, row: InstanceRow) -> tuple[str, bytes]:
        return "changed", b"{}"

    def coverage(self, cells: Sequence[CoveredCell], cursor: str | None) -> bytes:
        return b"{}"


class _Webs(_Everything):
    """A list of the instances called web."""

    def has(self, row: InstanceRow) -> bool:
        return bool(row.record["display_name"] == "web")

    def event(self, kind: ChangeKind, change: ChangedItem, row: InstanceRow) -> tuple[str, bytes]:
        return "removed" if kind is ChangeKind.LEAVE else "changed", b"%d" % row.revision


class _Interrupted(ChangeFeed):
    """A feed of one cell, which reads on while that does not tell a watch twice what it had missed."""

    def __init__(self, changes: Sequence[ChangedItem]) -> None:
        super().__init__(_NoCells(), Changelogs(_NoCells(), _NoJournals(), 1))
        self._changes = changes
        self._failures = 2
        self.watch: Watch | None = None

    def followed(self) -> Sequence[FollowedCell]:
        return [FollowedCell(Cell(_CELL, "cell", CellKind.NATIVE, "", ""), None)]

    async def join(self, watcher: Watcher, known: Collection[str] = ()) -> Mapping[str, Position]:
        self._positions[_CELL] = Position(None, 2)
        return dict(self._positions)

    async def replay(self, cell_uuid: str, after: Position) -> ChangelogReading | ResetReason:
        if self._positions[_CELL].sequence == 2 and self.watch is not None:
            self.watch.offer(self._changes[1], Effect.LEAVES_PERHAPS)
            self._positions[_CELL] = Position(None, 3)
        if self._failures:
            self._failures -= 1
            raise CellUnreachableError(_CELL, "it is away")
        return ChangelogReading(self._changes, Position(None, 3), has_more=False)


class _Rights:
    """Rights that are lost once they are old."""

    are_old = False

    async def confirm(self) -> None:
        if self.are_old:
            raise RightsLostError("lost")


class _Counter:
    """A watcher that tells when it is offered a change."""

    def __init__(self) -> None:
        self.watched = _Everything()
        self._offered: asyncio.Queue[ChangedItem] = asyncio.Queue()

    async def takes_one(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self._offered.get()

    def offer(self, change: ChangedItem, effect: Effect) -> None:
        self._offered.put_nowait(change)

    def report(self) -> None: ...

    def reset(self, reason: ResetReason, cell_uuid: str, position: Position | None) -> None: ...

    def end(self) -> None: ...


class _NoJournals:
    def read(self, cell_uuid: str, after: int, limit: int) -> None:
        raise AssertionError("there is no cell")

    def read_back(self, cell_uuid: str, before: int, limit: int) -> None:
        raise AssertionError("there is no cell")


def feed_of(cells: "_NoCells") -> ChangeFeed:
    return ChangeFeed(cells, Changelogs(cells, _NoJournals(), 1))


class _NoCells:
    async def cells(self) -> tuple[Any, ...]:
        return ()

    async def knows_all_cells(self, cell_uuids: Collection[str] = ()) -> bool:
        return True

    async def ask(self, cell_uuid: str, question: Any, timeout_s: float) -> Any:
        raise AssertionError("there is no cell")


def test_stop_of_the_process_ends_every_stream(small_fleet: ComputeFleet) -> None:
    api = small_fleet.api()

    async def scenario() -> None:
        async with stream(api) as watch:
            await watch.next()
            api.services.feed.close()
            async with asyncio.timeout(PATIENCE_S):
                await watch.ended.wait()
        # One whose request was under way.
        async with stream(api, last_id=watch.last_id) as late, asyncio.timeout(PATIENCE_S):
            await late.ended.wait()
            assert (late.status, late.is_silent) == (200, True)

    api.run(scenario())


def test_what_a_list_refuses_is_refused_and_so_are_too_many_streams(small_fleet: ComputeFleet) -> None:
    api = small_fleet.api(settings=ApiSettings(max_watches=1))
    assert api.get("/v2.1/servers/detail?changes-since=x", STREAM).status_code == 400
    assert api.get("/v2.1/servers/detail?all_tenants=1", STREAM, MEMBER).status_code == 403

    async def scenario() -> None:
        async with stream(api) as watch:
            await watch.next()
            async with stream(api) as another:
                pass
            assert another.status == 503

    api.run(scenario())


def test_streams_that_are_asked_for_at_once_are_no_more_than_there_may_be(small_fleet: ComputeFleet) -> None:
    api = small_fleet.api(settings=ApiSettings(max_watches=2))

    async def count(asked: int) -> list[int]:
        async with AsyncExitStack() as open_streams:
            burst = [await open_streams.enter_async_context(stream(api)) for _ in range(asked)]
            async with asyncio.timeout(PATIENCE_S):
                while not all(each.status for each in burst):  # noqa: ASYNC110  # they have no event for it
                    await asyncio.sleep(0.01)
            return sorted(each.status for each in burst)

    assert api.run(count(5)) == [200, 200, 503, 503, 503]
    assert api.request("HEAD", "/v2.1/servers/detail", STREAM).status_code == 200
    assert api.get("/v2.1/servers/detail?changes-since=x", STREAM).status_code == 400
    assert api.run(count(2)) == [200, 200]


def reader(user: str, project: str) -> dict[str, str]:
    return {"X-User-Id": user, "X-Project-Id": project, "X-Roles": "reader"}


def test_no_user_and_no_project_gets_every_watch(small_fleet: ComputeFleet) -> None:
    api = small_fleet.api(settings=ApiSettings(max_watches=5, max_watches_per_user=2, max_watches_per_project=3))

    async def scenario() -> None:
        async with AsyncExitStack() as open_streams:
            for user, project in (("ada", "p1"), ("ada", "p2"), ("bob", "p1"), ("cleo", "p1")):
                watch = await open_streams.enter_async_context(stream(api, "", reader(user, project)))
                assert (await watch.next()).name == "ready"
            limited = await api.fetch("/v2.1/servers/detail", STREAM, reader("ada", "p3"))
            assert limited.headers["RateLimit"] == '"watches";r=0;t=10'
            assert await refusal("ada", "p3") == (429, "user")
            assert await refusal("dora", "p1") == (429, "project")
            last = await open_streams.enter_async_context(stream(api, "", reader("dora", "p2")))
            assert (await last.next()).name == "ready"
            assert await refusal("eve", "p4") == (503, "There")
        async with stream(api, "", reader("ada", "p1")) as again:
            assert (await again.next()).name == "ready", "places of streams that have ended are free"

    async def refusal(user: str, project: str) -> tuple[int, str]:
        answer = await api.fetch("/v2.1/servers/detail", STREAM, reader(user, project))
        assert int(answer.headers["Retry-After"]) > 0
        (fault,) = answer.json().values()
        return answer.status_code, next(word for word in ("user", "project", "There") if word in fault["message"])

    api.run(scenario())


def test_positions_are_for_nobody_else_to_read() -> None:
    codec, cell = PositionCodec("a secret of sixteen letters"), str(uuid4())
    positions = {cell: Position(str(uuid4()), 7), str(uuid4()): Position(None, 0)}
    text = codec.encode(positions)
    assert PositionCodec("a secret of sixteen letters").decode(text) == positions
    assert PositionCodec("another secret").decode(text) is None
    assert PositionCodec(None).decode("é") is None
    bound = codec.bound_to(["instance", "a filter"])
    assert bound.decode(text) is codec.decode(bound.encode(positions)) is None
    assert codec.bound_to(("instance", "a filter")).decode(bound.encode(positions)) == positions
    assert cell not in text
