"""`GET /servers/detail` as a stream: later changes that match, for who may see them, without a gap."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from sse_starlette import ServerSentEvent

from api.watching.feed import ChangedInstance, ChangeFeed
from api.watching.positions import PositionCodec
from api.watching.watch import Watch, WatchRequest
from cells.model import InstanceRow
from tests.contract.compute_fleet import MEMBER, Api, ComputeFleet, compute_fleet, hanging_pool
from tests.support.documents import make_record

STREAM = {"Accept": "text/event-stream"}
PATIENCE_S = 60


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[ComputeFleet]:
    with compute_fleet(tmp_path) as fleet:
        yield fleet


@dataclass
class Event:
    name: str
    data: Any
    id: str | None


class Stream:
    """An open stream. last_id: what a browser would send when it connects again."""

    def __init__(self) -> None:
        self.status = 0
        self.last_id: str | None = None
        self.ended = asyncio.Event()
        self._events: asyncio.Queue[Event] = asyncio.Queue()
        self._text = ""

    def take(self, body: bytes) -> None:
        self._text += body.decode()
        *blocks, self._text = self._text.split("\r\n\r\n")
        for block in blocks:
            fields = dict(line.split(": ", 1) for line in block.split("\r\n") if not line.startswith(":"))
            self.last_id = fields.get("id", self.last_id)
            if "data" in fields:
                self._events.put_nowait(Event(fields["event"], json.loads(fields["data"]), fields.get("id")))

    async def next(self) -> Event:
        async with asyncio.timeout(PATIENCE_S):
            return await self._events.get()

    async def told(self) -> tuple[str, str]:
        """Name and server of the next event that is about one."""
        event = await self.next()
        return event.name, event.data["server"]["id"]


@asynccontextmanager
async def stream(
    api: Api, query: str = "", *headers: Mapping[str, str], last_id: str | None = None
) -> AsyncIterator[Stream]:
    opened = Stream()
    sent = {**STREAM, **({"Last-Event-ID": last_id} if last_id else {})}
    for group in headers:
        sent |= group
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": "/v2.1/servers/detail",
        "raw_path": b"/v2.1/servers/detail",
        "query_string": query.encode(),
        "headers": [(b"host", b"api.test"), *((name.lower().encode(), value.encode()) for name, value in sent.items())],
        "server": ("api.test", 80),
        "client": ("127.0.0.1", 1),
        "root_path": "",
    }
    gone = asyncio.Event()
    asked = False

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if asked:
            await gone.wait()
            return {"type": "http.disconnect"}
        asked = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            opened.status = message["status"]
        else:
            opened.take(message.get("body", b""))
            if not message.get("more_body", False):
                opened.ended.set()

    answering = asyncio.ensure_future(api.app(scope, receive, send))
    try:
        yield opened
    finally:
        gone.set()
        with suppress(asyncio.CancelledError):
            async with asyncio.timeout(PATIENCE_S):
                await answering


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


def test_id_that_is_not_ours_or_too_old_leads_to_a_new_list(fleet: ComputeFleet) -> None:
    api = fleet.api()

    async def scenario() -> None:
        async with stream(api, last_id="nonsense") as watch:
            assert [(await watch.next()).name for _ in range(2)] == ["ready", "reset"]
            fresh = fleet.create("north")
            fleet.number_changes()
            assert await watch.told() == ("changed", fresh)
        fleet.create("north")
        fleet.number_changes()
        fleet.forget_changes()
        fleet.create("north")
        fleet.number_changes()
        async with stream(api, last_id=watch.last_id) as watch:
            assert [(await watch.next()).name for _ in range(2)] == ["ready", "reset"]

    api.run(scenario())


def test_cell_that_hangs_makes_the_stream_incomplete_and_loses_nothing(fleet: ComputeFleet) -> None:
    with hanging_pool(fleet, "south") as pool:
        pool.gate.set()
        api = fleet.api(pool=pool.cells)

        async def scenario() -> None:
            async with stream(api) as watch:
                assert (await watch.next()).data == {"complete": True}
                pool.gate.clear()
                assert (await watch.next()).name == "incomplete"
                one = fleet.create("south")
                other = fleet.create("north")
                fleet.number_changes()
                assert await watch.told() == ("changed", other)
                pool.gate.set()
                told = [await watch.next() for _ in range(2)]
                assert {event.name for event in told} == {"complete", "changed"}
                assert one in {event.data.get("server", {}).get("id") for event in told}

        api.run(scenario())


def test_reader_that_is_too_slow_is_told_and_dropped() -> None:
    async def scenario() -> list[ServerSentEvent]:
        feed = ChangeFeed(_NoCells(), 1)
        asked = WatchRequest(lambda _: True, lambda _: True, lambda row: b"{}")
        watch = Watch(feed, PositionCodec(None), asked)
        events = watch.events()
        told = [await anext(events)]
        for number in range(1, 1500):
            watch.offer(ChangedInstance("cell", number, InstanceRow("cell", number, make_record(number))))
        told += [event async for event in events]
        return told

    assert [event.event for event in asyncio.run(scenario())] == ["ready", "overrun"]


class _NoCells:
    async def cells(self) -> tuple[Any, ...]:
        return ()

    async def ask(self, cell_uuid: str, question: Any, timeout_s: float) -> Any:
        raise AssertionError("there is no cell")


def test_stop_of_the_process_ends_every_stream(fleet: ComputeFleet) -> None:
    api = fleet.api()

    async def scenario() -> None:
        async with stream(api) as watch:
            await watch.next()
            api.app.state.feed.close()
            async with asyncio.timeout(PATIENCE_S):
                await watch.ended.wait()

    api.run(scenario())


def test_what_a_list_refuses_is_refused_and_so_are_too_many_streams(fleet: ComputeFleet) -> None:
    api = fleet.api(max_watches=1)
    assert api.get("/v2.1/servers/detail?changes-since=x", STREAM).status_code == 400
    assert api.get("/v2.1/servers/detail?all_tenants=1", STREAM, MEMBER).status_code == 403

    async def scenario() -> None:
        async with stream(api) as watch:
            await watch.next()
            async with stream(api) as another:
                pass
            assert another.status == 503

    api.run(scenario())


def test_positions_are_for_nobody_else_to_read() -> None:
    codec, cell = PositionCodec("a secret of sixteen letters"), str(uuid4())
    text = codec.encode({cell: 7})
    assert PositionCodec("a secret of sixteen letters").decode(text) == {cell: 7}
    assert PositionCodec("another secret").decode(text) is None
    assert PositionCodec(None).decode("é") is None
    assert cell not in text
