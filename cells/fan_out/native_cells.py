"""The native cells of a fleet, for callers that read more from them than other kinds of cells have."""

from collections.abc import Callable, Collection, Mapping, Sequence

from sqlalchemy import Engine

from fleetlight.cells.database.engines import cell_failures
from fleetlight.cells.fan_out.cell_pool import CellPool
from fleetlight.cells.kinds.native.adapter import NativeAdapter
from fleetlight.cells.kinds.native.nodes import ComputeService, read_services
from fleetlight.cells.model import Cell, InstanceRow
from fleetlight.cells.settings import DEFAULT_MAX_ATTEMPTS
from fleetlight.query.filters import Eq, In, all_of
from fleetlight.query.page import PageRequest
from fleetlight.query.sort import SortOrder
from fleetlight.resources.instance import INSTANCE_FIELDS


class NativeCells:
    """Reads what only native cells have; several threads may use it.

    list_cells: reads the registry (`Fleet.cells`). pool: has the cells open, once for the process.
    max_attempts: how many hosts an instance may try; for changes (fleetlight.cells.settings).
    """

    def __init__(
        self,
        list_cells: Callable[[], Sequence[Cell]],
        pool: CellPool,
        *,
        max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    ) -> None:
        self._list_cells = list_cells
        self.pool = pool
        self.max_attempts = max_attempts

    def cells(self) -> Sequence[Cell]:
        """Every native cell, including disabled ones. Raises FleetUnreachableError."""
        return [cell for cell in self._list_cells() if cell.can.takes_changes]

    def cells_and_others(self) -> tuple[Sequence[Cell], Sequence[Cell]]:
        """All native cells, and all other cells that have hosts. Raises FleetUnreachableError."""
        cells = self._list_cells()
        others = [cell for cell in cells if not cell.can.takes_changes and not cell.is_before_cells]
        return [cell for cell in cells if cell.can.takes_changes], others

    def engine(self, cell: Cell) -> Engine:
        """The open database of `cell`. Raises CellUnreachableError if its address cannot be used."""
        return self.adapter(cell).engine

    def services(self, cell: Cell) -> Sequence[ComputeService]:
        """The compute services of `cell`, by host. Raises CellUnreachableError."""
        with cell_failures(cell.name), self.engine(cell).connect() as connection:
            return read_services(connection)

    def find(self, cell: Cell, instance_uuid: str) -> InstanceRow | None:
        """An instance in its cell, which may be deleted. Raises CellUnreachableError."""
        return self.adapter(cell).find(instance_uuid)

    def hosts_of(self, cell: Cell, instance_uuids: Collection[str]) -> Mapping[str, str | None]:
        """The hosts of those instances that exist and are not deleted, by uuid. Raises CellUnreachableError."""
        wanted = all_of(In("uuid", tuple(instance_uuids)), Eq("deleted", False))
        by_uuid = SortOrder.of(INSTANCE_FIELDS, ())
        rows = self.adapter(cell).read_page(PageRequest(wanted, by_uuid, len(instance_uuids), fields=("host",)))
        return {row.uuid: row.record["host"] for row in rows}

    def adapter(self, cell: Cell) -> NativeAdapter:
        """The adapter of `cell`. Raises CellUnreachableError if its address cannot be used."""
        adapter = self.pool.opened(cell)
        if not isinstance(adapter, NativeAdapter):
            raise TypeError(f"cell {cell.name} is not a native one")
        return adapter
