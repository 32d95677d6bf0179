"""The incarnations of a cell in order, as values: see cells.kinds.native.epochs."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Position:
    """Up to where the changes of a cell are known: the sequence, and an incarnation that calls it so.

    incarnation: None before the first relay, when nothing has a number yet.
    """

    incarnation: str | None
    sequence: int


@dataclass(frozen=True, slots=True)
class Lineage:
    """The incarnations of a cell, the oldest that is kept first: uuid, and the last sequence before it began."""

    incarnations: Sequence[tuple[str, int]]

    @property
    def current(self) -> str | None:
        """The newest one; None before the first relay."""
        return self.incarnations[-1][0] if self.incarnations else None

    def knows(self, incarnation: str) -> bool:
        return any(uuid == incarnation for uuid, _ in self.incarnations)

    def contains(self, incarnation: str, sequence: int) -> bool:
        """Whether the change that this incarnation, or one before it, called `sequence` is part of the cell's past."""
        for position, (uuid, _) in enumerate(self.incarnations):
            if uuid == incarnation:
                is_current = position == len(self.incarnations) - 1
                return is_current or sequence <= self.incarnations[position + 1][1]
        return False
