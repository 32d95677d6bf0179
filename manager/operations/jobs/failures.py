"""Distinction of failures that end the work on one instance from failures of a database, which are retried."""

from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from fleetlight.cells.database.engines import needs_an_operator
from fleetlight.cells.errors import CellUnreachableError, FleetUnreachableError, UnreadableRowError
from fleetlight.cells.kinds.native.instance_rows import is_damage

_AWAY = (CellUnreachableError, FleetUnreachableError, OperationalError, InterfaceError, PoolTimeoutError)
# A standby that is no primary yet, which psycopg does not report as OperationalError.
_READ_ONLY = "25006"


def ends_alone(error: Exception) -> bool:
    """Whether `error` concerns one instance or its job, so that work on others can go on."""
    if isinstance(error, UnreadableRowError) or is_damage(error):
        return True
    return not (isinstance(error, _AWAY) or _is_lost(error) or needs_an_operator(error))


def _is_lost(error: Exception) -> bool:
    """Whether the connection broke, or the server takes no changes now."""
    if not isinstance(error, DBAPIError):
        return False
    return error.connection_invalidated or getattr(error.orig, "sqlstate", None) == _READ_ONLY
