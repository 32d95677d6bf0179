"""A server that has a row in two cells of Nova, of which one is hidden: filled from nothing, in every order.

While Nova resizes a server across cells both have a row of it. The one in the cell that the mapping names is shown;
they swap when the resize has got to the other cell, and again when it is reverted.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import combinations_with_replacement, permutations
from pathlib import Path

import pytest
import sqlalchemy

from fleetlight.cells.kinds.nova_db import tables
from fleetlight.indexer.backends.base import IndexWriter
from fleetlight.indexer.backends.opening import open_writer
from fleetlight.indexer.backends.settings import IndexSettings
from fleetlight.indexer.reconcile.reconcile import verify
from tests.support.fleets.documents import CREATED_AT, make_uuid
from tests.support.fleets.nova_fleet import NovaFleet, nova_fleet
from tests.support.fleets.nova_tables import SmallNova, small_nova
from tests.support.servers.index_server import index_at

BACKENDS = ["sqlite", pytest.param("elasticsearch", marks=pytest.mark.elasticsearch)]
CELLS = ("cell0", "cell1")
UUID = make_uuid(1)
LIST = "/v2.1/servers/detail?all_tenants=1"


class Resize:
    """A server in two cells, and beside it one in each alone; cell1 is where it is being resized to."""

    def __init__(self, nova: SmallNova) -> None:
        self.urls = nova.urls
        self.home = "cell0"
        self._nova = nova
        for number, cell in ((1, "cell0"), (2, "cell0"), (3, "cell1")):
            nova.add(cell, number)
        self._add_copy()

    def begin_again(self) -> None:
        """As at first."""
        self.confirm()
        if self.home != "cell0":
            self._forget("cell1")
            self._add_row("cell0", hidden=False)
            self._map("cell0")
        self._add_copy()

    @property
    def swap(self) -> list[Callable[[], None]]:
        """What Nova does to have the other row shown, in its order."""
        source, target = self.home, self._other
        return [
            lambda: self._hide(target, hidden=False),
            lambda: self._map(target),
            lambda: self._hide(source, hidden=True),
        ]

    def confirm(self) -> None:
        """Forget the row that is hidden."""
        self._forget(self._other)

    def remove_shown(self) -> None:
        """Leave the row that is hidden alone."""
        self._forget(self.home)

    @property
    def _other(self) -> str:
        return next(cell for cell in CELLS if cell != self.home)

    def _add_copy(self) -> None:
        self._add_row("cell1", hidden=True)

    def _add_row(self, cell: str, *, hidden: bool) -> None:
        row = {"id": 100, "uuid": UUID, "deleted": 0, "hidden": hidden, "project_id": "demo", "user_id": "ada"}
        values = {"display_name": f"web in {cell}", "vm_state": "active", "created_at": CREATED_AT}
        self._nova.insert(cell, tables.instances, row | values)

    def _forget(self, cell: str) -> None:
        rows = tables.instances
        self._nova.execute(cell, sqlalchemy.delete(rows).where(rows.c.uuid == UUID))

    def _hide(self, cell: str, *, hidden: bool) -> None:
        rows = tables.instances
        self._nova.execute(cell, sqlalchemy.update(rows).where(rows.c.uuid == UUID).values(hidden=hidden))

    def _map(self, cell: str) -> None:
        mappings = tables.instance_mappings
        statement = sqlalchemy.update(mappings).where(mappings.c.instance_uuid == UUID)
        self._nova.execute("api", statement.values(cell_id=int(cell[-1]) + 1))
        self.home = cell


@pytest.fixture
def resize(tmp_path: Path) -> Resize:
    return Resize(small_nova(tmp_path))


@pytest.fixture(params=BACKENDS)
def fleet(request: pytest.FixtureRequest, tmp_path: Path, resize: Resize) -> Iterator[NovaFleet]:
    index = IndexSettings(backend="sqlite", path=tmp_path / "index")
    if request.param == "elasticsearch":
        index = index_at(
            request.getfixturevalue("elasticsearch_url"),
            request.getfixturevalue("elasticsearch_prefix"),
        )
    with nova_fleet(tmp_path, resize.urls, index=index) as made:
        yield made


@pytest.fixture
def writer(fleet: NovaFleet) -> Iterator[IndexWriter]:
    with closing(open_writer(fleet.index)) as opened:
        opened.prepare()
        yield opened


def owner(fleet: NovaFleet, writer: IndexWriter) -> str | None:
    """The name of the cell whose document is there, as lists show it."""
    document = writer.read([UUID]).get(UUID)
    if document is None or document.record["hidden"]:
        return None
    return next(name for name, cell in fleet.cells.items() if cell.uuid == document.cell_uuid)


def is_found(fleet: NovaFleet, writer: IndexWriter, resize: Resize) -> bool:
    """Whether a list has the server: by its document, or since it asks the cell that shows it."""
    progress = writer.load_progress().get(fleet.cells[resize.home].uuid)
    return owner(fleet, writer) is not None or progress is None or not progress.is_complete


@pytest.mark.parametrize("order", list(permutations(CELLS)))
def test_document_is_that_of_the_shown_row_in_whatever_order_cells_are_read(
    fleet: NovaFleet, writer: IndexWriter, resize: Resize, order: tuple[str, ...]
) -> None:
    fleet.compare(writer, *order)
    assert owner(fleet, writer) == "cell0"
    fleet.compare(writer, *order)
    assert owner(fleet, writer) == "cell0"
    for step in resize.swap:
        step()
    fleet.compare(writer, *order)
    assert owner(fleet, writer) == "cell1"
    for step in resize.swap:
        step()
    fleet.compare(writer, *order)
    assert owner(fleet, writer) == "cell0"
    resize.confirm()
    fleet.compare(writer, *order)
    assert owner(fleet, writer) == "cell0"


@pytest.mark.parametrize("order", list(permutations(CELLS)))
@pytest.mark.parametrize("ends", [False, True])
def test_rows_that_swap_between_readings_are_never_lacking(
    fleet: NovaFleet, writer: IndexWriter, resize: Resize, order: tuple[str, ...], ends: bool
) -> None:
    """Both cells are read twice, and meanwhile the rows swap: partly before one reading, partly before another.

    The index has the server, whatever its resize has got to, or is not complete of the cell that shows it.
    ends: whether the hidden row is removed at once.
    """
    for begun, ended in combinations_with_replacement(range(4), 2):
        resize.begin_again()
        for cell in fleet.cells.values():
            writer.remove_cell(cell.uuid)
        steps = resize.swap
        for number, name in enumerate(order * 2):
            if number == begun:
                steps[0]()
                steps[1]()
            if number == ended:
                steps[2]()
                if ends:
                    resize.confirm()
            fleet.compare(writer, name)
            assert is_found(fleet, writer, resize), f"reading {number}, swapping from {begun} to {ended}"
        fleet.compare(writer, *order)
        assert owner(fleet, writer) == "cell1"


@pytest.mark.parametrize("order", list(permutations(CELLS)))
def test_rows_that_swap_while_both_cells_are_read_for_the_first_time_are_not_lacking(
    fleet: NovaFleet, writer: IndexWriter, resize: Resize, order: tuple[str, ...]
) -> None:
    """The target is read before the swap and the source after it: both rows are hidden then."""

    def swap_and_compare() -> None:
        for step in resize.swap:
            step()
        fleet.compare(writer, "cell0")

    fleet.compare(writer, "cell1", after_page=swap_and_compare)
    assert is_found(fleet, writer, resize)
    fleet.compare(writer, *order)
    assert owner(fleet, writer) == "cell1"


def test_rows_that_swapped_after_one_cell_was_read_are_not_lacking_when_the_other_one_is(
    fleet: NovaFleet, writer: IndexWriter, resize: Resize
) -> None:
    fleet.compare(writer, "cell1")
    for step in resize.swap:
        step()
    fleet.compare(writer, "cell0")
    assert is_found(fleet, writer, resize)
    fleet.compare(writer, "cell1")
    assert owner(fleet, writer) == "cell1"


def test_hidden_row_that_is_read_while_the_shown_one_is_written_does_not_take_its_place(
    fleet: NovaFleet, writer: IndexWriter
) -> None:
    """The version that it would have is the higher one."""
    fleet.compare(writer, "cell1", ahead_s=60, before_write=lambda: fleet.compare(writer, "cell0"))
    assert owner(fleet, writer) == "cell0"


def test_of_two_rows_that_are_shown_the_mapping_says_which_one_counts(
    fleet: NovaFleet, writer: IndexWriter, resize: Resize
) -> None:
    """Nova shows the one before it hides the other, or was killed in between."""
    for step in resize.swap[:2]:
        step()
    fleet.compare(writer, "cell0", ahead_s=60, before_write=lambda: fleet.compare(writer, "cell1"))
    assert owner(fleet, writer) == "cell1"


@pytest.mark.parametrize("order", list(permutations(CELLS)))
def test_verification_agrees_with_hidden_rows_and_repairs_nothing_for_ever(
    fleet: NovaFleet, writer: IndexWriter, resize: Resize, order: tuple[str, ...]
) -> None:
    fleet.compare(writer, *order)

    def differences(*, repair: bool) -> list[int]:
        found = []
        for name in order:
            with fleet.comparison(writer, name, repair=repair) as comparison:
                found.append(len(verify(comparison, repair=repair).differences))
        return found

    assert differences(repair=False) == [0, 0]
    for step in resize.swap:
        step()
    assert differences(repair=False) == [1, 1], "the old document is the one cell's no more, and not yet the other's"
    assert sorted(differences(repair=True)) == [0, 1]
    assert differences(repair=True) == [0, 0]
    assert differences(repair=False) == [0, 0]


def test_hidden_row_alone_is_neither_indexed_nor_missed(fleet: NovaFleet, writer: IndexWriter, resize: Resize) -> None:
    resize.remove_shown()
    for _ in range(2):
        fleet.compare(writer, *CELLS[::-1])
    assert all(writer.load_progress()[fleet.cells[name].uuid].is_complete for name in CELLS)
    for repair in (False, True, False):
        for name in CELLS[::-1]:
            with fleet.comparison(writer, name, repair=repair) as comparison:
                found = verify(comparison, repair=repair)
            assert UUID not in {each.uuid for each in found.differences}
    assert owner(fleet, writer) is None


@pytest.mark.parametrize("order", list(permutations(CELLS)))
def test_list_by_the_index_is_the_list_by_the_cells_and_complete(
    fleet: NovaFleet, writer: IndexWriter, order: tuple[str, ...]
) -> None:
    fleet.fill_index(order)
    by_index, by_cells = (fleet.api(uses_index=uses_index) for uses_index in (True, False))
    expected = by_cells.get(LIST).json()["servers"]
    assert {server["id"] for server in expected} == {make_uuid(number) for number in (1, 2, 3)}
    for headers in ({}, {"Fleetlight-Consistency": "any"}):
        answer = by_index.get(LIST, headers)
        assert answer.headers["Fleetlight-Complete"] == "true"
        assert "=live" not in answer.headers["Fleetlight-Route"]
        assert answer.json()["servers"] == expected
