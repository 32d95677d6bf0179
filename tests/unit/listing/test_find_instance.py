"""Where a page begins that follows an instance: who is asked for it, in which order, and who may not know it."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

import msgspec
import pytest

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.errors import CellUnreachableError
from fleetlight.cells.fleet.fleet import InstanceMapping
from fleetlight.cells.model import Cell, InstanceRow
from fleetlight.indexer.backends.base import CellProgress, FoundRow
from fleetlight.indexer.errors import IndexRequestError, IndexUnavailableError
from fleetlight.listing.answer import Consistency
from fleetlight.listing.errors import CellDownError, MarkerNotFoundError
from fleetlight.listing.find_instance import InstanceFinder
from fleetlight.listing.index_gateway import IndexGateway
from fleetlight.listing.settings import SearchSettings
from fleetlight.listing.sources import CellFailure
from fleetlight.query.filters import Eq
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import SortKey, SortOrder
from fleetlight.resources.clock import system_clock
from fleetlight.resources.instance import INSTANCE_FIELDS
from fleetlight.views.projection import FieldValues, Projection
from tests.support.played.played_listing import PlayedReader, PlayedSearcher

T = TypeVar("T")
UUID = "7a1d5a0a-90b1-4f36-8f6e-000000000001"
NATIVE, OTHER = (Cell(name, name, CellKind.NATIVE, "", "") for name in ("c0", "c1"))
REMOTE = Cell("r0", "r0", CellKind.NOVA_API, "", "")
ORDER = SortOrder.of(INSTANCE_FIELDS, [SortKey("host")])
INDEXED, LIVE = ("of the index", UUID), ("of the cell", UUID)


class Fleet(PlayedReader, PlayedSearcher):
    """Cells of which one has the instance, or had it, and an index; notes who is asked for it."""

    def __init__(
        self,
        cells: Sequence[Cell] = (NATIVE, OTHER),
        *,
        mapped: str | None = "demo",
        lives: bool = True,
        is_indexed: bool = True,
        down: Collection[str] = (),
        stale: Collection[str] = (),
    ) -> None:
        self._cells = cells
        self._mapped = mapped
        self._lives = lives
        self._is_indexed = is_indexed
        self._down = down
        self._stale = stale
        self.asked: list[str] = []
        self.fails: Exception | None = None

    def mapping_of(self, uuid: str) -> InstanceMapping | None:
        self.asked.append("fleet")
        return None if self._mapped is None else InstanceMapping(uuid, self._cells[0].uuid, self._mapped, "ada", 0)

    async def cells(self) -> tuple[Cell, ...]:
        return tuple(self._cells)

    async def find(self, cell_uuid: str, uuid: str, timeout_s: float) -> InstanceRow | None:
        self.asked.append(cell_uuid)
        if cell_uuid in self._down:
            raise CellUnreachableError(cell_uuid, "down")
        if not self._lives or cell_uuid != self._cells[0].uuid:
            return None
        values = {"host": LIVE[0], "project_id": "demo", "user_id": "ada", "created_at": 0, "deleted": False}
        return InstanceRow(cell_uuid, 1, {"uuid": uuid, **values})

    async def search(self, request: PageRequest, cells: Collection[str], projection: Projection) -> Sequence[FoundRow]:
        self.asked.append("index")
        assert (request.filter, request.limit, set(cells)) == (Eq("uuid", UUID), 1, {c.uuid for c in self._cells})
        if self.fails is not None:
            raise self.fails
        item = msgspec.json.encode(["demo", "ada", *INDEXED])
        return [FoundRow((UUID,), item)] if self._is_indexed else []

    async def progress(self) -> Mapping[str, CellProgress]:
        now = system_clock()
        return {c.uuid: CellProgress(c.uuid, 7, 0 if c.uuid in self._stale else now, True) for c in self._cells}


def found(
    fleet: Fleet,
    consistency: Consistency = Consistency.BOUNDED,
    reader: str = "demo",
    down: dict[str, CellFailure] | None = None,
) -> tuple[tuple[object, ...], list[str]]:
    """The position, and who was asked for it."""

    async def find() -> tuple[object, ...]:
        settings = SearchSettings(enabled=True, index_deadline_s=60)
        finder = InstanceFinder(fleet, fleet.mapping_of, IndexGateway(fleet, settings), settings)
        return await finder.position_of(
            UUID, ORDER, consistency, may_see=lambda project_id, _: project_id == reader, down=down
        )

    return asyncio.run(find()), fleet.asked


@pytest.mark.parametrize(
    ("fleet", "consistency", "expected"),
    [
        (Fleet(), Consistency.BOUNDED, (INDEXED, ["index"])),
        (Fleet(stale=["c0"]), Consistency.ANY, (INDEXED, ["index"])),
        (Fleet(), Consistency.STRONG, (LIVE, ["fleet", "c0"])),
        (Fleet(stale=["c0"]), Consistency.BOUNDED, (LIVE, ["fleet", "c0"])),
        (Fleet(stale=["c1"]), Consistency.BOUNDED, (INDEXED, ["fleet", "index"])),
        (Fleet(is_indexed=False), Consistency.BOUNDED, (LIVE, ["index", "fleet", "index", "c0"])),
        (Fleet(lives=False), Consistency.STRONG, (INDEXED, ["fleet", "c0", "index"])),
        (Fleet(mapped=None, stale=["c0"]), Consistency.BOUNDED, (INDEXED, ["fleet", "index"])),
        (
            Fleet((REMOTE, NATIVE), mapped=None, is_indexed=False),
            Consistency.STRONG,
            (LIVE, ["fleet", "index", "r0", "c0", "r0"]),
        ),
        (
            Fleet((REMOTE, NATIVE), mapped=None, is_indexed=False, stale=["r0"]),
            Consistency.BOUNDED,
            (LIVE, ["fleet", "index", "r0", "r0"]),
        ),
        (
            Fleet(mapped=None, is_indexed=False, stale=["c0"]),
            Consistency.BOUNDED,
            (LIVE, ["fleet", "index", "c0", "c0"]),
        ),
    ],
    ids=lambda value: "",
)
def test_position_comes_from_where_the_rows_of_its_cell_come_from(
    fleet: Fleet, consistency: Consistency, expected: object
) -> None:
    assert found(fleet, consistency) == expected


def test_position_of_an_instance_whose_cell_is_down_is_that_of_the_index() -> None:
    down: dict[str, CellFailure] = {}
    assert found(Fleet(down=["c0"]), Consistency.STRONG, down=down) == (INDEXED, ["fleet", "c0", "index"])
    assert set(down) == {"c0"}
    with pytest.raises(CellDownError, match=r"cannot be reached\. Try again later") as raised:
        found(Fleet(down=["c0"], is_indexed=False), Consistency.STRONG)
    assert raised.value.cell == "c0"


def test_cell_that_cannot_say_whether_it_has_the_instance_is_not_taken_for_one_without_it() -> None:
    with pytest.raises(CellDownError):
        found(Fleet((REMOTE, NATIVE), mapped=None, is_indexed=False, down=["r0"]))


@pytest.mark.parametrize("fleet", [Fleet(), Fleet(stale=["c0"]), Fleet(lives=False, mapped=None, is_indexed=False)])
def test_instance_of_another_project_is_as_one_that_does_not_exist(fleet: Fleet) -> None:
    with pytest.raises(MarkerNotFoundError, match=rf"^marker \[{UUID}\] not found$") as raised:
        found(fleet, reader="other")
    assert raised.value.marker == UUID
    assert "c0" not in fleet.asked, "a cell would tell by its time"


async def test_index_that_fails_when_it_is_looked_into_is_off_for_the_reason_that_it_gave() -> None:
    fleet = Fleet()
    index = IndexGateway(fleet, SearchSettings(enabled=True, index_deadline_s=60))
    wanted, projection = Eq("uuid", UUID), FieldValues(INSTANCE_FIELDS, ("uuid",))
    assert await index.find(wanted, {"c0", "c1"}, projection) is not None
    fleet.fails = IndexUnavailableError("connection refused")
    assert await index.find(wanted, {"c0", "c1"}, projection) is None
    assert index.safe_connect.reason == "connection refused"
    assert await index.find(wanted, {"c0", "c1"}, projection) is None
    assert fleet.asked == ["index", "index"], "it is not asked any more"


class Probed(Fleet):
    """An index that has answered for its progress each time, and may have lost its instances."""

    def __init__(self) -> None:
        super().__init__()
        self.searched: list[tuple[PageRequest, Collection[str]]] = []

    async def search(self, request: PageRequest, cells: Collection[str], projection: Projection) -> Sequence[FoundRow]:
        self.searched.append((request, cells))
        if len(self.searched) == 1:
            raise IndexRequestError("no such index")
        return []


async def test_probe_asks_for_all_that_a_list_needs_of_the_index_and_for_no_row() -> None:
    probed = Probed()
    index = IndexGateway(probed, SearchSettings(enabled=True, index_deadline_s=60))
    with pytest.raises(IndexRequestError):
        await index._probe()
    await index._probe()
    request, cells = probed.searched[1]
    assert request.limit == 1
    [nobody] = cells
    assert request.filter == Eq("uuid", nobody)
