"""What lists ask, cells and an index, of which a test plays only the part that it is about."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from fleetlight.cells.model import Cell, CellAdapter, InstanceRow
from fleetlight.indexer.backends.base import CellProgress, FoundPage, FoundRow
from fleetlight.indexer.backends.seal import CHECKED_BY_SEARCHES, SealState
from fleetlight.query.counts import CountRequest, Counts
from fleetlight.query.page import PageRequest
from fleetlight.resources.fields import Record
from fleetlight.views.projection import Projection

T = TypeVar("T")


def not_asked() -> AssertionError:
    return AssertionError("nobody asks for this here")


class PlayedReader:
    """fleetlight.listing.sources.CellReader. Nothing is asked of it but what a test overrides."""

    async def cells(self) -> tuple[Cell, ...]:
        raise not_asked()

    async def knows_all_cells(self, cell_uuids: Collection[str] = ()) -> bool:
        return True

    async def read_page(self, cell_uuid: str, request: PageRequest, timeout_s: float) -> Sequence[InstanceRow]:
        raise not_asked()

    async def find(self, cell_uuid: str, uuid: str, timeout_s: float) -> InstanceRow | None:
        raise not_asked()

    async def ask(self, cell_uuid: str, question: Callable[[CellAdapter], T], timeout_s: float) -> T:
        raise not_asked()

    def hanging(self) -> Collection[str]:
        return ()


class PlayedSearcher:
    """fleetlight.indexer.backends.base.IndexSearcher of a seal that holds. As PlayedReader."""

    async def search(self, request: PageRequest, cells: Collection[str], projection: Projection) -> Sequence[FoundRow]:
        raise not_asked()

    async def page(self, request: PageRequest, cells: Collection[str], projection: Projection) -> FoundPage:
        raise not_asked()

    async def count(self, request: CountRequest, cells: Collection[str]) -> Mapping[str, Counts]:
        raise not_asked()

    async def seal(self) -> SealState:
        return CHECKED_BY_SEARCHES

    async def items(self, item_type: str, cells: Collection[str]) -> Mapping[str, Sequence[Record]]:
        return {}

    async def progress(self) -> Mapping[str, CellProgress]:
        raise not_asked()

    async def close(self) -> None: ...
