"""A fleet of eight cells that production's own relay and indexer follow, for what is measured while they do."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Select, func, select

from bench.faults.processes import Daemon, daemon
from bench.faults.world import Sections, Servers, World, new_world
from fleetlight.cells.tables import cell_state, changes
from fleetlight.indexer.backends.base import IndexWriter
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.errors import IndexUnavailableError
from fleetlight.resources.clock import system_clock
from tests.support.waiting import wait_until

_PER_CELL = 50
_TIMEOUT_S = 1800


@dataclass(frozen=True, slots=True)
class FollowedWorld:
    """writer: of the index, past the proxy of the world. refresh_interval_s: of the indexer."""

    world: World
    indexer: Daemon
    writer: IndexWriter
    refresh_interval_s: float

    def published(self) -> Mapping[str, int]:
        """The highest sequence that was given out, by uuid of the cell."""
        return self._in_each_cell(select(cell_state.c.last_sequence))

    def behind(self) -> int:
        """How many changes are committed and not in the index yet; raises IndexUnavailableError."""
        known = self.writer.load_progress()
        numbered = {
            uuid: sequence - (known[uuid].watermark if uuid in known else 0)
            for uuid, sequence in self.published().items()
        }
        return sum(numbered.values()) + self._unnumbered()

    def _unnumbered(self) -> int:
        statement = select(func.count()).select_from(changes).where(changes.c.sequence.is_(None))
        return sum(self._in_each_cell(statement).values())

    def _in_each_cell(self, statement: Select[int]) -> dict[str, int]:
        """The one number that the statement gives, by uuid of the cell."""
        numbers = {}
        for cell in self.world.cells:
            with self.world.engines[cell.name].connect() as connection:
                numbers[cell.uuid] = connection.execute(statement).scalar_one()
        return numbers

    def wait_until_current(self) -> None:
        """Until everything is in the index that was committed before."""

        def is_current() -> bool:
            try:
                return self.behind() == 0 and len(self.writer.load_progress()) == len(self.world.cells)
            except IndexUnavailableError:
                return False  # it is not prepared yet

        wait_until(is_current, timeout_s=_TIMEOUT_S)


@contextmanager
def followed_world(directory: Path, servers: Servers, configured: Sections) -> Iterator[FollowedWorld]:
    """A small fleet that the index has caught up with. configured: what is not as it is unless said otherwise."""
    with ExitStack() as stack:
        world = stack.enter_context(new_world(directory, servers, configured))
        for operations in world.operations(system_clock):
            operations.create_many([{"display_name": f"instance {number}"} for number in range(_PER_CELL)])
        stack.enter_context(daemon(world, "relay", directory))
        indexer = stack.enter_context(daemon(world, "indexer", directory))
        settings = world.settings.index
        writer = open_writer(settings.model_copy(update={"urls": (servers.elasticsearch,)}))
        stack.enter_context(closing(writer))
        followed = FollowedWorld(world, indexer, writer, settings.refresh_interval_s)
        followed.wait_until_current()
        yield followed
