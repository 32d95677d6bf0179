"""The seal of an index, by which we know that no other program has written to it.

A store numbers every write, and our writers account for the numbers they got (fleetlight.indexer.backends.accounts). A
number without an account, or a store with another history, is a breach of the seal. Lists then ask the cells, until the
index was compared with them and sealed anew (fleetlight.indexer.reconcile.sealer).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

SEAL = "seal"
"""The kind of state with `HELD`, and with each unmended breach by its id."""

HELD = "held"
"""The name of the moment, in microseconds, when the seal last held."""

AreRight = Callable[[Mapping[str, Collection[str]]], bool]
"""Says whether documents agree with the cells; takes their uuids by the uuid of the cell that they name."""


@dataclass(frozen=True, slots=True)
class Breach:
    """Writes that no writer of ours accounts for.

    id: its name in the state. reason: a sentence. uuids: the instances that were written and still exist; None if it
    may be any. mark: what the store had numbered when the breach was found, for `Seal.mend`.
    """

    id: str
    reason: str
    uuids: frozenset[str] | None
    mark: Any = field(default=None, compare=False)


class Seal(Protocol):
    """The seal of one index, for the only process that checks it. Calls raise as those of IndexWriter do."""

    @property
    def held_at(self) -> int:
        """When a look last found no breach, in microseconds; 0 if none has yet."""

    def check(self, are_right: AreRight, tolerance_s: float) -> Breach | None:
        """Look for writes that are not accounted for; if there are none, record the time (`HELD`).

        A breach is saved for lists before it is returned. are_right: is asked about writes whose writer may have been
        killed before it could account for them. tolerance_s: how late a working writer may report.
        """

    def mend(self, breach: Breach) -> None:
        """Declare that the index was compared with all cells since this breach was found.

        The next `check` that finds no other breach ends this one.
        """


@dataclass(frozen=True, slots=True)
class SealState:
    """What lists know of the seal. held_at: microseconds, 0 for never; None if each search checks the seal itself."""

    held_at: int | None
    reasons: tuple[str, ...] = ()

    @classmethod
    def of(cls, facts: Mapping[tuple[str, str], Any]) -> "SealState":
        """Read the state from facts, by kind and name."""
        found = {name: value for (kind, name), value in facts.items() if kind == SEAL}
        held_at = found.pop(HELD, 0)
        # Another program may have written anything there.
        reasons = tuple(str(each.get("reason")) if isinstance(each, dict) else str(each) for each in found.values())
        return cls(held_at if isinstance(held_at, int) else 0, reasons)


CHECKED_BY_SEARCHES = SealState(None)
"""The state for an index whose searches fail if the seal is broken."""
