"""The state of the index for operators: where it is, and whether it can be used."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class IndexProblem:
    """A problem, and what to do about it; each a sentence without a full stop."""

    says: str
    remedy: str


@dataclass(frozen=True, slots=True)
class IndexExamination:
    """server: program and version. name: of the physical index; None without one.

    unknown: what the account may not look at.
    """

    server: str
    name: str | None
    problems: Sequence[IndexProblem]
    unknown: Sequence[str] = ()


MAKE = IndexProblem("there is no index", "run `fleetlight indexer`, which makes and fills it")
REBUILD = "`fleetlight index rebuild` makes one of this version of it"
ROOM = (
    "make room: `fleetlight index drop-old`, a shorter index.deleted_retention and `fleetlight index purge`, more disk"
)
FULL_PERCENT = 85
"""At this level Elasticsearch stops giving shards to a node, and soon blocks writing to the index."""
