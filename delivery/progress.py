"""Up to where everything was delivered, of events that end in any order."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from fleetlight.cells.epochs import Position


@dataclass(slots=True, eq=False)
class Step:
    """One event that was begun. positions: of the cells behind it; None where that was not looked at."""

    positions: Mapping[str, Position] | None
    has_ended: bool = False


class Progress:
    """The lowest position before which nothing waits any more."""

    def __init__(self) -> None:
        self._open: deque[Step] = deque()
        self.reached: Mapping[str, Position] | None = None

    def begin(self, positions: Mapping[str, Position] | None) -> Step:
        """The next event, in the order of the feed."""
        step = Step(positions)
        self._open.append(step)
        return step

    def end(self, step: Step) -> None:
        step.has_ended = True
        while self._open and self._open[0].has_ended:
            positions = self._open.popleft().positions
            if positions is not None:
                self.reached = positions
