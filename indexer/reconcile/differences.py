"""Results of comparing one cell with the index."""

from dataclasses import dataclass
from enum import StrEnum


class DifferenceKind(StrEnum):
    """How the index differs from the cell in one instance; the words are in the output of `index verify`."""

    MISSING = "missing in the index"
    ONLY_IN_INDEX = "only in the index"
    OLDER = "older in the index"
    NEWER = "newer in the index"
    CHANGED = "different in the index"
    OTHER_CELL = "another cell's in the index"


@dataclass(frozen=True, slots=True)
class Difference:
    """revision: in the cell, or the version that a document of its row has to get; version: in the index; None where
    the instance is not.

    is_repaired: the two agree now. problem: why they do not, if repairing was tried, or why they never will. owner: the
    cell that the document is of, if it is another one. mapped_to: the cell that the mapping of the instance names, if
    it is another one; known where repairing was tried.
    """

    uuid: str
    kind: DifferenceKind
    revision: int | None
    version: int | None
    is_repaired: bool = False
    problem: str | None = None
    owner: str | None = None
    mapped_to: str | None = None

    @property
    def is_wrong(self) -> bool:
        """Whether a list by the index is wrong for it: not for a row that the index rightly has of another cell."""
        return not self.is_repaired and (self.mapped_to is None or self.kind is DifferenceKind.ONLY_IN_INDEX)

    @property
    def version_in_the_way(self) -> int | None:
        """Of a document that the index would keep rather than take what the cell has; None if it takes that."""
        would_keep = self.version is not None and (self.revision is None or self.version >= self.revision)
        return self.version if would_keep else None


@dataclass(frozen=True, slots=True)
class Verification:
    """What came of comparing one cell with the index.

    rows, documents: how many each has; both move while changes arrive. external: documents that come from notifications
    without a revision and are no rows of the cell. rows_read: rows, documents and revisions that were read one by one.
    has_caught_up: False if the index did not get as far as the cell in time, so that differences may be lag.
    """

    rows: int
    documents: int
    external: int
    differences: tuple[Difference, ...]
    rows_read: int
    has_caught_up: bool

    @property
    def remaining(self) -> tuple[Difference, ...]:
        return tuple(difference for difference in self.differences if not difference.is_repaired)
