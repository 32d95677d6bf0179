"""The epochs of a cell in order, as values: see fleetlight.cells.kinds.native.epochs."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Position:
    """A position in the changes of a cell: a sequence, and the epoch in which it counts.

    epoch: None before the first relay, when no change has a number.
    """

    epoch: str | None
    sequence: int


@dataclass(frozen=True, slots=True)
class EpochHistory:
    """The kept epochs of a cell, oldest first: uuid, and the last sequence before it began."""

    epochs: Sequence[tuple[str, int]]

    @property
    def current(self) -> str | None:
        """The newest epoch; None before the first relay."""
        return self.epochs[-1][0] if self.epochs else None

    def knows(self, epoch: str) -> bool:
        """Whether the cell still keeps this epoch."""
        return any(uuid == epoch for uuid, _ in self.epochs)

    def contains(self, epoch: str, sequence: int) -> bool:
        """Whether change `sequence` of this epoch, or an earlier one, is part of the cell's past."""
        for position, (uuid, _) in enumerate(self.epochs):
            if uuid == epoch:
                is_current = position == len(self.epochs) - 1
                return is_current or sequence <= self.epochs[position + 1][1]
        return False
