"""A program that keeps a copy of all instances by the feed of changes while something breaks, and what it has missed.

It crashes now and then before it has stored what it got, and has to get that again.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, closing, contextmanager
from random import Random
from threading import Event

import httpx
from sqlalchemy import Connection, select

from bench.faults.damage import Damage, rows_of
from bench.faults.processes import in_thread
from bench.faults.world import World
from fleetlight.api.app import create_app
from fleetlight.api.identity import NoIdentity
from fleetlight.cells.kinds.opening import open_changelog_adapter
from fleetlight.cells.model import NO_REVISION, Cell
from fleetlight.cells.tables import changes
from fleetlight.cli.fleet import open_fleet
from fleetlight.cli.processes.api_parts import open_parts
from tests.contract.compute_fleet import Api
from tests.support.feed_consumer import Changed, Copy, CursorRefusedError, FeedConsumer, Get, NoAnswerError, Rows
from tests.support.waiting import wait_until

_WAIT_S = 5
_PAUSE_S = 0.5  # so that an answer has more than one change, and the other threads the processor
_TIMEOUT_S = 60.0
_CRASHES = 0.3


class FeedFollower:
    """A consumer of the feed. get: asks the API. random: when it crashes."""

    def __init__(self, get: Get, random: Random) -> None:
        self._random = random
        self._consumer = FeedConsumer(get, "uuid,serial_no,name", what="instance", all_projects="1")
        self._clients = ExitStack()
        self._has_begun = False
        self._failure: BaseException | None = None
        self._polls: Counter[str] = Counter()
        self._refused: Counter[str] = Counter()

    def ask_at(self, url: str) -> None:
        """Go on with the same cursor at another API, which need not answer yet."""
        client = self._clients.enter_context(httpx.Client(base_url=url, timeout=_TIMEOUT_S))
        self._consumer.get = lambda address, headers: client.get(address, headers=headers)

    def run(self, stop: Event) -> None:
        """Follow until `stop`."""
        try:
            with self._clients:
                while not stop.wait(_PAUSE_S):
                    self._polls[self._step()] += 1
        except BaseException as error:
            self._failure = error
            raise

    def _step(self) -> str:
        """Ask once; returns what came of it."""
        stores = self._random.random() >= _CRASHES
        try:
            if not self._has_begun:
                self._consumer.begin_anew()
                self._has_begun = True
            self._consumer.poll(stores=stores, wait_s=_WAIT_S)
        except NoAnswerError:
            return "without an answer"
        except CursorRefusedError as error:
            self._refused[str(error)] += 1
            self._has_begun = False
            return "refused"
        return "stored" if stores else "crashed"

    def has_begun(self) -> bool:
        """Whether it has a copy, which from now on has to get each change."""
        assert self._failure is None, self._failure
        return self._has_begun

    def has_caught_up(self, world: World) -> bool:
        """Whether the feed says that the copy is the list, with all that is published."""
        assert self._failure is None, self._failure
        copy = self._consumer.copy
        return copy.is_complete and copy.reached == {cell.name: _published(cell) for cell in world.cells}

    def damage(self, world: World, *, is_restored: bool) -> Damage:
        """Of the copy; nothing may be changed meanwhile. is_restored: a cell was, so that its changes are refused."""
        copy = self._consumer.copy
        refused = self._refused.total() - is_restored * self._refused["restored"]
        return damage_of_copy(copy, *_truth(world, copy)) + Damage(feed_refused=refused)

    def summary(self) -> str:
        """What it has done."""
        polls = ", ".join(f"{count} {what}" for what, count in sorted(self._polls.items()))
        refused = "".join(f"; began anew: {reason}" for reason in self._refused.elements())
        return f"feed: {len(self._consumer.copy.changes)} changes; polls: {polls}{refused}"


def damage_of_copy(copy: Copy, announced: Collection[Changed], rows: Rows) -> Damage:
    """What is wrong with a copy for which the feed says that it is complete.

    announced: the changes since it began. rows: of the list that it is a copy of. A row that differs counts as lost,
    and a change that no cell has made as doubled.
    """
    differing = {uuid for uuid in rows.keys() | copy.rows.keys() if rows.get(uuid) != copy.rows.get(uuid)}
    got = set(copy.changes)
    return Damage(
        feed_lost=len(set(announced) - got) + len(differing),
        feed_doubled=len(copy.changes) - len(got) + len(got - set(announced)),
        feed_disordered=_disordered(copy.changes),
    )


def _disordered(got: Sequence[Changed]) -> int:
    """How many came after a later one of their instance."""
    newest: dict[str, int] = {}
    count = 0
    for uuid, revision in got:
        count += revision < newest.get(uuid, revision)
        newest[uuid] = max(revision, newest.get(uuid, revision))
    return count


def _truth(world: World, copy: Copy) -> tuple[Collection[Changed], Rows]:
    """What all cells have announced since the copy began, and the list that they make."""
    announced: list[Changed] = []
    rows = {}
    for cell in world.cells:
        with world.engines[cell.name].connect() as connection:
            announced += _announced(connection, copy.begun[cell.name] or 0)
        with closing(open_changelog_adapter(cell)) as adapter:
            for row in rows_of(adapter).values():
                if not row.record["deleted"]:
                    rows[row.uuid] = [[0, row.uuid], [0, row.revision], [0, row.record["display_name"]]]
    return announced, rows


def _announced(connection: Connection, after: int) -> Sequence[Changed]:
    wanted = select(changes.c.instance_uuid, changes.c.revision).where(
        changes.c.sequence > after, changes.c.revision != NO_REVISION, changes.c.instance_uuid != ""
    )
    return [(uuid, revision) for uuid, revision in connection.execute(wanted)]


def _published(cell: Cell) -> int:
    with closing(open_changelog_adapter(cell)) as adapter:
        return adapter.published_sequence()


@contextmanager
def following(world: World, seed: int) -> Iterator[FeedFollower]:
    """A follower in a thread that has begun, at an API in this process until it is sent to another one."""
    settings = world.settings
    with asyncio.Runner() as runner, ExitStack() as stack:
        fleet = stack.enter_context(open_fleet(settings.fleet))
        parts = AsyncExitStack()
        stack.callback(lambda: runner.run(parts.aclose()))
        app = create_app(runner.run(parts.enter_async_context(open_parts(settings, fleet, NoIdentity()))))
        api = stack.enter_context(closing(Api(app, runner)))
        follower = FeedFollower(api.get, Random(seed))
        with in_thread(follower.run):
            try:
                wait_until(follower.has_begun)
                yield follower
            finally:
                # A poll that waits is answered.
                runner.get_loop().call_soon_threadsafe(app.services.feed.close)
