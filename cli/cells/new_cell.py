"""Checks of names and addresses before a cell is added to the fleet."""

import re
from collections.abc import Iterable
from pathlib import Path

from sqlalchemy import Engine
from sqlalchemy.engine import make_url

from fleetlight.bus.link import check_address
from fleetlight.cells.database.engines import cell_failures, create_database_engine
from fleetlight.cells.errors import DatabaseUrlError
from fleetlight.cells.migrations import upgrade_cell
from fleetlight.cells.model import Cell
from fleetlight.cli.errors import ConfigurationError
from fleetlight.cli.fleet import IN_PROCESS_BUS
from fleetlight.notifications.errors import BusError

# Names appear in headers (Fleetlight-Route), in logs and on command lines.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)


def checked_name(name: str) -> str:
    """Return the name of a cell. Raises ConfigurationError if it is invalid, or looks like a uuid."""
    if not _NAME.fullmatch(name) or _UUID.fullmatch(name):
        raise ConfigurationError(
            f"'{name}' cannot be the name of a cell: use up to 63 letters, digits, dots, hyphens and underscores, "
            "beginning with a letter or a digit, and not a uuid"
        )
    return name


def given_url(option: str, url: str | None, file: Path | None) -> str:
    """The value of `option`, or the content of its file without the last line break. Raises ConfigurationError."""
    if (url is None) == (file is None):
        raise ConfigurationError(f"give either {option} or {option}-file")
    if file is None:
        return str(url)
    try:
        return file.read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        raise ConfigurationError(f"{option}-file: cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{option}-file: {file} is not UTF-8 text") from error


def check_transport_url(url: str) -> None:
    """Raises ConfigurationError if other processes cannot reach a bus at this address."""
    try:
        check_address(url)
    except BusError as error:
        raise ConfigurationError(f"--transport-url: {error}") from error
    if url.startswith(IN_PROCESS_BUS):
        raise ConfigurationError(
            f"--transport-url: {IN_PROCESS_BUS} is the bus inside the process of `fleetlight up`, which makes its "
            "cells itself: `fleetlight up --cells N`"
        )


def check_database_url(url: str, name: str, others: Iterable[Cell]) -> Engine:
    """Create an engine for the database of a new cell, without connecting.

    Raises ConfigurationError if the database cannot be used, or belongs to one of the `others`.
    """
    try:
        engine = create_database_engine(url)
    except DatabaseUrlError as error:
        raise ConfigurationError(f"--database-url: {error.reason}") from error
    if engine.dialect.name == "sqlite" and not Path(str(engine.url.database)).is_absolute():
        raise ConfigurationError(
            f"--database-url: '{engine.url.database}' depends on where a process is started; "
            "give an absolute path, with four slashes: sqlite:////var/lib/fleetlight/cell1.db"
        )
    for other in others:
        if other.name != name and is_same_place(other.database_url, url):
            raise ConfigurationError(f"--database-url: this is the database of cell '{other.name}' already")
    return engine


def upgrade(engine: Engine, name: str) -> None:
    """Bring the database of the cell called `name` to the newest schema. Raises CellUnreachableError."""
    try:
        with cell_failures(name):
            upgrade_cell(engine)
    finally:
        engine.dispose()


def is_same_place(one: str, other: str) -> bool:
    """Whether two URLs name the same server, port and database; accounts are not compared."""
    places = [make_url(url) for url in (one, other)]
    return len({(url.get_backend_name(), url.host, url.port, url.database) for url in places}) == 1
