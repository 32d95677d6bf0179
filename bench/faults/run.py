"""One fault from beginning to end: a world, a load, the fault, the recovery, and what it has cost."""

import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.faults.damage import Damage, damage, has_caught_up
from bench.faults.faults import FaultStage, InjectedFault, JumpingClock
from bench.faults.follower import following
from bench.faults.load import FaultLoad
from bench.faults.world import Servers, World, new_world
from fleetlight.cells.model import Cell
from fleetlight.indexer.backends.base import CellProgress, IndexWriter
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.errors import IndexerError, IndexUnavailableError
from fleetlight.resources.clock import system_clock
from scripts.servers.base import Server
from scripts.servers.elasticsearch import BriefElasticsearch
from scripts.servers.opensearch import OpenSearch
from scripts.servers.postgresql import DurablePostgreSQL
from scripts.servers.private import PrivateServer, private_server
from scripts.servers.rabbitmq import RabbitMQ
from tests.support.waiting import wait_until

_RECOVERY_S = 180
_SMALL_DISK = "16m"
_KINDS: dict[str, Server] = {
    # What is counted are losses, and not how fast it is.
    "elasticsearch": BriefElasticsearch(),
    "rabbitmq": RabbitMQ(),
    "postgresql": DurablePostgreSQL(),
}


@dataclass(frozen=True, slots=True)
class FaultOutcome:
    """What came of a fault.

    events: operations while it lasted. recovery_s: from its end until all was right again. notes: what was measured.
    """

    fault: str
    events: int
    damage: Damage
    recovery_s: float
    notes: Sequence[str]

    @property
    def is_clean(self) -> bool:
        return self.damage == Damage()


class Supply:
    """Servers for the faults: shared ones where there are, else such as are started here and serve all faults after."""

    def __init__(self, stack: ExitStack, shared: dict[str, str], *, in_opensearch: bool = False) -> None:
        self._stack = stack
        self._shared = shared
        self._kinds = {**_KINDS, "elasticsearch": OpenSearch()} if in_opensearch else _KINDS
        self._own: dict[str, PrivateServer] = {}

    def url(self, kind: str, *, own: bool) -> str:
        """own: of a server that nothing else uses."""
        return self._shared[kind] if kind in self._shared and not own else self.own(kind).url

    def own(self, kind: str) -> PrivateServer:
        if kind not in self._own:
            self._own[kind] = self._stack.enter_context(private_server(self._kinds[kind]))
        return self._own[kind]


def run_fault(fault: InjectedFault, supply: Supply, folder: Path, *, seed: int, rounds: int) -> FaultOutcome:
    """Raises AssertionError when the fault cannot be caused, or nothing has come right after some minutes."""
    with ExitStack() as stack:
        disk = stack.enter_context(_small_disk(folder)) if fault.small_disk else folder
        index_file = disk / "index.db" if fault.small_disk or fault.sqlite_index else None
        servers = Servers(
            elasticsearch=supply.url("elasticsearch", own="elasticsearch" in fault.own),
            amqp=supply.url("rabbitmq", own="rabbitmq" in fault.own),
            postgresql=(
                supply.url("postgresql", own="postgresql" in fault.own) if fault.cells == "postgresql" else None
            ),
            index_file=index_file,
        )
        world = stack.enter_context(new_world(folder, servers))
        writer = stack.enter_context(closing(open_writer(_past_the_proxy(world))))
        clock = JumpingClock()
        load = FaultLoad(world.operations(clock), seed)
        with ExitStack() as processes:
            stage = FaultStage(
                world=world,
                load=load,
                servers={kind: supply.own(kind) for kind in fault.own},
                rounds=rounds,
                seed=seed,
                folder=folder,
                watermark=lambda cell: _progress(writer, cell).watermark,
                fresh_as_of=lambda cell: _progress(writer, cell).fresh_as_of,
                is_right=lambda since: _is_right(world, writer, load, since),
                clock=clock,
                follower=processes.enter_context(following(world, seed)),
                stack=processes,
            )
            load.start()
            try:
                fault.act(stage)
            except BaseException:
                # Nothing need work at the moment, so no more is asked of the cells.
                load.stop()
                raise
            load.finish()
            return _recovered(stage, fault, writer)


def _recovered(stage: FaultStage, fault: InjectedFault, writer: IndexWriter) -> FaultOutcome:
    world, load = stage.world, stage.load
    begun_s, over_at = time.monotonic(), system_clock()
    found = Damage()

    def all_is_right() -> bool:
        nonlocal found
        if not has_caught_up(world, writer, over_at) or not stage.follower.has_caught_up(world):
            return False
        found = damage(world, writer, load.journal) + stage.follower.damage(world, is_restored=fault.restores_cell)
        return found == Damage()

    try:
        wait_until(all_is_right, timeout_s=_RECOVERY_S)
    except AssertionError as error:
        # Damage that stays is an outcome; what never catches up is not one that can be put into numbers.
        if found == Damage():
            error.add_note(stage.follower.summary())
            raise
    recovery_s = time.monotonic() - begun_s
    return FaultOutcome(fault.name, load.events, found, recovery_s, [*stage.notes, stage.follower.summary()])


def _is_right(world: World, writer: IndexWriter, load: FaultLoad, since: int) -> bool:
    try:
        return has_caught_up(world, writer, since) and damage(world, writer, load.journal) == Damage()
    except IndexerError:
        return False  # it is not whole yet


def _progress(writer: IndexWriter, cell: Cell) -> CellProgress:
    none = CellProgress(cell.uuid, 0, 0, is_complete=False)
    try:
        return writer.load_progress().get(cell.uuid, none)
    except IndexUnavailableError:
        return none  # it is not prepared yet


def _past_the_proxy(world: World) -> IndexSettings:
    return world.settings.index.model_copy(update={"urls": (world.servers.elasticsearch,)})


@contextmanager
def _small_disk(folder: Path) -> Iterator[Path]:
    """A file system in memory that is full soon; takes root."""
    disk = folder / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={_SMALL_DISK}", "tmpfs", str(disk)], check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)
