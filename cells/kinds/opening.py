"""Creates the adapter of a cell. A new kind of cell is a new module here and a line in `open_adapter`."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import assert_never

from fleetlight.cells.capabilities import CellKind
from fleetlight.cells.errors import CellUnreachableError, DatabaseUrlError, UpstreamError
from fleetlight.cells.kinds.ganeti.adapter import GanetiAdapter
from fleetlight.cells.kinds.native.adapter import NativeAdapter
from fleetlight.cells.kinds.nova_api.adapter import NovaApiAdapter
from fleetlight.cells.kinds.nova_db.adapter import NovaDbAdapter
from fleetlight.cells.kinds.nova_db.build_requests import NovaBuildRequests
from fleetlight.cells.model import Cell, CellAdapter
from fleetlight.resources.clock import Clock, system_clock


def open_adapter(cell: Cell, *, statement_timeout_s: float | None = None, clock: Clock = system_clock) -> CellAdapter:
    """The adapter for `cell`, which connects at its first query.

    clock: gives rows without revisions their versions. Raises CellUnreachableError for a URL that cannot be used.
    """
    with _usable(cell):
        match cell.kind:
            case CellKind.NOVA_API:
                return NovaApiAdapter(cell, timeout_s=statement_timeout_s, clock=clock)
            case CellKind.GANETI:
                return GanetiAdapter(cell, timeout_s=statement_timeout_s, clock=clock)
            case CellKind.NOVA_DB if cell.is_before_cells:
                return NovaBuildRequests(cell, statement_timeout_s=statement_timeout_s, clock=clock)
            case CellKind.NOVA_DB:
                return NovaDbAdapter(cell, statement_timeout_s=statement_timeout_s, clock=clock)
            case CellKind.NATIVE:
                return NativeAdapter(cell, statement_timeout_s=statement_timeout_s)
            case _:
                assert_never(cell.kind)


def open_changelog_adapter(cell: Cell) -> NativeAdapter:
    """As `open_adapter`, for a kind of cell that numbers its changes, without a limit for statements.

    Raises CellUnreachableError.
    """
    if not cell.can.numbers_changes:
        raise CellUnreachableError(cell.name, f"nothing here numbers the changes of cells of kind '{cell.kind}'")
    with _usable(cell):
        return NativeAdapter(cell)


@contextmanager
def _usable(cell: Cell) -> Iterator[None]:
    try:
        yield
    except DatabaseUrlError as error:
        raise CellUnreachableError(cell.name, error.reason) from error
    except UpstreamError as error:
        raise CellUnreachableError(cell.name, str(error)) from error
