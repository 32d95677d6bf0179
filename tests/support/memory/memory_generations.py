"""The generations of a MemoryIndex."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from fleetlight.indexer.backends.base import BareDocument
from tests.support.memory.memory_index import MemoryIndex


@dataclass
class MemoryGenerations:
    """fleetlight.indexer.backends.base.Generations.

    refused: what the next index will reject, as in MemoryIndex. outdated: all that can still be read of the current
    one, if it is.
    """

    current: MemoryIndex
    next: MemoryIndex | None = None
    previous: MemoryIndex | None = None
    refused: dict[str, str] = field(default_factory=dict)
    outdated: Sequence[BareDocument] | None = None

    def has_next(self) -> bool:
        return self.next is not None

    def has_previous(self) -> bool:
        return self.previous is not None

    def names(self) -> tuple[str | None, str | None]:
        return None, None

    def is_unusable(self) -> bool:
        return self.outdated is not None

    def bare_documents(self, cell_uuid: str) -> Iterator[Sequence[BareDocument]]:
        assert self.outdated is not None
        of_cell = [each for each in self.outdated if each.record["cell_uuid"] == cell_uuid]
        yield from ([each] for each in of_cell)

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
