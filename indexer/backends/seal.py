"""The seal of an index: what shows that no program but ours has written to it.

A store numbers every write. The writers of ours account for the numbers that they got
(fleetlight.indexer.backends.accounts); a number without an account, or a store with another history, is a breach of the
seal. Lists then ask the cells, until the index was compared with them and sealed anew
(fleetlight.indexer.reconcile.sealer).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

SEAL = "seal"
"""The kind of state that has `HELD`, and each breach that is not mended, by its id."""

HELD = "held"
"""The name of the moment (microseconds) up to which the seal is known to have held."""

AreRight = Callable[[Mapping[str, Collection[str]]], bool]
"""Says of documents, uuids by the uuid of the cell that they name, whether they say what the cells say."""


@dataclass(frozen=True, slots=True)
class Breach:
    """Writes that no writer of ours accounts for.

    id: of this one, as state. reason: as a sentence. uuids: the instances that were written and are still there; None
    where any of them may have been. mark: what the store had been given when it was found, for `Seal.mend`.
    """

    id: str
    reason: str
    uuids: frozenset[str] | None
    mark: Any = field(default=None, compare=False)


class Seal(Protocol):
    """The seal of one index, for the one process that checks it. Calls raise as those of IndexWriter do."""

    @property
    def held_at(self) -> int:
        """The moment, in microseconds, of the last look that has found no breach; 0 before there was one."""

    def check(self, are_right: AreRight, tolerance_s: float) -> Breach | None:
        """Look for writes that are not accounted for, and say as of when there were none (`HELD`).

        A breach is saved, so that lists know it, before it is returned. are_right: asked about writes whose writer may
        have been killed before it could account for them. tolerance_s: how long a writer that works may be late.
        """

    def mend(self, breach: Breach) -> None:
        """The index was compared with all cells since this breach was found.

        The next `check` that finds no other one ends it.
        """


@dataclass(frozen=True, slots=True)
class SealState:
    """What lists have to know. held_at: microseconds, 0 for never; None where each search checks the seal itself."""

    held_at: int | None
    reasons: tuple[str, ...] = ()

    @classmethod
    def of(cls, facts: Mapping[tuple[str, str], Any]) -> "SealState":
        """facts: state by its kind and name."""
        found = {name: value for (kind, name), value in facts.items() if kind == SEAL}
        held_at = found.pop(HELD, 0)
        # Another program may have written anything there.
        reasons = tuple(str(each.get("reason")) if isinstance(each, dict) else str(each) for each in found.values())
        return cls(held_at if isinstance(held_at, int) else 0, reasons)


CHECKED_BY_SEARCHES = SealState(None)
"""Of an index whose searches fail where the seal is broken."""
