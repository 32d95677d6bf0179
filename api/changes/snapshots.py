"""The rows of a query at a moment, and what is between two of them; pure."""

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import msgspec

from fleetlight.listing.answer import Page
from fleetlight.listing.watches.watched_list import ChangeKind

_cells_in = msgspec.json.Decoder(list[msgspec.Raw]).decode
_cell_in = msgspec.json.Decoder(tuple[int, Any]).decode
_NOT_WHOLE = "not all of its rows could be read"


class RowKey(NamedTuple):
    """What names a row for ever: the name of its cell, and the item there."""

    cell: str
    id: str


@dataclass(frozen=True, slots=True)
class Snapshot:
    """rows: of each, the JSON of its cells. known: names of the cells that have answered whole once. away: why one does
    not now; its rows stay as they were. has_all_cells: whether these are known to be all of the fleet.
    """

    rows: Mapping[RowKey, msgspec.Raw]
    known: Set[str]
    away: Mapping[str, str]
    has_all_cells: bool = True

    @property
    def is_complete(self) -> bool:
        return self.has_all_cells and not self.away

    def taken(self, rows: Mapping[RowKey, msgspec.Raw], proof: Page) -> "Snapshot":
        """The one after this, of the rows that were read now, and what they cover."""
        away = {each.cell.name: each.failure or _NOT_WHOLE for each in proof.cells if not each.is_complete}
        answered = {each.cell.name for each in proof.cells if each.is_complete}
        # A cell that has left the fleet is not asked, and its rows are gone; unless it is not known which cells it has.
        left = set() if proof.has_all_cells else self.known - answered
        stay = self.known & (away.keys() | left)
        kept = {key: cells for key, cells in self.rows.items() if key.cell in stay}
        read = {key: cells for key, cells in rows.items() if key.cell not in stay}
        return Snapshot(kept | read, answered | stay, away, proof.has_all_cells)

    def without_fleet(self, reason: str) -> "Snapshot":
        """The one after this when it was not known whom to ask."""
        return replace(self, away=dict.fromkeys(self.known | self.away.keys(), reason), has_all_cells=False)

    def changes_to(self, later: "Snapshot") -> Iterator[tuple[ChangeKind, RowKey]]:
        """What has happened to the rows until `later`."""
        for key, cells in later.rows.items():
            if key not in self.rows:
                yield ChangeKind.ENTER, key
            elif self.rows[key] != cells:
                yield ChangeKind.CHANGE, key
        for key in self.rows:
            if key not in later.rows:
                yield ChangeKind.LEAVE, key


NOTHING_READ = Snapshot({}, frozenset(), {})


def keyed(rows: Iterable[msgspec.Raw]) -> Iterator[tuple[RowKey, msgspec.Raw]]:
    """Rows of which the first cells are the item and its cell (status and value, as in every answer)."""
    for row in rows:
        item, cell, *others = _cells_in(row)
        key = RowKey(str(_cell_in(cell)[1]), str(_cell_in(item)[1]))
        yield key, msgspec.Raw(b"[" + b",".join(bytes(each) for each in others) + b"]")
