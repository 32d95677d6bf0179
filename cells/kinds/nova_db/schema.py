"""Checks that databases have the tables and columns of Nova that this program reads."""

from collections.abc import Sequence
from functools import partial

from sqlalchemy import Connection, Table, inspect, select
from sqlalchemy.exc import DBAPIError, NoSuchTableError

from fleetlight.cells.database.engines import external_cell_failures
from fleetlight.cells.errors import CellUnreachableError, DatabaseUrlError
from fleetlight.cells.kinds.nova_db.databases import open_nova_database, read
from fleetlight.cells.kinds.nova_db.tables import API_TABLES, CELL_TABLES
from fleetlight.cells.model import Cell


def check_schema(cell: Cell) -> None:
    """Raises CellUnreachableError with the tables or columns that the databases of a cell of Nova lack."""
    wanted = {cell.database_url: () if cell.is_before_cells else CELL_TABLES}
    if cell.api_database_url:
        wanted[cell.api_database_url] = API_TABLES
    for url, tables in wanted.items():
        lacking = _lacking(cell, url, tables)
        if lacking:
            more = f" and {len(lacking) - 1} more" if len(lacking) > 1 else ""
            raise CellUnreachableError(
                cell.name,
                f"its schema is not known here: there is no {lacking[0]}{more}; Nova's schemas are, from Wallaby on",
            )


def _lacking(cell: Cell, url: str, tables: Sequence[Table]) -> list[str]:
    try:
        engine = open_nova_database(url)
    except DatabaseUrlError as error:
        raise CellUnreachableError(cell.name, error.reason) from error
    try:
        with external_cell_failures(cell.name):
            return read(engine, partial(_lacking_in, tables=tables))
    finally:
        engine.dispose()


def _lacking_in(connection: Connection, tables: Sequence[Table]) -> list[str]:
    lacking: list[str] = []
    for table in tables:
        try:
            connection.execute(select(*table.columns).limit(0))
        except DBAPIError as error:
            # An account with rights to single columns cannot select from the whole table.
            found = _lacking_of(connection, table, error)
            if not found:
                raise
            lacking += found
    return lacking


def _lacking_of(connection: Connection, table: Table, error: DBAPIError) -> list[str]:
    """The missing parts of an unreadable table. Raises `error` if the account may not query the catalog."""
    try:
        there = {column["name"] for column in inspect(connection).get_columns(table.name)}
    except NoSuchTableError:
        return [f"table {table.name}"]
    except DBAPIError:
        raise error from None
    return [f"column {table.name}.{column.name}" for column in table.columns if column.name not in there]
