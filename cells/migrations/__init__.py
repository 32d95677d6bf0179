"""Alembic migrations of the fleet database (`fleet/`) and of cell databases (`cell/`).

`upgrade_fleet` and `upgrade_cell` bring a database up to date; every process may call them at its start. What was
released is frozen: a migration names its columns itself and does not import `fleetlight.cells.tables`.
"""

from collections.abc import Collection
from pathlib import Path

from sqlalchemy import Connection, Engine, String, column, inspect, select, table
from sqlalchemy.exc import DBAPIError

from fleetlight.cells.database.engines import reason_of, writing
from fleetlight.cells.database.locks import wait_for_lock
from fleetlight.cells.errors import MixedTablesError, NewerTablesError

_HERE = Path(__file__).parent
# SQLSTATEs of PostgreSQL that say that a table, a column or what hangs on it is there, or is not: all of class 42 but a
# missing right, and what others depend on.
_CLASS_OF_NAMES, _MISSING_RIGHT, _DEPENDED_ON = "42", "42501", "2BP01"


def upgrade_fleet(engine: Engine) -> None:
    """Bring the fleet database to the newest schema; idempotent. Raises NewerTablesError and MixedTablesError."""
    _upgrade(engine, "fleet")


def upgrade_cell(engine: Engine) -> None:
    """Bring a cell database to the newest schema; idempotent. Raises NewerTablesError and MixedTablesError."""
    _upgrade(engine, "cell")


def newer_revision_of_fleet(engine: Engine) -> str | None:
    """The revision of the fleet database when a newer version than this one has upgraded it."""
    return _newer_revision(engine, "fleet")


def newer_revision_of_cell(engine: Engine) -> str | None:
    """The revision of a cell database when a newer version than this one has upgraded it."""
    return _newer_revision(engine, "cell")


def newest_revision(schema: str) -> str:
    """The revision of the tables that this program knows. schema: `fleet` or `cell`."""
    return max(_known_revisions(schema))


def is_newer(revision: str, schema: str) -> bool:
    """Whether a newer version than this one has made tables of that revision."""
    return revision not in _known_revisions(schema)


def written_revision(connection: Connection, schema: str) -> str | None:
    """The revision of the tables that are there; None where `fleetlight database upgrade` has made none."""
    name = f"fleetlight_{schema}_version"
    if not inspect(connection).has_table(name):
        return None
    written = select(column("version_num", String)).select_from(table(name))
    return connection.execute(written).scalar_one()


def _newer_revision(engine: Engine, schema: str) -> str | None:
    with engine.connect() as connection:
        written = select(column("version_num", String)).select_from(table(f"fleetlight_{schema}_version"))
        revision = connection.execute(written).scalar_one()
    return revision if is_newer(revision, schema) else None


def _known_revisions(schema: str) -> Collection[str]:
    # Without Alembic, which takes long to import: a script is called as its revision.
    return {script.stem for script in (_HERE / schema / "versions").glob(f"{schema}_*.py")}


def _upgrade(engine: Engine, schema: str) -> None:
    # Only here: most commands migrate nothing, and would start a tenth later.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415
    from alembic.script.revision import ResolutionError  # noqa: PLC0415
    from alembic.util import CommandError  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(_HERE / schema).replace("%", "%%"))
    with writing(engine) as connection:
        # Processes that start together migrate one after the other.
        wait_for_lock(connection, f"migrations {schema}")
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            # Of the database: the revisions that our own scripts name are all there.
            if isinstance(error.__cause__, ResolutionError):
                raise NewerTablesError(str(error.__cause__.argument)) from error
            raise
        except DBAPIError as error:
            if _is_surprised(getattr(error.orig, "sqlstate", None) or ""):
                raise MixedTablesError(reason_of(error.orig)) from error
            raise


def _is_surprised(sqlstate: str) -> bool:
    """Whether a migration did not find what its revision has."""
    return sqlstate == _DEPENDED_ON or (sqlstate.startswith(_CLASS_OF_NAMES) and sqlstate != _MISSING_RIGHT)
