"""Execution of the moves of one cell, in order where they concern the same nodes.

A move relies on the effect of earlier moves on its nodes, so its job begins only after theirs have succeeded; moves of
other nodes run concurrently. After a failure no further move is submitted, since the rest of the plan may be wrong;
another call plans anew from the present state.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from fleetlight.cells.errors import InstanceNotFoundError, StateConflictError
from fleetlight.manager.operations.balancing.plan import PlannedMove
from fleetlight.manager.operations.jobs.model import Status
from fleetlight.manager.operations.rebalancing.jobs import Ending, MoveJobs

MOST_AT_ONCE = 10
"""Largest number of submitted jobs that have not ended; later moves can still be dropped."""


@dataclass(slots=True)
class ExecutedMove:
    """A move with its job. job: its number, None until it is submitted. ending: None until the job has ended."""

    move: PlannedMove
    job: int | None = None
    ending: Ending | None = None

    @property
    def is_made(self) -> bool:
        return self.ending is not None and self.ending.status is Status.SUCCESS

    @property
    def is_under_way(self) -> bool:
        return self.job is not None and self.ending is None

    @property
    def nodes(self) -> set[str]:
        """The nodes that it changes."""
        places = (self.move.source, self.move.target)
        return {name for place in places for name in (place.primary, place.secondary) if name is not None}


@dataclass
class Execution:
    """The moves of a plan for one cell. Call `advance` repeatedly until it `is_over`."""

    jobs: MoveJobs
    planned: Sequence[PlannedMove]
    moves: list[ExecutedMove] = field(init=False)

    def __post_init__(self) -> None:
        self.moves = [ExecutedMove(move) for move in self.planned]

    def advance(self) -> None:
        """Check which jobs have ended, and submit the next moves. Raises CellUnreachableError."""
        under_way = {each.job: each for each in self.moves if each.is_under_way and each.job is not None}
        for number, ending in self.jobs.ended(under_way.keys()).items():
            under_way[number].ending = ending
        waiting = deque(each for each in self.moves if each.job is None and each.ending is None)
        while waiting and self._may_submit(waiting[0]):
            self._submit(waiting.popleft())

    def _may_submit(self, next_one: ExecutedMove) -> bool:
        under_way = [each for each in self.moves if each.is_under_way]
        # The cell refuses to move a server that is being moved.
        is_moving = any(each.move.moved == next_one.move.moved for each in under_way)
        return not self.has_failed and not is_moving and len(under_way) < MOST_AT_ONCE

    def _submit(self, next_one: ExecutedMove) -> None:
        nodes = next_one.nodes
        after = [each.job for each in self.moves if each.is_under_way and each.job and not nodes.isdisjoint(each.nodes)]
        try:
            next_one.job = self.jobs.submit(next_one.move, after)
        except (InstanceNotFoundError, StateConflictError) as error:
            next_one.ending = Ending(Status.ERROR, str(error))

    @property
    def has_failed(self) -> bool:
        return any(each.ending is not None and not each.is_made for each in self.moves)

    @property
    def made(self) -> int:
        return sum(each.is_made for each in self.moves)

    @property
    def is_over(self) -> bool:
        """Whether no job runs, and none will be submitted."""
        is_left = any(each.job is None and each.ending is None for each in self.moves)
        return not any(each.is_under_way for each in self.moves) and (self.has_failed or not is_left)


def finish_unfinished(jobs: MoveJobs, wait: Callable[[], None]) -> Iterator[int]:
    """Wait for the jobs of earlier calls; yields how many are left, first and whenever some have ended."""
    left = list(jobs.unfinished())
    while left:
        yield len(left)
        count = len(left)
        while len(left) == count:
            wait()
            ended = jobs.ended(left)
            left = [number for number in left if number not in ended]
