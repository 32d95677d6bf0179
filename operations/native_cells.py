"""The native cells of a fleet, for those who change them: each database is opened once and kept open."""

from collections.abc import Callable, Collection, Mapping, Sequence
from threading import Lock
from typing import Any

from sqlalchemy import Engine, select

from cells.capabilities import CellKind
from cells.database.engines import cell_failures, create_database_engine
from cells.errors import CellUnreachableError, DatabaseUrlError
from cells.fleet.fleet import Fleet
from cells.kinds.native.instance_migrations import finished_migration
from cells.kinds.native.instance_rows import read_row
from cells.kinds.native.nodes import CellNodes
from cells.model import Cell, InstanceRow
from cells.tables import instances
from operations.actions.accepting import Acceptance


class NativeCells:
    """Opens native cells; may be used by several threads.

    list_cells: reads the registry (`Fleet.cells`). statement_timeout_s: PostgreSQL ends a statement that takes longer.
    """

    def __init__(self, list_cells: Callable[[], Sequence[Cell]], *, statement_timeout_s: float | None = None) -> None:
        self._list_cells = list_cells
        self._statement_timeout_s = statement_timeout_s
        self._mutex = Lock()
        self._opened: dict[str, tuple[Cell, Engine]] = {}

    @property
    def timeout_s(self) -> float | None:
        """How long a statement may take; None: as long as it takes."""
        return self._statement_timeout_s

    def cells(self) -> Sequence[Cell]:
        """Every native cell, disabled ones too. Raises FleetUnreachableError."""
        return [cell for cell in self._list_cells() if cell.kind is CellKind.NATIVE]

    def engine(self, cell: Cell) -> Engine:
        """The open database of `cell`. Raises CellUnreachableError when its address cannot be used."""
        with self._mutex:
            opened = self._opened.get(cell.uuid)
            if opened is not None and opened[0].database_url == cell.database_url:
                return opened[1]
            if opened is not None:
                opened[1].dispose()
            try:
                engine = create_database_engine(
                    cell.database_url, must_exist=True, statement_timeout_s=self._statement_timeout_s
                )
            except DatabaseUrlError as error:
                raise CellUnreachableError(cell.name, error.reason) from error
            self._opened[cell.uuid] = (cell, engine)
            return engine

    def nodes(self, cell: Cell) -> CellNodes:
        """The hosts of `cell`. Raises CellUnreachableError when its address cannot be used."""
        return CellNodes(self.engine(cell), cell)

    def acceptance(self, fleet: Fleet, cell: Cell) -> Acceptance:
        """What accepts orders for `cell`. Raises CellUnreachableError when its address cannot be used."""
        return Acceptance(self.engine(cell), fleet, cell)

    def find(self, cell: Cell, instance_uuid: str) -> InstanceRow | None:
        """An instance as its cell has it, also a deleted one. Raises CellUnreachableError."""
        engine = self.engine(cell)
        with cell_failures(cell.name), engine.connect() as connection:
            return read_row(connection, cell, instance_uuid)

    def hosts_of(self, cell: Cell, instance_uuids: Collection[str]) -> Mapping[str, str | None]:
        """The hosts of those instances that are there, and not deleted, by their uuids. Raises CellUnreachableError."""
        engine, columns = self.engine(cell), instances.c
        wanted = select(columns.uuid, columns.host).where(columns.uuid.in_(instance_uuids), columns.deleted.is_(False))
        with cell_failures(cell.name), engine.connect() as connection:
            return {row.uuid: row.host for row in connection.execute(wanted)}

    def flavor_before_resize(self, cell: Cell, instance_uuid: str) -> Mapping[str, Any] | None:
        """The flavor (Nova's FlavorPayload) that a resized instance gets back when it is reverted.

        Raises NotResizedError, CellUnreachableError.
        """
        engine = self.engine(cell)
        with cell_failures(cell.name), engine.connect() as connection:
            flavor: Mapping[str, Any] | None = finished_migration(connection, instance_uuid).old_instance["flavor"]
        return flavor

    def close(self) -> None:
        with self._mutex:
            opened, self._opened = self._opened, {}
        for _, engine in opened.values():
            engine.dispose()
