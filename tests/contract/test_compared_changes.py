"""`GET /fleetlight/changes` of what nothing numbers: streams that compare the rows."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlencode

import pytest

from fleetlight.api.changes.comparisons import MAX_ROWS
from fleetlight.cells.database.engines import writing
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.model import NO_REQUEST, CellAdapter
from fleetlight.manager.operations.jobs.model import NewJob
from fleetlight.manager.operations.jobs.queue import add_jobs
from fleetlight.manager.operations.opcodes.groups import GroupAdd
from fleetlight.manager.operations.vocabulary import ALL_OPERATIONS
from fleetlight.resources.clock import system_clock
from tests.contract.compute_fleet import CELLS, MEMBER, BrokenCells, ComputeFleet, compute_fleet
from tests.contract.streams import STREAM, Stream, stream
from tests.support.fleets.changing_nodes import ChangingNodes

T = TypeVar("T")
CHANGES = "/fleetlight/changes"
JOBS = urlencode({"what": "job", "fields": "id,status"})


@pytest.fixture
def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ComputeFleet]:
    monkeypatch.setattr("fleetlight.api.changes.comparisons._INTERVAL_S", 0.02)
    with compute_fleet(tmp_path) as made:
        yield made


class WatchedCells(BrokenCells):
    """Cells of which some are away, or slow. away: their uuids. asked: begin and end of each question to a cell."""

    def __init__(self, fleet: ComputeFleet, *, takes_s: float = 0) -> None:
        super().__init__(fleet)
        self.away: set[str] = set()
        self.asked: list[tuple[float, float]] = []
        self._takes_s = takes_s

    async def ask(self, cell_uuid: str, question: Callable[[CellAdapter], T], timeout_s: float) -> T:
        began = time.monotonic()
        if cell_uuid in self.away:
            raise CellUnreachableError(cell_uuid, "it is away")
        await asyncio.sleep(self._takes_s)
        answer = await super().ask(cell_uuid, question, timeout_s)
        self.asked.append((began, time.monotonic()))
        return answer


def order(fleet: ComputeFleet, cell: str = "north", name: str = "rack1") -> None:
    """A job that waits for the worker of its cell."""
    with writing(fleet.engine(cell)) as connection:
        job = NewJob([GroupAdd(group_name=name).to_operation()], NO_REQUEST)
        add_jobs(connection, ALL_OPERATIONS, [job], system_clock())


async def ready(watch: Stream) -> Mapping[str, Any]:
    event = await watch.next()
    assert event.name == "ready", event
    data: Mapping[str, Any] = event.data
    return data


def test_job_enters_and_changes_as_it_is_carried_out(fleet: ComputeFleet) -> None:
    api = fleet.api()

    async def scenario() -> None:
        async with stream(api, JOBS, path=CHANGES) as watch:
            begin = await ready(watch)
            assert (begin["cursor"], begin["complete"], begin["cells"].keys()) == (None, True, set(CELLS))
            assert begin["cells"]["north"] == {
                "state": "followed",
                "reason": None,
                "by": "comparison",
                "sequence": None,
            }
            order(fleet)
            entered = await watch.next()
            number = entered.data["id"]
            assert entered.data == {
                "kind": "enter",
                "id": number,
                "cell": "north",
                "cells": [[0, int(number)], [0, "queued"]],
                "revision": None,
                "at": None,
            }
            fleet.work()
            ended = await watch.next()
            assert (ended.name, ended.data["cells"][1]) == ("change", [0, "success"])

    api.run(scenario())
    assert api.run(nothing_is_compared(api.application.comparisons)), "nobody watches any more"


async def nothing_is_compared(comparisons: Any) -> bool:
    while comparisons._tasks:  # noqa: ASYNC110  # what is cancelled ends in one of the next rounds
        await asyncio.sleep(0)
    return not comparisons._comparisons


def test_what_does_not_match_any_more_leaves(fleet: ComputeFleet) -> None:
    api = fleet.api()
    order(fleet)
    asked = urlencode({"what": "job", "fields": "status", "filter": 'status == "queued"'})

    async def scenario() -> None:
        async with stream(api, asked, path=CHANGES) as watch:
            await ready(watch)
            fleet.work()
            left = await watch.next()
            assert (left.name, "cells" in left.data) == ("leave", False)

    api.run(scenario())


def test_node_is_compared_where_what_is_asked_of_it_is_not_numbered(fleet: ComputeFleet) -> None:
    nodes = ChangingNodes(fleet.engine("north"), fleet.fleet, fleet.cells["north"], ("one", "two"))
    api = fleet.api()
    asked = urlencode({"what": "node", "fields": "name,offline,mfree"})

    async def scenario() -> None:
        async with stream(api, asked, path=CHANGES) as watch:
            assert (await ready(watch))["cells"]["north"]["by"] == "comparison"
            nodes.force_down("two", forced_down=True)
            changed = await watch.next()
            assert (changed.name, changed.data["cells"]) == ("change", [[0, "two"], [0, True], [4, None]])
            nodes.remove("one")
            assert (await watch.next()).name == "leave"

    api.run(scenario())


def test_members_watch_their_instances_by_any_field_and_learn_nothing_of_cells(fleet: ComputeFleet) -> None:
    api = fleet.api()
    asked = urlencode({"fields": "name,os,cell", "filter": 'os == "none" or name == "web"'})

    async def scenario() -> None:
        async with stream(api, asked, MEMBER, path=CHANGES) as watch:
            assert await ready(watch) == {"cursor": None, "complete": True}
            fleet.create("east", display_name="web", project_id="other")
            uuid = fleet.create("north", display_name="web")
            entered = await watch.next()
            assert (entered.data["id"], "cell" in entered.data) == (uuid, False)
            assert entered.data["cells"][0] == [0, "web"]
            assert entered.data["cells"][2] == [1, None], "what a member may not see does not exist"

    api.run(scenario())
    assert api.get(f"{CHANGES}?what=job", MEMBER, STREAM).status_code == 404
    assert api.get(f"{CHANGES}?{asked}&all_projects=1", MEMBER, STREAM).status_code == 403


@pytest.mark.parametrize(
    ("parameters", "headers", "words"),
    [
        ({"what": "job"}, {}, "type 'job'; a stream (Accept: text/event-stream) compares the rows"),
        ({"what": "job", "after": "x"}, STREAM, "after: there is no cursor to go on from. what: nothing numbers"),
        ({"what": "job", "after": "x", "wait": "1"}, {}, "after: there is no cursor"),
        ({"what": "node", "fields": "mfree,pinst_cnt"}, {}, "fields: mfree, pinst_cnt: made of what the node says"),
        ({"what": "node", "filter": "ctotal > 4"}, {}, "filter: ctotal: made of what the node says itself"),
        ({"filter": 'os == "debian"'}, {}, "filter: os: made of what is configured in the cell"),
        ({"fields": "name,pnode.group,hvparams"}, {}, "fields: pnode.group, hvparams: made of"),
        ({"fields": "os"}, {}, "fields: os: made of what is configured in the cell too, whose changes nothing numbers"),
        ({"what": "lock", "filter": "=="}, STREAM, "filter"),
        ({"what": "job", "order": "id"}, STREAM, "order"),
    ],
)
def test_what_would_need_numbers_is_refused_by_name(
    fleet: ComputeFleet, parameters: Mapping[str, str], headers: Mapping[str, str], words: str
) -> None:
    answer = fleet.api().get(f"{CHANGES}?{urlencode(parameters)}", headers)
    assert answer.status_code == 400, answer.text
    assert words in answer.json()["badRequest"]["message"]
    assert fleet.api().request("HEAD", f"{CHANGES}?{JOBS}", STREAM).status_code == 200


@pytest.mark.parametrize("what", ["group", "network", "lock", "os", "export", "filter"])
def test_every_type_can_be_watched(fleet: ComputeFleet, what: str) -> None:
    api = fleet.api()

    async def scenario() -> None:
        async with stream(api, f"what={what}", path=CHANGES) as watch:
            assert (await ready(watch))["cells"].keys() == set(CELLS)

    api.run(scenario())


def test_rows_of_a_cell_that_is_away_stay(fleet: ComputeFleet) -> None:
    order(fleet)
    cells = WatchedCells(fleet)
    api = fleet.api(pool=cells)
    uuid = fleet.cells["north"].uuid

    async def scenario() -> None:
        async with stream(api, JOBS, path=CHANGES) as watch:
            await ready(watch)
            cells.away.add(uuid)
            lost = await watch.next()
            assert (lost.name, lost.data["complete"]) == ("incomplete", False)
            assert lost.data["cells"]["north"]["state"] == "down"
            order(fleet, "east")
            assert (await watch.next()).data["cell"] == "east"
            fleet.work()
            assert (await watch.next()).data["cell"] == "east"
            cells.away.clear()
            events = [await watch.next() for _ in range(2)]
            assert [event.name for event in events] == ["change", "complete"]
            assert events[0].data["cell"] == "north"

    api.run(scenario())


def test_reader_lists_again_when_a_cell_answers_for_the_first_time(fleet: ComputeFleet) -> None:
    cells = WatchedCells(fleet)
    cells.away.add(fleet.cells["north"].uuid)
    api = fleet.api(pool=cells)

    async def scenario() -> None:
        async with stream(api, JOBS, path=CHANGES) as watch:
            assert (await ready(watch))["complete"] is False
            cells.away.clear()
            assert await watch.names(2) == ["reset", "complete"]

    api.run(scenario())


def test_reader_that_comes_back_lists_again(fleet: ComputeFleet) -> None:
    api = fleet.api()

    async def scenario() -> None:
        async with stream(api, JOBS, path=CHANGES) as watch:
            await ready(watch)
        async with stream(api, JOBS, path=CHANGES, last_id=watch.last_id) as watch:
            assert await watch.names(2) == ["ready", "reset"]

    api.run(scenario())


def test_more_rows_than_are_compared_are_refused_by_name(fleet: ComputeFleet, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_ROWS == 5000
    monkeypatch.setattr("fleetlight.api.changes.comparisons.MAX_ROWS", 2)
    api = fleet.api()
    for number in range(2):
        order(fleet, name=f"rack{number}")

    async def scenario() -> str:
        async with stream(api, JOBS, path=CHANGES) as watch:
            await ready(watch)
            order(fleet, name="rack3")
            return str((await watch.skip_to("ended")).data["reason"])

    words = "filter: more than 2 items match, and nothing numbers their changes"
    assert words in api.run(scenario())
    refused = api.get(f"{CHANGES}?{JOBS}", STREAM)
    assert (refused.status_code, words in refused.text) == (400, True)


def test_equal_watches_share_one_comparison(fleet: ComputeFleet) -> None:
    cells = WatchedCells(fleet)
    api = fleet.api(pool=cells)

    async def scenario() -> tuple[int, int]:
        async with AsyncExitStack() as stack:
            watches = [await stack.enter_async_context(stream(api, JOBS, path=CHANGES)) for _ in range(5)]
            for watch in watches:
                await ready(watch)
            others = await stack.enter_async_context(stream(api, "what=job&fields=id", path=CHANGES))
            await ready(others)
            order(fleet)
            assert [(await watch.next()).name for watch in watches] == ["enter"] * 5
            return len(api.application.comparisons._tasks), len(watches)

    assert api.run(scenario()) == (2, 5)


def test_comparisons_take_a_fixed_share_of_the_time(fleet: ComputeFleet) -> None:
    cells = WatchedCells(fleet, takes_s=0.03)
    api = fleet.api(pool=cells)
    in_north = 'cell == "north"'
    queries = [urlencode({"what": what, "filter": in_north}) for what in ("job", "lock", "group")]

    async def scenario() -> Sequence[tuple[float, float]]:
        async with AsyncExitStack() as stack:
            for query in queries:
                await ready(await stack.enter_async_context(stream(api, query, path=CHANGES)))
            begun = len(cells.asked)
            while len(cells.asked) < begun + 6:  # noqa: ASYNC110  # nothing tells of each
                await asyncio.sleep(0.01)
            return cells.asked[begun + 1 :]

    asked = api.run(scenario())
    for (began, ended), (next_began, _) in pairwise(asked):
        assert next_began - ended >= 2.9 * (ended - began), "three parts of rest to one of work"


def test_stream_ends_with_the_process(fleet: ComputeFleet) -> None:
    api = fleet.api()

    async def scenario() -> None:
        async with stream(api, JOBS, path=CHANGES) as watch:
            await ready(watch)
            api.application.comparisons.close()
            async with asyncio.timeout(60):
                await watch.ended.wait()

    api.run(scenario())
