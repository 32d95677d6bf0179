"""The names of indexes and aliases that belong to one prefix."""

from dataclasses import dataclass
from datetime import UTC, datetime

from fleetlight.indexer.backends.elasticsearch.mapping import MAPPING_VERSION


@dataclass(frozen=True, slots=True)
class Names:
    """The names that belong to one prefix.

    read, write: aliases of the current physical index. next, previous: aliases of the ones that a rebuild fills and
    keeps. progress, next_progress, state: indexes. items: the alias of the index of items other than instances.
    """

    read: str
    write: str
    next: str
    previous: str
    progress: str
    next_progress: str
    state: str
    items: str

    @property
    def written(self) -> tuple[str, ...]:
        """The names that a writer writes to: the instances, and the three indexes beside them."""
        return self.write, self.progress, self.state, self.items

    @property
    def all(self) -> tuple[str, ...]:
        """All names that lists read."""
        return self.read, *self.written

    @classmethod
    def of(cls, prefix: str) -> "Names":
        instances, progress = f"{prefix}-instances", f"{prefix}-progress"
        return cls(
            read=instances,
            write=f"{instances}-write",
            next=f"{instances}-next",
            previous=f"{instances}-previous",
            progress=progress,
            next_progress=f"{progress}-next",
            state=f"{prefix}-state",
            items=f"{prefix}-items",
        )


def new_physical_name(names: Names) -> str:
    """A new name for a physical index, with its mapping version and its time of creation."""
    return f"{names.read}-v{MAPPING_VERSION}-{datetime.now(UTC):%Y%m%d%H%M%S%f}"
