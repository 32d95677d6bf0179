"""`scripts/bench feed`: how soon a change is with those who follow it, and what it costs the more of them there are.

The cost is that of finding and telling the one watch of many that a change is about, beside that of asking each. The
waits are those of streams of this process, each about another project, while another process changes and numbers.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlencode

import msgspec

from bench import feed_webhooks
from bench.feed_load import Task
from bench.measure import Figure, at_most, figure, interleaved
from fleetlight.api.caller import Caller
from fleetlight.api.changes.watched_items import WatchedItems
from fleetlight.api.query.item_query import query_of
from fleetlight.api.settings import ApiSettings
from fleetlight.cells.epochs import Position
from fleetlight.cells.model import InstanceRow
from fleetlight.listing.watches.changelogs import ChangedItem
from fleetlight.listing.watches.watch_index import WatchIndex
from fleetlight.listing.watches.watched_list import Effect, effect_of
from fleetlight.resources.query_fields.catalog import ITEM_TYPES
from tests.contract.compute_fleet import CELLS, Api, ComputeFleet, compute_fleet
from tests.contract.streams import Stream, stream
from tests.support.fleets.documents import make_record

_WATCHES = (10, 100, 1000)
_CONSUMERS = 100
_RATE = 200.0
_LEAST_RATE = 0.95 * _RATE
_ADMIN = Caller("ada", "demo", frozenset({"admin"}))


def run(directory: Path, quick: bool) -> Iterator[Figure]:
    """quick: 5 seconds of changes instead of 30, a tenth of the deliveries, and fewer rounds."""
    yield from _costs(rounds=3 if quick else 15)
    yield from _waits(directory, seconds=5 if quick else 30)
    yield from feed_webhooks.run(directory / "webhooks", count=2_000 if quick else 20_000)


class _Watching:
    """A client that watches the instances of one name."""

    def __init__(self, number: int) -> None:
        question = query_of(ITEM_TYPES["instance"], ["name"], f'name == "web-{number}"', all_projects=True)
        self.watched = WatchedItems(question, _ADMIN, ())
        self.told = 0

    def take(self, change: ChangedItem, effect: Effect) -> None:
        if effect is not Effect.NOTHING and change.row is not None:
            self.told += 1


def _costs(rounds: int) -> Iterator[Figure]:
    changes = [_change(number) for number in range(200)]
    cost_us: dict[int, float] = {}
    for count in _WATCHES:
        watches = [_Watching(number) for number in range(count)]
        index = WatchIndex[_Watching]()
        for watch in watches:
            index.add(watch)

        def found(index: WatchIndex[_Watching] = index) -> None:
            for change in changes:
                for watch, effect in index.concerned(change):
                    watch.take(change, effect)

        def asked(watches: Sequence[_Watching] = watches) -> None:
            for change in changes[:10]:
                for watch in watches:
                    watch.take(change, effect_of(change, watch.watched))

        pair = interleaved(found, asked, rounds)
        cost_us[count] = pair.ours_s / len(changes) * 1e6
        each_us = pair.bare_s / 10 * 1e6
        what = f"a change of which one of {count} watches is told; {each_us:.1f} us where each watch is asked"
        yield figure(f"feed.cost.{count}", cost_us[count], "us", what, runs=rounds)
    ratio = cost_us[_WATCHES[-1]] / cost_us[_WATCHES[0]]
    what = f"the cost of a change with {_WATCHES[-1]} watches to that with {_WATCHES[0]}"
    yield figure("feed.cost.ratio", ratio, "ratio", what, runs=rounds, goal=at_most(1.5))


def _change(number: int) -> ChangedItem:
    """One that is about the first watch alone."""
    record = make_record(number, display_name="web-0")
    row = InstanceRow("cell", 2, record)
    return ChangedItem("cell", Position(None, number), row, before=record | {"vm_state": "building"})


def _waits(directory: Path, seconds: float) -> Iterator[Figure]:
    with compute_fleet(directory) as fleet:
        made = [(CELLS[number % 3], number) for number in range(_CONSUMERS)]
        uuids = [(cell, fleet.create(cell, project_id=f"project-{number}")) for cell, number in made]
        fleet.number_changes()
        api = fleet.api(settings=ApiSettings(max_watches_per_user=_CONSUMERS, max_watches_per_project=_CONSUMERS))
        rate, waits = api.run(_followed(api, fleet, uuids, seconds))
    waits.sort()
    is_valid = rate >= _LEAST_RATE and bool(waits)
    for name, share, goal_s in (("p50", 0.5, 0.3), ("p99", 0.99, 1.0)):
        wait_s = waits[min(len(waits) - 1, int(len(waits) * share))] if waits else 0.0
        what = f"from before the commit to the consumer, {len(waits)} changes at {rate:.0f}/s, {_CONSUMERS} consumers"
        yield figure(f"feed.wait.{name}", wait_s, "s", what, runs=1, goal=at_most(goal_s), is_valid=is_valid)


async def _followed(
    api: Api, fleet: ComputeFleet, uuids: Sequence[tuple[str, str]], seconds: float
) -> tuple[float, list[float]]:
    """How many changes were made a second, and how long each took to its consumer."""
    waits: list[float] = []
    cells = [(cell.uuid, cell.name, cell.database_url) for cell in fleet.cells.values()]
    task = msgspec.json.encode(Task(fleet.fleet_url, cells, uuids, _RATE, seconds))
    async with AsyncExitStack() as stack:
        following = []
        for number in range(_CONSUMERS):
            wanted = f'project_id == "project-{number}"'
            asked = urlencode({"fields": "name", "all_projects": 1, "filter": wanted})
            watch = await stack.enter_async_context(stream(api, asked, path="/fleetlight/changes"))
            await watch.skip_to("ready")
            following.append(asyncio.create_task(_follow(watch, waits)))
        command = [sys.executable, "-m", "bench.feed_load"]
        load = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        said, _ = await load.communicate(task)
        # What was committed last is still on its way.
        await asyncio.sleep(2)
        for each in following:
            each.cancel()
    return float(said), waits


async def _follow(watch: Stream, waits: list[float]) -> None:
    while True:
        event = await watch.skip_to("change")
        waits.append(time.monotonic() - float(event.data["cells"][0][1]))
