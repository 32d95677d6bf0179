"""The faults. Each begins its own processes on a stage, and is over when it returns; then all must come right again."""

import os
import random
import sqlite3
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import cycle, islice, permutations
from pathlib import Path
from typing import TypeVar

from elasticsearch import ApiError

from bench.faults import processes
from bench.faults.follower import FeedFollower
from bench.faults.index_damage import DAMAGES, IndexDamage
from bench.faults.lists import Judged, Lists
from bench.faults.load import FaultLoad
from bench.faults.shifted_clock import ShiftedClock
from bench.faults.unruly import Mischief, UnrulyPublisher
from bench.faults.vandal import open_vandal
from bench.faults.world import World
from fleetlight.cells.fleet.tables import fleet_metadata
from fleetlight.cells.kinds.opening import open_changelog_adapter
from fleetlight.cells.model import Cell
from fleetlight.resources.clock import system_clock
from scripts.servers.private import PrivateServer
from scripts.servers.process import free_port
from tests.support.servers.backups import Backup
from tests.support.servers.index_server import index_client
from tests.support.waiting import wait_until

T = TypeVar("T")

_HOUR = 3_600_000_000
# An index that has stood still for some seconds more than it may seems fresh by the one, and a fresh one stale by both.
_API_WRONG_BY_S = (-5, 15)
_BEHIND_LISTS_S = 2.0  # for so long lists are judged that have to ask cells
_ACTS_A_ROUND = 2
_SEALED_WITHIN_S = 2.0  # so soon another program's writes are found on a machine at rest


@dataclass
class JumpingClock:
    """The clock of the machine (fleetlight.resources.clock), and `offset` microseconds more."""

    offset: int = 0

    def __call__(self) -> int:
        return system_clock() + self.offset


@dataclass
class FaultStage:
    """What a fault may use.

    servers: those of this fault alone, by name. rounds: how often it breaks something. seed: the fault's own.
    folder: for logs. watermark: up to which change the index has everything of a cell. fresh_as_of: up to which moment
    it says that it has. is_right: whether the index says that it has all that the cells have after a moment
    (microseconds since the epoch), and has it, and nothing else; nothing may be changed meanwhile. clock: of the
    operations. follower: of the feed of changes. notes: what was measured, as sentences.
    """

    world: World
    load: FaultLoad
    servers: dict[str, PrivateServer]
    rounds: int
    seed: int
    folder: Path
    watermark: Callable[[Cell], int]
    fresh_as_of: Callable[[Cell], int]
    is_right: Callable[[int], bool]
    clock: JumpingClock
    follower: FeedFollower
    stack: ExitStack
    generator: random.Random = field(init=False)
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.generator = random.Random(self.seed)

    def run(self, process: AbstractContextManager[T]) -> T:
        """Keep it running until all has come right."""
        return self.stack.enter_context(process)

    def run_all(self) -> None:
        """The usual: a relay and an indexer of all cells."""
        self.run(processes.relays(self.world))
        self.run(processes.indexer(self.world))

    def run_api(self, environment: Mapping[str, str] | None = None, asks: random.Random | None = None) -> Lists:
        """An API, its callers, and the follower of the feed. asks: chooses their lists (Lists)."""
        port = free_port()
        self.run(processes.daemon(self.world, f"api --port {port} --processes 1", self.folder, environment))
        limit_s = self.world.settings.search.staleness_limit_s
        address = f"http://127.0.0.1:{port}"
        self.follower.ask_at(address)
        return self.stack.enter_context(closing(Lists(address, self.load, limit_s, asks)))

    def operate(self, at_least: int = 20, at_most: int = 80) -> None:
        """Let a random number of operations go by."""
        self.load.wait_for(self.generator.randint(at_least, at_most))

    def wait_until_followed(self) -> None:
        """Until the index has got further in every cell than it is now; a fault before that would hit beginnings."""
        for cell in self.world.cells:
            self.wait_until_current(cell)

    def wait_until_current(self, cell: Cell) -> None:
        """Until the index has all that the cell has published by now."""
        with closing(open_changelog_adapter(cell)) as adapter:
            published = adapter.published_sequence()
        wait_until(lambda: self.watermark(cell) >= max(published, 1), timeout_s=120)

    def wait_until_fresh(self) -> None:
        """Until the index says of every cell that it has what the cell had a moment ago, as it has to all the time."""
        since = system_clock()

        def all_are_fresh() -> bool:
            return all(since <= self.fresh_as_of(cell) <= system_clock() for cell in self.world.cells)

        wait_until(all_are_fresh, timeout_s=120)

    def wait_until_right(self) -> None:
        """Until the index is right again, while there are no operations.

        What documents say is read at a share of the audit's time, which is long on a machine that has other work.
        """
        with self.load.paused():
            since = system_clock()
            wait_until(lambda: self.is_right(since), timeout_s=600)


@dataclass(frozen=True, slots=True)
class InjectedFault:
    """One way to break something.

    cells: the kind of database that the cells have. own: names of the servers that it must have for itself, since it
    kills them. sqlite_index: the index is a SQLite file. small_disk: so it is, on a small disk of its own, which takes
    root to make. restores_cell: changes of a cell are taken back, so that consumers of the feed have to begin anew.
    """

    name: str
    act: Callable[[FaultStage], None]
    cells: str = "sqlite"
    own: tuple[str, ...] = ()
    sqlite_index: bool = False
    small_disk: bool = False
    restores_cell: bool = False


def kill_indexer(stage: FaultStage) -> None:
    stage.run(processes.relays(stage.world))
    _kill_again_and_again(stage, "indexer")


def kill_relay(stage: FaultStage) -> None:
    stage.run(processes.indexer(stage.world))
    _kill_again_and_again(stage, "relay")


def _kill_again_and_again(stage: FaultStage, command: str) -> None:
    process = stage.run(processes.daemon(stage.world, command, stage.folder))
    # What is killed before it has begun proves nothing.
    stage.wait_until_followed()
    for _ in range(stage.rounds):
        stage.operate()
        process.kill()
        stage.operate()
        process.start()
        stage.wait_until_followed()


def hang_relay(stage: FaultStage) -> None:
    """One of two is stopped in the middle of its work, the other one takes over, and the first one wakes up."""
    stage.run(processes.indexer(stage.world))
    relays = []
    for name in ("one", "other"):
        (stage.folder / name).mkdir()
        relays.append(stage.run(processes.daemon(stage.world, "relay", stage.folder / name)))
    stage.wait_until_followed()
    for _ in range(stage.rounds):
        for relay in relays:
            stage.operate()
            relay.hang()
            try:
                stage.operate()
                stage.wait_until_followed()
            finally:
                relay.wake()


def damage_index(stage: FaultStage) -> None:
    """Two of all that can be done to the indexes by hand, one right after the other: another pair in each round.

    As many rounds as there are pairs are all of them, in an order by the seed.
    """
    pairs = list(permutations(sorted(DAMAGES), 2))
    stage.generator.shuffle(pairs)
    stage.run_all()
    with index_client(stage.world.servers.elasticsearch, request_timeout=30) as client:
        damage = IndexDamage(client, stage.world.settings.index.prefix)
        stage.wait_until_followed()
        for pair in islice(cycle(pairs), stage.rounds):
            stage.operate()
            try:
                for name in pair:
                    wait_until(partial(_has_done, partial(DAMAGES[name], damage)), timeout_s=120)
                stage.operate()
                stage.wait_until_right()
            except BaseException as error:
                error.add_note(f"after {' and '.join(pair)}")
                raise


def _has_done(act: Callable[[], None]) -> bool:
    try:
        act()
    except (ApiError, sqlite3.Error, ValueError):
        return False  # what was to be damaged is still away, by the damage before it
    return True


def vandalise(stage: FaultStage) -> None:
    """Another program writes to the index, some acts in each round, in an order by the seed."""
    stage.run_all()
    _vandalise(stage, [])


def vandalise_and_kill(stage: FaultStage) -> None:
    """As `vandalise`, and the indexer is killed before the act, or after it."""
    stage.run(processes.relays(stage.world))
    _vandalise(stage, [stage.run(processes.daemon(stage.world, "indexer", stage.folder))])


def _vandalise(stage: FaultStage, killed: Sequence[processes.Daemon]) -> None:
    lists = stage.run_api(asks=random.Random(stage.seed))
    lies: list[str] = []
    with open_vandal(stage.world, stage.generator) as vandal:
        stage.wait_until_followed()
        names = stage.generator.sample(sorted(vandal.acts), len(vandal.acts))
        for name in islice(cycle(names), stage.rounds * _ACTS_A_ROUND):
            lists.wait_until_from_index()
            stage.operate(5, 20)
            lists.check()
            is_killed_before = stage.generator.random() < 0.5
            for process in killed if is_killed_before else ():
                process.kill()
            wait_until(partial(_has_done, vandal.acts[name]), timeout_s=120)
            acted_s = time.monotonic()
            for process in killed:
                if not is_killed_before:
                    process.kill()
                process.start()
            judged = lists.check_for(stage.world.settings.search.staleness_limit_s + _BEHIND_LISTS_S)
            stage.notes.append(f"{name}: {_said_of(judged, acted_s)}")
            lies += [f"after {name}: {wrong}" for each in judged if each.as_of_s > acted_s for wrong in each.wrong]
            try:
                stage.wait_until_right()
            except BaseException as error:
                error.add_note(f"after {name}")
                raise
    assert lists.judged, "no list was complete"
    assert not lies, (lies[:10], stage.notes)


def _said_of(judged: Sequence[Judged], acted_s: float) -> str:
    """What the lists that were asked for since an act were."""
    wrong_s = [each.asked_s - acted_s for each in judged if each.wrong]
    late = sum(seconds > _SEALED_WITHIN_S for seconds in wrong_s)
    return (
        f"{len(judged)} complete lists, {len(wrong_s)} wrong, {late} of them later than {_SEALED_WITHIN_S} s, "
        f"the last after {max(wrong_s, default=0):.2f} s"
    )


def kill_elasticsearch(stage: FaultStage) -> None:
    _take_away(stage, "elasticsearch", PrivateServer.kill)


def stop_rabbitmq(stage: FaultStage) -> None:
    _take_away(stage, "rabbitmq", PrivateServer.stop)


def kill_postgresql(stage: FaultStage) -> None:
    """Fleet and cells are all on it, so there are no operations either while it is away."""
    _take_away(stage, "postgresql", PrivateServer.kill, operating=False)


def _take_away(
    stage: FaultStage, name: str, take_away: Callable[[PrivateServer], None], *, operating: bool = True
) -> None:
    stage.run_all()
    for _ in range(stage.rounds):
        stage.wait_until_followed()
        stage.operate()
        take_away(stage.servers[name])
        if operating:
            stage.operate()
        stage.servers[name].start()


def cut_off_index(stage: FaultStage) -> None:
    """The queues fill meanwhile, far beyond what the broker hands out at once in a long run."""
    _cut_off(stage, "elasticsearch")


def cut_off_bus(stage: FaultStage) -> None:
    """The outboxes fill meanwhile."""
    _cut_off(stage, "amqp")


def _cut_off(stage: FaultStage, proxy: str) -> None:
    stage.run_all()
    for _ in range(stage.rounds):
        stage.wait_until_followed()
        stage.operate()
        stage.world.proxies[proxy].cut()
        stage.operate(100, 100 * stage.rounds)
        stage.world.proxies[proxy].restore()


def unruly_bus(stage: FaultStage) -> None:
    _misbehave(stage, Mischief(repeated=0.2, held_back=0.1, lost=0.05))


def poison(stage: FaultStage) -> None:
    """Of each hundred messages one is cut in half."""
    _misbehave(stage, Mischief(damaged=0.01))


def _misbehave(stage: FaultStage, mischief: Mischief) -> None:
    unruly: list[UnrulyPublisher] = []

    def between(_cell: Cell, publisher: processes.Closes) -> UnrulyPublisher:
        unruly.append(UnrulyPublisher(publisher, mischief, stage.generator.randrange(2**32)))
        return unruly[-1]

    stage.run(processes.relays(stage.world, change=between))
    stage.run(processes.indexer(stage.world))
    stage.wait_until_followed()
    for _ in range(stage.rounds):
        stage.operate(100, 300)
    for publisher in unruly:
        publisher.behave()


def everything_twice(stage: FaultStage) -> None:
    """Two relays and two indexers for the same cells, by mistake, and the first ones of them end."""
    with processes.relays(stage.world), processes.indexer(stage.world):
        stage.run_all()
        stage.wait_until_followed()
        for _ in range(stage.rounds):
            stage.operate()


def clock_jumps(stage: FaultStage) -> None:
    """The clock of relays and operations goes back and forth by hours, and then that of the indexer's machine.

    By the latter nothing may seem older or newer than it is.
    """
    stage.run(processes.relays(stage.world, clock=stage.clock))
    shifted = ShiftedClock(stage.folder / "offset")
    stage.run(processes.daemon(stage.world, "indexer", stage.folder, shifted.environment))
    stage.wait_until_followed()
    for _ in range(stage.rounds):
        for hours in (stage.generator.randint(1, 48), -stage.generator.randint(1, 48), 0):
            stage.clock.offset = hours * _HOUR
            stage.operate()
        stage.wait_until_fresh()
        for hours in (stage.generator.randint(1, 48), -stage.generator.randint(1, 48), 0):
            shifted.shift(hours * 3600)
            stage.operate()
            stage.wait_until_fresh()


def wrong_clock_of_api(stage: FaultStage) -> None:
    """The clock of an API is behind, and then ahead, by more than lists may be old, and the index stands still.

    The index must not seem fresh by it when it is not, and not stale when it is fresh.
    """
    stage.run(processes.relays(stage.world))
    indexer = stage.run(processes.daemon(stage.world, "indexer", stage.folder))
    shifted = ShiftedClock(stage.folder / "offset")
    lists = stage.run_api(shifted.environment)
    stage.wait_until_followed()
    for _ in range(stage.rounds):
        for seconds in _API_WRONG_BY_S:
            shifted.shift(seconds)
            lists.wait_until_from_index()
            indexer.hang()
            try:
                stage.operate()
                judged = lists.judged
                lists.check_for(stage.world.settings.search.staleness_limit_s + _BEHIND_LISTS_S)
            finally:
                indexer.wake()
            assert lists.judged > judged, "no list was complete"
            assert not lists.wrong, lists.wrong


def restore_fleet_database(stage: FaultStage) -> None:
    """The fleet database goes back to a copy that knows none of the servers that were created since."""
    stage.run_all()
    lists = stage.run_api()
    stage.wait_until_followed()
    for _ in range(stage.rounds):
        lists.wait_until_from_index()
        copy = Backup(stage.world.fleet.database.engine, stage.folder, fleet_metadata)
        stage.operate()
        lists.check()
        with stage.load.paused():
            copy.restore()
        judged = lists.judged
        stage.operate()
        lists.find_each()
        lists.check_for(stage.world.settings.search.staleness_limit_s + _BEHIND_LISTS_S)
        assert lists.judged > judged, "no list was complete"
        assert not lists.wrong, lists.wrong


def restore_cell(stage: FaultStage) -> None:
    """The database of a cell goes back to a copy under the load, while a relay and two indexers follow it."""
    stage.run_all()
    stage.run(processes.indexer(stage.world))
    lists = stage.run_api()
    stage.wait_until_followed()
    number = stage.generator.randrange(len(stage.world.cells))
    for _ in range(stage.rounds):
        lists.wait_until_from_index()
        with stage.load.paused():
            copy = Backup(stage.world.engines[stage.world.cells[number].name], stage.folder)
            promised = dict(stage.load.journal)
        stage.operate()
        stage.wait_until_followed()
        with stage.load.paused():
            copy.restore()
            stage.load.take_back(number, promised)
        lists.forget()
        judged = lists.judged
        lists.check_for(2 * stage.world.settings.search.staleness_limit_s + _BEHIND_LISTS_S)
        lists.find_each()
        assert lists.judged > judged, "no list was complete"
        assert not lists.wrong, lists.wrong


def full_cluster(stage: FaultStage) -> None:
    """What Elasticsearch does when its disk is nearly full: it takes no document any more, but lets them be removed."""
    settings = stage.world.settings.index
    with index_client(stage.world.servers.elasticsearch) as client:
        stage.run_all()
        for _ in range(stage.rounds):
            stage.wait_until_followed()
            for is_full in (True, None):
                client.indices.put_settings(
                    index=f"{settings.prefix}-*", settings={"index.blocks.read_only_allow_delete": is_full}
                )
                stage.operate()


def full_disk(stage: FaultStage) -> None:
    """The disk of a SQLite index is full to the last byte, and has room again."""
    stage.run_all()
    folder = stage.world.settings.index.path.parent
    for _ in range(stage.rounds):
        stage.wait_until_followed()
        filler = folder / "filler"
        _fill(filler)
        stage.operate()
        filler.unlink()


def _fill(file: Path) -> None:
    block = b"\0" * 4096
    with file.open("wb", buffering=0) as output, suppress(OSError):
        while output.write(block) == len(block):
            pass
    assert not os.statvfs(file).f_bavail, "the disk has room left"


def slow_cell(stage: FaultStage) -> None:
    """The database of the first cell answers slowly; the other cells must not wait for it."""
    stage.run_all()
    stage.wait_until_followed()
    stage.world.proxies["first cell"].slow_down(0.2)
    for _ in range(stage.rounds):
        stage.operate()
        for cell in stage.world.cells[1:]:
            stage.wait_until_current(cell)
    stage.world.proxies["first cell"].slow_down(0)


FAULTS = {
    fault.name: fault
    for fault in (
        InjectedFault("indexer killed", kill_indexer),
        InjectedFault("relay killed", kill_relay),
        InjectedFault("relay hangs", hang_relay, cells="postgresql"),
        InjectedFault("index damaged", damage_index),
        InjectedFault("vandal", vandalise),
        InjectedFault("vandal and a kill", vandalise_and_kill),
        InjectedFault("vandal in SQLite", vandalise, sqlite_index=True),
        InjectedFault("vandal in SQLite and a kill", vandalise_and_kill, sqlite_index=True),
        InjectedFault("elasticsearch killed", kill_elasticsearch, own=("elasticsearch",)),
        InjectedFault("rabbitmq stopped", stop_rabbitmq, own=("rabbitmq",)),
        InjectedFault("postgresql killed", kill_postgresql, cells="postgresql", own=("postgresql",)),
        InjectedFault("index cut off", cut_off_index),
        InjectedFault("bus cut off", cut_off_bus),
        InjectedFault("unruly bus", unruly_bus),
        InjectedFault("poison", poison),
        InjectedFault("everything twice", everything_twice),
        InjectedFault("clock jumps", clock_jumps, cells="postgresql"),
        InjectedFault("clock of an API wrong", wrong_clock_of_api, cells="postgresql"),
        InjectedFault("fleet database restored", restore_fleet_database),
        InjectedFault("cell restored", restore_cell, restores_cell=True),
        InjectedFault("full cluster", full_cluster),
        InjectedFault("full disk", full_disk, small_disk=True),
        InjectedFault("slow cell", slow_cell, cells="postgresql"),
    )
}
