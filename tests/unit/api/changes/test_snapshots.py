"""Random answers of cells that come and go: who applies what is between two snapshots has the later one."""

from collections.abc import Mapping, Sequence

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from fleetlight.api.changes.comparisons import NOTHING_READ, RowKey, Snapshot, keyed
from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.model import Cell
from fleetlight.listing.answer import CellAnswer, Page, Route
from fleetlight.listing.watches.watched_list import ChangeKind

CELLS = {name: Cell(name, name, CellKind.NATIVE, "", "") for name in ("north", "east")}
Rows = Mapping[str, Mapping[str, int]]

rows = st.dictionaries(st.sampled_from(["1", "2"]), st.integers(0, 1))
answers = st.tuples(
    st.fixed_dictionaries(dict.fromkeys(CELLS, rows)), st.sets(st.sampled_from(list(CELLS))), st.booleans()
)


def proof(away: set[str], names: Sequence[str] = tuple(CELLS), *, has_all_cells: bool = True) -> Page:
    cells = [
        CellAnswer(CELLS[name], Route.SKIPPED if name in away else Route.LIVE, name not in away, failure=None)
        for name in names
    ]
    return Page(b"", 0, None, cells, has_all_cells)


def read(of_cells: Rows, away: set[str]) -> dict[RowKey, msgspec.Raw]:
    """What the cells that are there answer."""
    found = (
        (name, key, value) for name, of_cell in of_cells.items() if name not in away for key, value in of_cell.items()
    )
    return {RowKey(name, key): msgspec.Raw(b"[[0,%d]]" % value) for name, key, value in found}


def applied(copy: Mapping[RowKey, bytes], before: Snapshot, later: Snapshot) -> dict[RowKey, bytes]:
    result = dict(copy)
    for kind, key in before.changes_to(later):
        assert (key in result) is (kind is not ChangeKind.ENTER)
        if kind is ChangeKind.LEAVE:
            del result[key]
        else:
            result[key] = bytes(later.rows[key])
    return result


@given(st.lists(answers, max_size=6))
def test_copy_has_what_each_cell_said_when_it_answered_last(said: Sequence[tuple[Rows, set[str], bool]]) -> None:
    snapshot, copy = NOTHING_READ, dict[RowKey, bytes]()
    last: dict[str, Mapping[str, int]] = {}
    for of_cells, away, has_all_cells in said:
        later = snapshot.taken(read(of_cells, away), proof(away, has_all_cells=has_all_cells))
        copy = applied(copy, snapshot, later)
        last |= {name: of_cells[name] for name in CELLS if name not in away}
        expected = {
            RowKey(name, key): b"[[0,%d]]" % value for name, of_cell in last.items() for key, value in of_cell.items()
        }
        assert copy == {key: bytes(cells) for key, cells in later.rows.items()} == expected
        assert later.is_complete is (has_all_cells and not away)
        assert later.known == last.keys()
        snapshot = later


def test_rows_of_a_cell_that_has_left_are_gone_unless_it_is_not_known_which_cells_there_are() -> None:
    both = NOTHING_READ.taken(read({"north": {"1": 0}, "east": {"1": 0}}, set()), proof(set()))
    alone = read({"north": {"1": 0}}, set())
    assert both.taken(alone, proof(set(), ["north"])).rows.keys() == {RowKey("north", "1")}
    unsure = both.taken(alone, proof(set(), ["north"], has_all_cells=False))
    assert (unsure.rows.keys(), unsure.is_complete) == (both.rows.keys(), False)


def test_nothing_leaves_while_it_is_not_known_whom_to_ask() -> None:
    before = NOTHING_READ.taken(read({"north": {"1": 0}, "east": {}}, set()), proof(set()))
    later = before.without_fleet("the fleet database is away")
    assert list(before.changes_to(later)) == []
    assert (later.is_complete, later.away) == (False, dict.fromkeys(CELLS, "the fleet database is away"))


def test_row_is_named_by_its_cell_and_its_item() -> None:
    [(key, cells)] = keyed([msgspec.Raw(b'[[0,7],[0,"north"],[0,"queued"],[3,null]]')])
    assert (key, bytes(cells)) == (RowKey("north", "7"), b'[[0,"queued"],[3,null]]')
