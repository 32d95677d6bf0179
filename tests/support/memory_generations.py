"""The generations of a MemoryIndex."""

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.indexing import MemoryIndex


@dataclass
class MemoryGenerations:
    """indexer.backends.base.Generations. refused: what the next index will reject, as in MemoryIndex."""

    current: MemoryIndex
    next: MemoryIndex | None = None
    previous: MemoryIndex | None = None
    refused: dict[str, str] = field(default_factory=dict)

    def has_next(self) -> bool:
        return self.next is not None

    def has_previous(self) -> bool:
        return self.previous is not None

    def create_next(self) -> None:
        self.next = MemoryIndex(refused=self.refused, state=self.current.state)

    def take_previous_as_next(self) -> None:
        self.next, self.previous = self.previous, None

    def open_next(self) -> MemoryIndex:
        assert self.next is not None
        return self.next

    def switch(self, finish: Callable[[], None]) -> None:
        assert self.next is not None
        self.current.is_blocked = True
        try:
            finish()
        finally:
            self.current.is_blocked = False
        self.previous = MemoryIndex(self.current.documents, self.current.searchable, state=self.current.state)
        self.current.documents, self.current.searchable = self.next.documents, self.next.searchable
        self.next = None

    def drop_next(self) -> None:
        self.next = None

    def drop_previous(self) -> None:
        self.previous = None

    def close(self) -> None:
        """Nothing to let go of."""
