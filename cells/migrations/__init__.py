"""Alembic migrations of the fleet database (`fleet/`) and of cell databases (`cell/`).

`upgrade_fleet` and `upgrade_cell` upgrade a database; every process may call them at its start. A released migration is
frozen: it defines its columns itself, and does not import `fleetlight.cells.tables`.
"""

from collections.abc import Collection
from pathlib import Path

from sqlalchemy import Connection, Engine, String, column, inspect, select, table
from sqlalchemy.exc import DBAPIError

from fleetlight.cells.database.engines import reason_of, writing
from fleetlight.cells.database.locks import wait_for_lock
from fleetlight.cells.errors import MixedTablesError, NewerTablesError

_HERE = Path(__file__).parent
# SQLSTATEs of PostgreSQL for a table, a column or a dependent object that exists, or is missing: class 42 without
# missing rights, and objects on which others depend.
_CLASS_OF_NAMES, _MISSING_RIGHT, _DEPENDED_ON = "42", "42501", "2BP01"


def upgrade_fleet(engine: Engine) -> None:
    """Upgrade the fleet database to the newest schema; idempotent. Raises NewerTablesError and MixedTablesError."""
    _upgrade(engine, "fleet")


def upgrade_cell(engine: Engine) -> None:
    """Upgrade a cell database to the newest schema; idempotent. Raises NewerTablesError and MixedTablesError."""
    _upgrade(engine, "cell")


def newer_revision_of_fleet(engine: Engine) -> str | None:
    """The revision of the fleet database if a newer version than this one has upgraded it; else None."""
    return _newer_revision(engine, "fleet")


def newer_revision_of_cell(engine: Engine) -> str | None:
    """The revision of a cell database if a newer version than this one has upgraded it; else None."""
    return _newer_revision(engine, "cell")


def newest_revision(schema: str) -> str:
    """The revision of the tables that this program knows. schema: `fleet` or `cell`."""
    return max(_known_revisions(schema))


def is_newer(revision: str, schema: str) -> bool:
    """Whether only newer versions than this one have tables of that revision."""
    return revision not in _known_revisions(schema)


def written_revision(connection: Connection, schema: str) -> str | None:
    """The revision of the existing tables; None if `fleetlight database upgrade` has created none."""
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
    # Not by Alembic, which takes long to import: the file of a script has the name of its revision.
    return {script.stem for script in (_HERE / schema / "versions").glob(f"{schema}_*.py")}


def _upgrade(engine: Engine, schema: str) -> None:
    # Imported here, since most commands migrate nothing, and would start a tenth of a second later.
    from alembic import command  # noqa: PLC0415
    from alembic.config import Config  # noqa: PLC0415
    from alembic.script.revision import ResolutionError  # noqa: PLC0415
    from alembic.util import CommandError  # noqa: PLC0415

    config = Config()
    config.set_main_option("script_location", str(_HERE / schema).replace("%", "%%"))
    with writing(engine) as connection:
        # Processes that start at once migrate one after the other.
        wait_for_lock(connection, f"migrations {schema}")
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError as error:
            # The unknown revision is the database's, since our scripts name only existing ones.
            if isinstance(error.__cause__, ResolutionError):
                raise NewerTablesError(str(error.__cause__.argument)) from error
            raise
        except DBAPIError as error:
            sqlstate: str = getattr(error.orig, "sqlstate", None) or ""
            if sqlstate == _DEPENDED_ON or (sqlstate.startswith(_CLASS_OF_NAMES) and sqlstate != _MISSING_RIGHT):
                raise MixedTablesError(reason_of(error.orig)) from error
            raise
