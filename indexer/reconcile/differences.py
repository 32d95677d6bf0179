"""The results of comparing one cell with the index."""

from dataclasses import dataclass
from enum import StrEnum


class DifferenceKind(StrEnum):
    """How the index differs from the cell in one instance; the values appear in the output of `index verify`."""

    MISSING = "missing in the index"
    ONLY_IN_INDEX = "only in the index"
    OLDER = "older in the index"
    NEWER = "newer in the index"
    CHANGED = "different in the index"
    OTHER_CELL = "another cell's in the index"


@dataclass(frozen=True, slots=True)
class Difference:
    """revision: in the cell, or the version for its row's document; version: in the index; None if it is missing there.

    is_repaired: cell and index now agree. problem: why they do not after a repair, or never will. owner: the other cell
    to which the document belongs, if any. mapped_to: the other cell that the instance's mapping names, if any; known
    after a repair.
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
        """Whether it makes lists wrong; a row that the index rightly has from another cell does not."""
        return not self.is_repaired and (self.mapped_to is None or self.kind is DifferenceKind.ONLY_IN_INDEX)

    @property
    def version_in_the_way(self) -> int | None:
        """The version of a document that prevents the index from taking the cell's row; None if it does not."""
        would_keep = self.version is not None and (self.revision is None or self.version >= self.revision)
        return self.version if would_keep else None


@dataclass(frozen=True, slots=True)
class Verification:
    """The result of comparing one cell with the index.

    rows, documents: their numbers, which may move while changes arrive. external: documents from notifications without
    a revision that are no rows of the cell. rows_read: rows, documents and revisions that were read one by one.
    has_caught_up: False if the index did not reach the cell's state in time, so that differences may be lag.
    """

    rows: int
    documents: int
    external: int
    differences: tuple[Difference, ...]
    rows_read: int
    has_caught_up: bool

    @property
    def remaining(self) -> tuple[Difference, ...]:
        """The differences that were not repaired."""
        return tuple(difference for difference in self.differences if not difference.is_repaired)
