"""Access of handlers to the fleet database and to native cells, whose calls block.

Handlers and lists share the pool of cells (fleetlight.cells.fan_out.cell_pool), and with it the knowledge which cells
hang.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import structlog

from fleetlight.api.caller import Caller
from fleetlight.api.http.errors import BadRequestError
from fleetlight.cells.daemon_threads import DaemonThreads
from fleetlight.cells.errors import CellHangsError, CellUnreachableError
from fleetlight.cells.fan_out.native_cells import NativeCells
from fleetlight.cells.fan_out.quota_usage import size_in, with_sizes
from fleetlight.cells.fleet.fleet import Fleet, InstanceMapping
from fleetlight.cells.model import Cell
from fleetlight.listing.errors import CellDownError
from fleetlight.listing.find_instance import InstanceFinder
from fleetlight.listing.sources import ask_fleet
from fleetlight.resources.uuids import is_uuid

T = TypeVar("T")

_log = structlog.get_logger(__name__)
_CHANGING_THREADS = 8
# A request for which some cells suffice waits so long: many times the time of a healthy cell, and hardly noticeable.
_SOON_S = 0.25


@dataclass(frozen=True, slots=True)
class OfCells(Generic[T]):
    """The answers of cells, in the order of their names, and the cells that did not answer.

    not_asked: cells of other kinds, which may have such objects, but cannot be asked for them.
    """

    answers: Sequence[tuple[Cell, T]]
    down: Sequence[Cell]
    not_asked: Sequence[Cell] = ()

    @property
    def is_complete(self) -> bool:
        """Whether all cells are represented."""
        return not self.down and not self.not_asked

    @property
    def headers(self) -> Mapping[str, str]:
        """The header of completeness."""
        return {"Fleetlight-Complete": "true" if self.is_complete else "false"}

    def without(self, down: Sequence[Cell]) -> "OfCells[T]":
        """Return the answers without the cells `down`, which did not answer a later call."""
        gone = {cell.uuid for cell in down}
        answers = [(cell, answer) for cell, answer in self.answers if cell.uuid not in gone]
        return replace(self, answers=answers, down=[*self.down, *down])


@dataclass(frozen=True, slots=True)
class InUse:
    """Usage of a project. amounts: by resource. headers: whether all cells were counted."""

    amounts: Mapping[str, int]
    headers: Mapping[str, str]


class Agents(Protocol):
    """The caller of hosts' agents, which caches their reported state."""

    def forget(self, cell: Cell, nodes: Collection[str]) -> None:
        """Drop the cached state of nodes (by name) whose configuration has changed."""


async def any_project(_project_id: str) -> bool:
    """Accept any project, where this process does not know them."""
    return True


@dataclass(frozen=True, slots=True)
class FleetAccess:
    """Access to the fleet. timeout_s: time limit of a query. max_limit: the largest page.

    has_image: whether an image with a uuid exists. has_project: whether a project with an id exists.
    nodes: caches the state of hosts with agents; None without agents.
    """

    fleet: Fleet
    finder: InstanceFinder
    native: NativeCells
    timeout_s: float
    max_limit: int
    has_image: Callable[[str], bool]
    has_project: Callable[[str], Awaitable[bool]] = any_project
    nodes: Agents | None = None
    _late: set[asyncio.Task[Any]] = field(default_factory=set)
    _changing: DaemonThreads = field(default_factory=lambda: DaemonThreads(_CHANGING_THREADS, "changes"))

    def check_image(self, image_id: str) -> None:
        """Raise BadRequestError if the image does not exist."""
        if not self.has_image(image_id):
            raise BadRequestError(f"Image {image_id} could not be found.")

    async def check_project(self, caller: Caller, project_id: str) -> None:
        """Raise BadRequestError if the project does not exist; checked for other projects only by administrators."""
        is_told = caller.is_admin or caller.project_id == project_id
        if is_told and not await self.has_project(project_id):
            raise BadRequestError(f"Project ID {project_id} is not a valid project.")

    async def act(self, cell: Cell, change: Callable[[], T]) -> T:
        """Run a blocking `change` of a native cell, and wait for its result (see GuardedCell.act)."""
        return await self.native.pool.act(cell, change)

    async def act_anywhere(self, change: Callable[[], T]) -> T:
        """Run a blocking `change` of the fleet and of a cell that it chooses itself, and wait for its result."""
        return await self._changing.run(change)

    async def mapping_of(self, instance_uuid: str) -> InstanceMapping | None:
        """Find the cell of an instance (see InstanceFinder.mapping_of); None for a text that is no uuid."""
        return await self.finder.mapping_of(instance_uuid, self.timeout_s) if is_uuid(instance_uuid) else None

    async def ask(self, question: Callable[[], T]) -> T:
        """Run a blocking query to the fleet database. Raises FleetUnreachableError, also at the timeout."""
        return await ask_fleet(question, self.timeout_s)

    async def ask_cell(self, cell: Cell, question: Callable[[], T]) -> T:
        """Run a blocking query to a native cell. Raises CellUnreachableError: at the timeout, at once if it hangs."""
        return await self.native.pool.ask_known(cell, question, self.timeout_s)

    async def ask_cells(self, question: Callable[[Cell], T]) -> OfCells[T]:
        """Ask all native cells concurrently. Raises FleetUnreachableError if the list of cells cannot be read."""
        native, others = await self.ask(self.native.cells_and_others)
        return replace(await self.ask_some(native, question), not_asked=others)

    async def ask_some(self, cells: Sequence[Cell], question: Callable[[Cell], T]) -> OfCells[T]:
        """Ask these native cells concurrently."""
        asked = await asyncio.gather(*(self._ask_one(cell, question) for cell in cells))
        answers = [(cell, answer[0]) for cell, answer in zip(cells, asked, strict=True) if answer is not None]
        down = [cell for cell, answer in zip(cells, asked, strict=True) if answer is None]
        return OfCells(answers, down)

    async def ask_until_enough(
        self, cells: Sequence[Cell], question: Callable[[Cell], T], is_enough: Callable[[Sequence[T]], bool]
    ) -> OfCells[T]:
        """Ask these native cells, and return the answers that come soon; wait for all if `is_enough` denies them.

        A late cell counts neither as answered nor as down. Its query goes on in the background, to detect cells that
        hang.
        """
        asked = {asyncio.create_task(self._ask_one(cell, question)): cell for cell in cells}
        self._late.update(asked)
        for task in asked:
            task.add_done_callback(self._late.discard)
        pending: Collection[asyncio.Task[tuple[T] | None]] = asked
        soon = time.monotonic() + _SOON_S
        while pending:
            left_s = soon - time.monotonic()
            answers = [task.result() for task in asked if task.done()]
            if left_s <= 0 and is_enough([answer[0] for answer in answers if answer is not None]):
                break
            _, pending = await asyncio.wait(
                pending, timeout=left_s if left_s > 0 else None, return_when=asyncio.FIRST_COMPLETED
            )
        done = [(cell, task.result()) for task, cell in asked.items() if task.done()]
        answered = [(cell, answer[0]) for cell, answer in done if answer is not None]
        return OfCells(answered, [cell for cell, answer in done if answer is None])

    async def find_in_cells(self, question: Callable[[Cell], T | None]) -> tuple[Cell, T] | None:
        """Return the first answer that is not None, with its cell; None if every cell answers None.

        Raises CellDownError if none is found and a cell does not answer, and FleetUnreachableError.
        """
        return await self.find_in_some(await self.ask(self.native.cells), question)

    async def find_in_some(self, cells: Sequence[Cell], question: Callable[[Cell], T | None]) -> tuple[Cell, T] | None:
        """As `find_in_cells`, in these native cells. Raises CellDownError."""
        of_cells = await self.ask_some(cells, question)
        for cell, answer in of_cells.answers:
            if answer is not None:
                return cell, answer
        if of_cells.down:
            raise CellDownError(of_cells.down[0].name)
        return None

    async def in_use(self, project_id: str) -> "InUse":
        """Sum up a project's usage that counts against quotas. Raises FleetUnreachableError."""
        counted = await self.ask(partial(self.fleet.quotas.counts, project_id))
        wanted = await self.ask(partial(self.fleet.cells_of_project, project_id))
        cells = [cell for cell in await self.ask(self.native.cells) if cell.uuid in wanted]
        sizes = await self.ask_some(cells, lambda cell: size_in(self.native.engine(cell), cell, project_id))
        return InUse(with_sizes(counted, [size for _, size in sizes.answers]), sizes.headers)

    def close(self) -> None:
        """End the threads, without waiting for hanging cells."""
        self._changing.shutdown(wait=False)

    async def _ask_one(self, cell: Cell, question: Callable[[Cell], T]) -> tuple[T] | None:
        try:
            return (await self.ask_cell(cell, lambda: question(cell)),)
        except CellUnreachableError as error:
            if not isinstance(error, CellHangsError):
                _log.warning("cell_unreachable", cell=cell.name, reason=error.reason)
            return None
