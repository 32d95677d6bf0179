"""How each kind of cell is asked. A new kind is a new module here and a line in `open_adapter`."""

from cells.adapters.native import NativeAdapter
from cells.adapters.nova_api import NovaApiAdapter
from cells.errors import CellUnreachableError, DatabaseUrlError, UpstreamError
from cells.model import Cell, CellAdapter, CellKind, ChangelogAdapter


def open_adapter(cell: Cell, *, statement_timeout_s: float | None = None) -> CellAdapter:
    """The adapter for `cell`; connects only when it is asked.

    Raises CellUnreachableError for a kind of cell that has no adapter, or a URL that cannot be used.
    """
    if cell.kind is CellKind.NOVA_API:
        try:
            return NovaApiAdapter(cell, timeout_s=statement_timeout_s)
        except UpstreamError as error:
            raise CellUnreachableError(cell.name, str(error)) from error
    return _open_native(cell, statement_timeout_s)


def open_changelog_adapter(cell: Cell, *, statement_timeout_s: float | None = None) -> ChangelogAdapter:
    """As `open_adapter`, for a kind of cell that numbers its changes."""
    return _open_native(cell, statement_timeout_s)


def _open_native(cell: Cell, statement_timeout_s: float | None) -> NativeAdapter:
    if cell.kind is not CellKind.NATIVE:
        raise CellUnreachableError(cell.name, f"there is no adapter for cells of kind '{cell.kind}'")
    try:
        return NativeAdapter(cell, statement_timeout_s=statement_timeout_s)
    except DatabaseUrlError as error:
        raise CellUnreachableError(cell.name, error.reason) from error
